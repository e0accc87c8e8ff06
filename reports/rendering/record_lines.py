"""Records as lines of text or of JSON.

Keys and values can be any bytes. `Rendering` chooses their form. "auto" chooses JSON if the bytes parse as an object or
array, text if they are UTF-8 without control characters, and otherwise hexadecimal (base64 in JSON). The output names
the form of each value.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..units import clock, safe

#: Forms of keys and values.
FORMS = ("auto", "utf8", "json", "hex", "base64", "none")


@dataclass(frozen=True, slots=True)
class Rendering:
    """`form`: one of FORMS. `most`: the maximum number of bytes of a key or value, None for all."""

    form: str = "auto"
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Data:
    """A key or value in a form. `form`: utf8, json, hex, base64 or none (left out). `data`: text or parsed JSON."""

    form: str
    data: Any
    size: int
    cut: bool


def read_data(value: bytes, rendering: Rendering, binary: str = "base64") -> Data:
    """A key or value in the form of `rendering`. `binary`: the form for bytes that are not text."""
    form, size = rendering.form, len(value)
    if form == "none":
        return Data("none", None, size, False)
    cut = rendering.most is not None and size > rendering.most
    if cut:
        value = value[: rendering.most]
    elif form == "json" or (form == "auto" and _ENDS.get(value[:1]) == value[-1:]):
        try:
            return Data("json", _json(value), size, False)
        except (ValueError, RecursionError):
            pass
    if form in ("hex", "base64"):
        return Data(form, _BINARY[form](value), size, cut)
    text = _text(value, cut)
    if text is not None:
        return Data("utf8", text, size, cut)
    if form == "utf8":
        return Data("utf8", value.decode("utf-8", "replace"), size, cut)
    return Data(binary, _BINARY[binary](value), size, cut)


_BINARY: dict[str, Callable[[bytes], str]] = {
    "hex": bytes.hex,
    "base64": lambda value: base64.b64encode(value).decode("ascii"),
}


#: How JSON objects and arrays begin and end, as producers write them.
_ENDS = {b"{": b"}", b"[": b"]"}


def _json(value: bytes) -> Any:
    """Parse JSON. ValueError also for numbers that JSON cannot represent."""
    return _DECODER.decode(value.decode("utf-8"))


def _refuse(word: str) -> Any:
    raise ValueError(word)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)

#: Control characters that are allowed in text.
_PLAIN = str.maketrans("", "", "\t\n\r")


def _text(value: bytes, cut: bool) -> str | None:
    """Bytes as text, or None if they are not text. If the bytes are cut, an incomplete last character is dropped."""
    for end in range(len(value), max(-1, len(value) - (4 if cut else 1)), -1):
        try:
            text = value[:end].decode("utf-8")
        except UnicodeDecodeError:
            continue
        return text if _is_plain(text) else None
    return None


def _is_plain(text: str) -> bool:
    if text.isascii():
        return text.isprintable() or text.translate(_PLAIN).isprintable()
    return not any((c < " " and c not in "\t\n\r") or "\x7f" <= c < "\xa0" for c in text)


def rows_of(table: Any, times: Callable[[Any], list[Any]]) -> Iterator[dict[str, Any]]:
    """The rows of a part of the table `records` as dicts. `times` converts a column of times to a list."""
    import pyarrow as pa

    columns = [times(column) if pa.types.is_timestamp(column.type) else column.to_pylist() for column in table.columns]
    names = table.column_names
    for row in zip(*columns, strict=True):
        yield dict(zip(names, row, strict=True))


def _iso_times(column: Any) -> list[str | None]:
    """ISO 8601 in UTC with nine digits of the second."""
    import numpy as np

    texts = np.datetime_as_string(column.to_numpy(zero_copy_only=False).astype("datetime64"))
    end = "Z" if column.type.unit == "ns" else "000000Z"
    return [
        text + end if known else None for text, known in zip(texts.tolist(), column.is_valid().to_pylist(), strict=True)
    ]


def _ns_times(column: Any) -> list[int | None]:
    import pyarrow as pa

    numbers: list[int | None] = column.cast(pa.int64()).to_pylist()
    return numbers if column.type.unit == "ns" else [None if n is None else 1_000_000 * n for n in numbers]


# ---------------------------------------------------------------- JSON


def json_lines(table: Any, rendering: Rendering) -> Iterator[str]:
    """Each record as a JSON object (docs/records.schema.json) in ASCII, without a line end."""
    encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
    for row in rows_of(table, _iso_times):
        row["exchange"] = str(row["exchange"])  # many programs read numbers beyond 2^53 as floats
        row["key"] = _json_data(row["key"], rendering)
        row["value"] = _json_data(row["value"], rendering)
        row["headers"] = [{"key": h["key"], "value": _json_data(h["value"], rendering)} for h in row["headers"]]
        try:
            yield encode(row)
        except RecursionError:  # the value is nested too deeply to be written again
            yield encode({**row, "key": None, "value": None, "headers": []})


def _json_data(value: bytes | None, rendering: Rendering) -> dict[str, Any] | None:
    if value is None:
        return None
    data = read_data(value, rendering)
    return {"form": data.form, "data": data.data, "bytes": data.size, "cut": data.cut}


# ---------------------------------------------------------------- text


def text_lines(table: Any, rendering: Rendering, utc: bool) -> Iterator[str]:
    """Each record as a line of text, with texts from the wire escaped."""
    for row in rows_of(table, _ns_times):
        at = row["message_first"]
        when = "--:--:--.---" if at is None else clock(at, utc)
        partition = "?" if row["partition"] is None else row["partition"]
        offset = "?" if row["offset"] is None else f"{'+' if row['offset_is_relative'] else ''}{row['offset']}"
        place = f"{safe(row['topic'] or '?')}-{partition}@{offset}"
        client = "-" if row["client_id"] is None else safe(row["client_id"])
        parts = [f"{row['packet']:6}", when, f"{row['direction']:7}", client, place, *_parts(row, rendering)]
        if row["timestamp"] is not None:
            parts.insert(5, f"time={clock(row['timestamp'], utc, date=True)}")
        yield "  ".join(parts)


def _parts(row: dict[str, Any], rendering: Rendering) -> Iterator[str]:
    status = row["status"]
    if row["crc_ok"] is False:
        yield "wrong CRC"
    if status not in ("ok", "trailing_bytes") or (status == "trailing_bytes" and row["value"] is None):
        yield f"batch {row['batch']} cannot be decoded from here on: {status}"
        return
    if row["is_control"]:
        yield f"control={row['control_type'] or '?'}"
        if rendering.form in ("auto", "none"):
            return
    if row["key"] is not None:
        yield f"key={_shown(row['key'], rendering)}"
    yield f"value={_shown(row['value'], rendering)}"
    for header in row["headers"]:
        yield f"{safe(header['key'])}:{_shown(header['value'], rendering)}"
    if status != "ok":
        yield status


def _shown(value: bytes | None, rendering: Rendering) -> str:
    if value is None:
        return "null"
    data = read_data(value, rendering, binary="hex")
    if data.form == "none":
        return f"({data.size:,} bytes)"
    more = f"… ({data.size:,} bytes)" if data.cut else ""
    if data.form == "json":
        # The original text, with line breaks and tabs replaced.
        return safe(value.decode("utf-8").translate(_BREAKS))
    if data.form == "utf8":
        return f'"{safe(data.data)}"{more}'
    return f"{'0x' if data.form == 'hex' else 'base64:'}{data.data}{more}"


_BREAKS = str.maketrans("\t\n\r", "   ")
