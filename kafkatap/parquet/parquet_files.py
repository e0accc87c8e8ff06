"""`ParquetFiles`: Parquet files that appear in a folder together, when all of them are complete.

They are locked `OutputFiles`: two runs cannot write the same one. A run that was killed leaves `.NAME.parquet.part`,
and the next run overwrites it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from ..installation import own_version
from ..output_file import OutputFiles
from ..replaceable import PARQUET_KEY

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

#: A row group ends with this many rows, or with this many bytes of them in memory.
GROUP_ROWS, GROUP_BYTES = 1 << 18, 12 << 20


class ParquetFiles:
    """The files of one run: NAME.parquet in `folder` for each of `names`. `overwrite`: as of `OutputFile`.

    As a context manager it removes what `publish` has not completed. OSErrors name the file, also here if it cannot be
    written or another run writes it. Earlier files of the same names stay until `publish`.
    """

    def __init__(self, folder: Path, names: Sequence[str], overwrite: bool = False) -> None:
        self._files = OutputFiles(folder, is_locked=True, overwrite=overwrite)
        self._parts: dict[str, _Part] = {}
        try:
            for name in names:
                path = folder / f"{name}.parquet"
                self._parts[name] = _Part(path, self._files.add(path.name))
        except BaseException:
            self.discard()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.discard()

    def write(self, name: str, table: pa.Table) -> None:
        """Add the rows of a table to a file. Each file needs at least one table, which may have no rows."""
        self._parts[name].write(table)

    def publish(self) -> list[Path]:
        """Complete all files and give them their names; return their paths."""
        for part in self._parts.values():
            part.complete()
        self._parts.clear()
        return self._files.publish()

    def discard(self) -> None:
        """Remove the files that have no names yet."""
        for part in self._parts.values():
            part.discard()
        self._parts.clear()
        self._files.discard()


class _Part:
    """One file while it is written. Its rows gather to row groups, so that they can come in small tables."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path, self._file = path, file
        self._rows: list[pa.Table] = []
        self._count = self._bytes = 0
        self._writer: pq.ParquetWriter | None = None

    def write(self, table: pa.Table) -> None:
        self._rows.append(table)
        self._count += table.num_rows
        self._bytes += table.nbytes
        if self._count >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._end_group()

    def _end_group(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self._rows:
            return
        rows = pa.concat_tables(self._rows)
        self._rows.clear()
        self._count = self._bytes = 0
        with _naming(self._path):
            if self._writer is None:
                words = repeating_columns(rows.schema)
                self._writer = pq.ParquetWriter(self._file, rows.schema, compression="zstd", use_dictionary=words)
                self._writer.add_key_value_metadata({PARQUET_KEY: own_version()})
            if rows.num_rows:
                self._writer.write_table(rows)

    def complete(self) -> None:
        self._end_group()
        assert self._writer is not None, "a file has at least one table"
        with _naming(self._path):
            self._writer.close()

    def discard(self) -> None:
        self._rows.clear()
        if self._writer is not None:
            with suppress(OSError):  # such as the one that is the reason for this call
                self._writer.close()


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Raise OSErrors with a path, as those of pyarrow and of open files name none."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise OSError(f"{path}: {error}") from error
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error


def repeating_columns(schema: pa.Schema) -> list[str]:
    """The columns of a Parquet file with repeating values: all but int64 and times. For others a dictionary takes more
    space and time than the values."""
    return [path for field in schema for path in _repeating(field.name, field.type)]


def _repeating(path: str, kind: Any) -> Iterator[str]:
    import pyarrow as pa

    if pa.types.is_list(kind):
        yield from _repeating(f"{path}.list.element", kind.value_type)
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from _repeating(f"{path}.{field.name}", field.type)
    elif not (pa.types.is_int64(kind) or pa.types.is_timestamp(kind)):
        yield path
