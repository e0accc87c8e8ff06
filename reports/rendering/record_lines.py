"""Records as lines of text, JSON or CSV.

Keys and values can be any bytes. `Rendering` chooses their form. "auto" chooses JSON if the bytes parse as an object or
array, text if they are UTF-8 without control characters, and otherwise hexadecimal (base64 in JSON). The output names
the form of each value.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..record_rows import RecordRows
from ..table_columns import RECORDS
from ..units import clock, iso, safe
from .table_files import text_cell

#: Forms of keys and values.
FORMS = ("auto", "utf8", "json", "hex", "base64", "none")


@dataclass(frozen=True, slots=True)
class Rendering:
    """`form`: one of FORMS. `most`: the maximum number of bytes of a key or value, None for all."""

    form: str = "auto"
    most: int | None = None


class Data(NamedTuple):
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
            text = value[:end].decode()
        except UnicodeDecodeError:
            continue
        return text if text.isprintable() or _is_plain(text) else None
    return None


def _is_plain(text: str) -> bool:
    """Whether a text that is not printable is none for its tabs and line ends alone."""
    if text.isascii():
        return text.translate(_PLAIN).isprintable()
    return not any((c < " " and c not in "\t\n\r") or "\x7f" <= c < "\xa0" for c in text)


# ---------------------------------------------------------------- JSON


def json_lines(rows: RecordRows, rendering: Rendering) -> Iterator[str]:
    """Each record as a JSON object (docs/records.schema.json) in ASCII, without a line end."""
    encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode

    def data(value: bytes | None) -> str:
        if value is None:
            return "null"
        form, data, size, cut = read_data(value, rendering)
        return f'{{"form":"{form}","data":{encode(data)},"bytes":{size},"cut":{"true" if cut else "false"}}}'

    def data_or_nothing(value: bytes | None) -> str:
        try:
            return data(value)
        except RecursionError:  # the value is nested too deeply to be written again
            return ""

    def contents() -> Iterator[str]:
        """The members `key`, `value` and `headers`."""
        keys = rows.texts("key", data_or_nothing)
        values = map(data_or_nothing, rows.values("value"))
        for key, value, headers in zip(keys, values, rows.headers(), strict=True):
            found = [(encode(name), data_or_nothing(content)) for name, content in headers]
            if key and value and all(content for _, content in found):
                shown = ",".join([f'{{"key":{name},"value":{content}}}' for name, content in found])
                yield f'"key":{key},"value":{value},"headers":[{shown}]'
            else:
                yield '"key":null,"value":null,"headers":[]'

    # Many programs read numbers beyond 2^53 as floats.
    forms = {"exchange": '"{}"'.format, "message_first": _iso, "timestamp": _iso}
    columns: list[Iterable[str]] = []
    members = []
    for name in (column.name for column in RECORDS):
        if name == "key":
            columns.append(contents())
            members.append("%s")
        elif name not in ("value", "headers"):
            columns.append(rows.texts(name, forms.get(name, encode)))
            members.append(f'"{name}":%s')
    return map(f"{{{','.join(members)}}}".__mod__, zip(*columns, strict=True))


def _iso(ns: int | None) -> str:
    return "null" if ns is None else f'"{iso(ns)}"'


# ---------------------------------------------------------------- CSV


def csv_header() -> str:
    """The names of the columns: those of the table, with the form of keys and values behind these."""
    return ",".join(f"{column.name},{column.name}_form" if column.name in _DATA else column.name for column in RECORDS)


def csv_lines(rows: RecordRows, rendering: Rendering) -> Iterator[str]:
    """Each record as a line of CSV (RFC 4180) without its end. Keys, values and headers are as in `json_lines`; what is
    JSON there is JSON text. A null has an empty form."""
    line = io.StringIO()
    writer = csv.writer(line, lineterminator="")
    for row in map(json.loads, json_lines(rows, rendering)):
        cells: list[Any] = []
        for name, value in row.items():
            if name in _DATA:
                data = value or {"form": "", "data": None}
                cells += (_csv_cell(data["data"]), data["form"])
            else:
                cells.append(_csv_cell(value))
        writer.writerow(cells)
        yield line.getvalue()
        line.seek(0)
        line.truncate()


_DATA = ("key", "value")


def _csv_cell(value: Any) -> str:
    if value is None or isinstance(value, str):
        return text_cell(value or "")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) if value != [] else ""


# ---------------------------------------------------------------- text


def text_lines(rows: RecordRows, rendering: Rendering, utc: bool) -> Iterator[str]:
    """Each record as a line of text, with texts from the wire escaped."""
    forms = _text_forms(utc) | {"key": lambda key: "" if key is None else f"key={_shown(key, rendering)}  "}
    texts = [rows.texts(name, form) for name, form in forms.items()]
    names = (
        "value",
        "is_control",
        "control_type",
        "crc_ok",
        "is_aborted",
        "is_before_fetch_offset",
        "status",
        "batch",
        "magic",
    )
    plain = [rows.values(name) for name in names]
    for packet, when, direction, client, topic, partition, relative, offset, time, key, headers, *content, magic in zip(
        *texts, rows.headers(), *plain, strict=True
    ):
        where = f"{relative}{offset}" if offset else "?"
        is_message = bool(offset) and magic in (0, 1)
        contents = _contents(rendering, is_message, key, headers, *content)
        yield f"{packet}  {when}  {direction}  {client}  {topic}-{partition}@{where}{time}  {contents}"


def _text_forms(utc: bool) -> dict[str, Callable[[Any], str]]:
    """The text of values by column, in the order of a line."""
    return {
        "packet": "{:6}".format,
        "message_first": lambda ns: "--:--:--.---" if ns is None else clock(ns, utc),
        "direction": "{:7}".format,
        "client_id": lambda client: "-" if client is None else safe(client),
        "topic": lambda topic: safe(topic or "?"),
        "partition": lambda partition: "?" if partition is None else str(partition),
        "offset_is_relative": lambda is_relative: "+" if is_relative else "",
        "offset": lambda offset: "" if offset is None else str(offset),
        "timestamp": lambda ns: "" if ns is None else f"  time={clock(ns, utc, date=True)}",
    }


def _contents(
    rendering: Rendering, is_message: bool, key: str, headers: list[tuple[str, bytes | None]], value: bytes | None,
    is_control: bool, control_type: str | None, crc_ok: bool | None, is_aborted: bool | None,
    is_before_fetch_offset: bool | None, status: str, batch: int,
) -> str:  # fmt: skip
    """What comes behind the place and time of a record. `key`: its text with two spaces behind it, "" for none.
    `is_message`: what is wrong with it leaves others of its batch readable."""
    before = "wrong CRC  " if crc_ok is False else ""
    before += "aborted  " if is_aborted else ""
    before += "before the fetch offset  " if is_before_fetch_offset else ""
    if status not in ("ok", "trailing_bytes") or (status == "trailing_bytes" and value is None):
        if is_message:
            return f"{before}this message of batch {batch} cannot be decoded: {status}"
        return f"{before}batch {batch} cannot be decoded from here on: {status}"
    if is_control:
        before += f"control={control_type or '?'}"
        if rendering.form in ("auto", "none"):
            return before
        before += "  "
    shown = f"{before}{key}value={_shown(value, rendering)}"
    for name, content in headers:
        shown += f"  {safe(name)}:{_shown(content, rendering)}"
    return shown if status == "ok" else f"{shown}  {status}"


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
