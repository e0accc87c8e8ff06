"""The column `twin_of` of rows that were written before it was known which connections are seen twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kafkatap.kernels.arrays import is_among

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class SetTwins:
    """An edit of tables. `twins`: by the key of each connection that is seen once more, that of the other one."""

    twins: Mapping[int, int]

    def columns(self, table: str) -> Sequence[str]:
        return ("connection", "twin_of") if table == "connections" and self.twins else ()

    def may_change(self, file: object) -> bool:
        return True

    def apply(self, table: str, rows: pa.Table) -> pa.Table | None:
        import pyarrow as pa

        keys = rows["connection"].to_numpy()
        is_twin = is_among(keys, np.array(list(self.twins), np.int64))
        if not is_twin.any():
            return None
        values = [self.twins.get(key) for key in keys.tolist()]
        return rows.set_column(rows.schema.get_field_index("twin_of"), "twin_of", pa.array(values, pa.int64()))

    def applied(self, table: str, rows: pa.Table) -> pa.Table:
        """The rows of a table, changed or not."""
        return (self.apply(table, rows) or rows) if self.columns(table) else rows


#: Nothing is seen twice.
NO_TWINS = SetTwins({})
