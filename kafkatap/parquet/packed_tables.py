"""Rows of tables as bytes, for temporary files."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def packed(rows: pa.Table) -> bytes:
    """The rows as compressed bytes; `unpacked` reads them. Rows repeat few texts: with dictionaries they need a tenth
    of the bytes."""
    import pyarrow as pa

    texts = {name for name, kind in zip(rows.schema.names, rows.schema.types, strict=True) if pa.types.is_string(kind)}
    columns = {
        name: rows[name].combine_chunks().dictionary_encode() if name in texts else rows[name]
        for name in rows.column_names
    }
    encoded, sink = pa.table(columns), pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, encoded.schema, options=options) as stream:
        stream.write_table(encoded)
    return bytes(sink.getvalue().to_pybytes())


def unpacked(data: bytes, schema: pa.Schema) -> pa.Table:
    """The rows of `packed`, with their schema."""
    import pyarrow as pa

    with pa.ipc.open_stream(data) as stream:
        return stream.read_all().cast(schema)
