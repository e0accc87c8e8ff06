"""`NameTopics`: names of topics that came later than the rows of these topics, as a change of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkatap.reports.batch import uuid_text

if TYPE_CHECKING:
    import pyarrow as pa

_WITH_TOPICS = ("results", "records", "rollup_errors")


@dataclass(frozen=True, slots=True)
class NameTopics:
    """Puts names into rows of unnamed topics. `names`: by topic id, as text."""

    names: Mapping[str, str]

    @staticmethod
    def of(names: Mapping[bytes, bytes]) -> NameTopics:
        """`names`: by topic id, both as on the wire."""
        return NameTopics({uuid_text(key) or "": name.decode("utf-8", "replace") for key, name in names.items()})

    def columns(self, table: str) -> Sequence[str]:
        return ("topics",) if table == "exchanges" else ("topic", "topic_id") if table in _WITH_TOPICS else ()

    def may_change(self, file: object) -> bool:
        return bool(self.names)

    def apply(self, table: str, rows: pa.Table) -> pa.Table | None:
        return self._in_lists(rows) if table == "exchanges" else self._in_rows(rows)

    def _in_lists(self, rows: pa.Table) -> pa.Table | None:
        """Replace ids in `topics` by names."""
        import pyarrow as pa
        import pyarrow.compute as pc

        lists = rows["topics"].combine_chunks()
        topics = lists.flatten()
        if not pc.any(pc.is_in(topics, pa.array(self.names, pa.string()))).as_py():
            return None
        texts = pa.array([self.names.get(text, text) for text in topics.to_pylist()], pa.string())
        offsets = pc.subtract(lists.offsets, lists.offsets[0])  # a list array may be a slice
        made = pa.ListArray.from_arrays(offsets, texts, type=lists.type)
        return rows.set_column(rows.schema.get_field_index("topics"), rows.schema.field("topics"), made)

    def _in_rows(self, rows: pa.Table) -> pa.Table | None:
        """Fill in `topic` where only `topic_id` is known."""
        import pyarrow as pa
        import pyarrow.compute as pc

        is_known = pc.is_in(rows["topic_id"], pa.array(self.names, pa.string()))
        nameless = pc.and_(pc.or_kleene(pc.is_null(rows["topic"]), pc.equal(rows["topic"], rows["topic_id"])), is_known)
        nameless = pc.fill_null(nameless, False)
        if not pc.any(nameless).as_py():
            return None
        texts = pa.array([self.names.get(text or "") for text in rows["topic_id"].to_pylist()], pa.string())
        made = pc.if_else(nameless, texts, rows["topic"])
        return rows.set_column(rows.schema.get_field_index("topic"), rows.schema.field("topic"), made)
