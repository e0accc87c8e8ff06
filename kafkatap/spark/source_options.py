"""`SourceOptions`: the options of the data source "kafkatap", as `option(...)`, SQL and a catalog's table set them.

Spark shows a source in Python the options of a catalog's table only when it makes the table, and not when it reads it.
So they are kept in the schema of the table (`with_options`, `options_in`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from kafkatap.reports.expressions import ExpressionError
from kafkatap.reports.literals import read_split_size
from kafkatap.reports.tables import TABLES

from ..engine.selection import Selection
from .captures import spark_schema
from .cluster.failures import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_OPTIONS = ("table", "filter", "splitsize", "ports", "keylog", "hosts", "path", "paths")
#: What a table of a catalog has beside its options, and options of Spark's own sources that mean nothing here.
_OF_SPARK = (
    "collation", "comment", "external", "is_managed_location", "location", "owner", "provider",
    "header", "inferschema", "mergeschema", "serialization.format",
)  # fmt: skip
#: Before the name of an option while Spark makes a table of a catalog.
_IN_CATALOG = "option."
#: The metadata of a column that has the options of a catalog's table.
_KEPT = "kafkatap.options"
#: The options of streams, in lower case: the name of each as users write it.
STREAM_OPTIONS = {
    name.lower(): name
    for name in ("stateLocation", "maxFilesPerTrigger", "maxBytesPerTrigger", "quiet", "lateness", "finish")
}


def names_captures(options: Mapping[str, str]) -> bool:
    """Whether options are all that there are: those that Spark shows when it reads a catalog's table are not."""
    return not {"path", "paths", "location"}.isdisjoint(map(str.lower, options))


def is_of_catalog(options: Mapping[str, str]) -> bool:
    """Whether Spark makes a table of a catalog."""
    return "provider" in options


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """A schema that has these options in the metadata of its first column."""
    from pyspark.sql.types import StructField, StructType

    first, *others = schema.fields
    metadata = {**first.metadata, _KEPT: json.dumps(_plain(options))}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *others])


def options_in(schema: StructType) -> dict[str, str]:
    """The options of `with_options`; none if the schema has none."""
    for one in schema.fields:
        if _KEPT in (one.metadata or {}):
            found: dict[str, str] = json.loads(one.metadata[_KEPT])
            return found
    return {}


def _plain(options: Mapping[str, str]) -> dict[str, str]:
    """Options by their names in lower case."""
    return {name.lower().removeprefix(_IN_CATALOG): value for name, value in options.items()}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of the data source. `paths`: the captures, as `load` names them. `of_stream`: those of streams alone,
    by their names in lower case."""

    table: str
    paths: tuple[str, ...]
    split_size: int | None
    ports: tuple[int, ...]
    filter: str | None
    keylog: str | None
    hosts: str | None = None
    of_stream: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(options: Mapping[str, str]) -> SourceOptions:
        """`options` as `option(...)` sets them, case-insensitive. OptionError for wrong ones."""
        names = {name.lower().removeprefix(_IN_CATALOG): name.removeprefix(_IN_CATALOG) for name in options}
        unknown = sorted(names[name] for name in names.keys() - {*_OPTIONS, *_OF_SPARK, *STREAM_OPTIONS})
        if unknown:
            raise OptionError(
                f"there is no option {unknown[0]!r}; there are table, filter, splitSize, ports, keylog and hosts"
            )
        options = _plain(options)
        table = str(options.get("table", "exchanges"))
        if table not in TABLES:
            raise OptionError(f"there is no table {table!r}; there are {', '.join(TABLES)}")
        path = _local(options.get("path") or options.get("location", ""))
        paths = json.loads(options["paths"]) if options.get("paths") else [path]
        if not all(paths):
            raise OptionError("no capture is named: load(PATH), a folder, a glob or a list of these")
        filter = options.get("filter")
        try:
            split_size = read_split_size(options["splitsize"]) if options.get("splitsize") else None
            Selection.of(filter=filter)
        except ExpressionError as error:
            where = f"at character {error.at + 1} of {error.text!r}"
            raise OptionError(f"filter: {error.message}, {where} (docs/filters.md)") from None
        except ValueError as error:
            raise OptionError(str(error)) from None
        ports = tuple(_port(text) for text in options.get("ports", "").split(",") if text.strip())
        of_stream = {name: value for name, value in options.items() if name in STREAM_OPTIONS}
        return SourceOptions(
            table, tuple(paths), split_size, ports, filter, options.get("keylog"), options.get("hosts"), of_stream
        )


def known_columns(schema: StructType, table: str) -> list[str]:
    """The names of columns. OptionError if a table lacks one, or has it with another type."""
    types = {one.name: one.dataType.simpleString() for one in spark_schema(table).fields}
    for one in schema.fields:
        wanted = one.dataType.simpleString()
        if one.name not in types:
            raise OptionError(f"{table} has no column {one.name!r} (docs/tables.md)")
        if wanted != types[one.name]:
            raise OptionError(f"{table} has the column {one.name!r} as {types[one.name]}, not as {wanted}")
    return list(schema.names)


def _local(path: str) -> str:
    """A path from a URI of a local file, such as `file:/captures/*.pcap`: so a catalog keeps paths."""
    return unquote(urlsplit(path).path) if path.startswith("file:/") else path


def _port(text: str) -> int:
    if not text.strip().isdecimal() or not 0 < int(text) < 65536:
        raise OptionError(f"ports: {text.strip()!r} is not a port (1 to 65535, such as 9092,9093)")
    return int(text)
