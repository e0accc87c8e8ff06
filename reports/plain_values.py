"""Values of tables as lists and dicts, as JSON and Arrow have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from .model import Column, Scalar, Value


def plain_value(column: Column, value: Value) -> Any:
    """A value of a column as numbers, texts, lists and dicts. Times stay integers."""
    if not isinstance(value, tuple):
        return value
    if column.kind == "versions":
        return [{"api": v[0], "versions": list(v[1])} for v in cast("tuple[tuple[str, tuple[int, ...]], ...]", value)]
    if column.kind == "numbers":
        return dict(cast("tuple[tuple[str, Scalar], ...]", value))
    if column.kind == "parties":
        return [dict(zip(("kind", "name"), v, strict=True)) for v in cast("tuple[tuple[str, str], ...]", value)]
    return list(value)
