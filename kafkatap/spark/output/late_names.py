"""Names of topics that came later than the rows of these topics: published files are written again with them."""

from __future__ import annotations

import io
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from kafkatap.reports.batch import uuid_text

from .folders import Folder
from .publish import Staging, Written


def rewrite_named(staging: Staging, names: Mapping[bytes, bytes]) -> list[Written]:
    """Write the files again that have rows of unnamed topics whose names are known now."""
    import pyarrow.parquet as pq

    folder = Folder(staging.out)
    known = {uuid_text(key) or "": name.decode("utf-8", "replace") for key, name in names.items()}
    ids = pa.array(list(known), pa.string())
    again = []
    for table in ("exchanges", "results", "records"):
        for name in folder.sizes(table):
            if not name.endswith(".parquet"):
                continue
            rows = pq.read_table(io.BytesIO(folder.read(name) or b""))
            named = with_names(table, rows, known, ids)
            if named is not None:
                again.append(staging.rewrite(name, named))
    return again


def with_names(table: str, rows: pa.Table, known: Mapping[str, str], ids: pa.Array) -> pa.Table | None:
    """Rows of a table with the names of topics (`known`, by their `ids`); None if nothing changes."""
    if table == "exchanges":
        lists = rows["topics"].combine_chunks()
        topics = lists.flatten()
        if not pc.any(pc.is_in(topics, ids)).as_py():
            return None
        texts = pa.array([known.get(text, text) for text in topics.to_pylist()], pa.string())
        made = pa.ListArray.from_arrays(lists.offsets, texts, type=lists.type)
        return rows.set_column(rows.schema.get_field_index("topics"), rows.schema.field("topics"), made)
    nameless = pc.and_(pc.is_null(rows["topic"]), pc.is_in(rows["topic_id"], ids))
    if not pc.any(nameless).as_py():
        return None
    texts = pa.array([known.get(text or "") for text in rows["topic_id"].to_pylist()], pa.string())
    made = pc.if_else(nameless, texts, rows["topic"])
    return rows.set_column(rows.schema.get_field_index("topic"), rows.schema.field("topic"), made)
