"""Truth files, and the row-by-row comparison of an `exchanges` table with one.

A truth file (`NAME.exchanges.tsv`, also `.zst`) has a row for each request of a capture, with its response, as Kafka's
own parsers read them. `read_truth` returns a pandas frame. `compare_exchanges` returns the differences as sentences, so
a test asserts `compare_exchanges(...) == []`.

Frames hold times in int64 µs since the epoch, or -1; other numbers that may be missing hold NONE.
`errors` is text: ``CODExCOUNT`` in ascending order of the code, joined by commas.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

NONE = -(2**31)
NO_TIME = -1

TIMES = ("request_first", "request_last", "response_first", "response_last")
#: Columns that identify a request, with the time of its first byte.
IDENTITY = ("client_ip", "client_port", "broker_ip", "broker_port", "correlation_id", "api_key", "api_version")
#: Columns compared on every matched row ...
HEADER = (*TIMES, "request_bytes", "response_bytes", "outcome")
#: ... and those compared only where the truth's parser read both messages completely.
BODY = ("client_id", "throttle_time_ms", "errors")

Frame = Any  #: a pandas.DataFrame (pandas carries no types)


def read_truth(path: str | Path) -> Frame:
    """Read a truth file, plain or `.zst`.

    Columns: IDENTITY; `client_id` (str or None); TIMES (int64 µs, NO_TIME); `request_bytes`, `response_bytes` (int64,
    -1); `throttle_time_ms` (int64, NONE); `batches`, `records` (int64); `errors` (str); `status` (str, as in the
    file); `outcome` (the one expected of the product: "answered", "no_reply_expected" or "unanswered"); `whole` (bool:
    the body's columns are compared too).
    """
    data = Path(path).read_bytes()
    if str(path).endswith(".zst"):
        import zstandard

        data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    table = csv.read_csv(
        pa.BufferReader(data),
        parse_options=csv.ParseOptions(delimiter="\t", quote_char=False),
        convert_options=csv.ConvertOptions(
            null_values=["\\N"],
            strings_can_be_null=True,
            column_types={
                **dict.fromkeys(("client", "broker", "client_id", "errors", "status"), pa.string()),
                **{f"{name}_us": pa.int64() for name in TIMES},
                **dict.fromkeys(("request_bytes", "response_bytes", "throttle_time_ms"), pa.int64()),
            },
        ),
    )
    columns: dict[str, Any] = {}
    for end in ("client", "broker"):
        columns[f"{end}_ip"], columns[f"{end}_port"] = _addresses(table[end])
    for name in ("api_key", "api_version", "correlation_id", "batches", "records"):
        columns[name] = _ints(table[name], NONE)
    for name in TIMES:
        columns[name] = _ints(table[f"{name}_us"], NO_TIME)
    columns["request_bytes"] = _ints(table["request_bytes"], -1)
    columns["response_bytes"] = _ints(table["response_bytes"], -1)
    columns["throttle_time_ms"] = _ints(table["throttle_time_ms"], NONE)
    columns["client_id"] = _texts(table["client_id"])
    columns["errors"] = _texts(pc.fill_null(table["errors"], ""))
    status = _texts(table["status"])
    columns["status"] = status
    frame = _frame(columns)
    answered = (frame["response_first"] != NO_TIME).to_numpy()
    outcome = np.where(answered, "answered", "unanswered").astype(object)
    text = frame["status"].astype(object)
    outcome[(text.str.startswith("no_reply_expected")).to_numpy() & ~answered] = "no_reply_expected"
    frame["outcome"] = pd.Series(outcome, dtype=object)
    frame["whole"] = ~text.str.contains("unknown_|bad_|_trailing", regex=True).to_numpy(dtype=bool)
    return frame


#: Outcomes that the truth calls "unanswered": it does not say why there is no response.
WITHOUT_RESPONSE = ["in_flight", "response_lost"]


def seen_by_parsers(table: pa.Table) -> pa.Table:
    """The rows of `exchanges` that the parsers of the truth see: not orphan responses, nor requests that are cut."""
    table = table.filter(pc.not_equal(table["outcome"], "orphan_response"))
    return table.filter(pc.equal(table["request_cut_bytes"], 0)) if "request_cut_bytes" in table.column_names else table


def exchanges_frame(table: pa.Table) -> Frame:
    """The `exchanges` table of an analysis as `read_truth` has it: the rows of `seen_by_parsers`, without responses
    that are cut."""
    table = seen_by_parsers(table)
    columns: dict[str, Any] = {}
    is_cut = np.zeros(len(table), bool)
    if "response_cut_bytes" in table.column_names:
        is_cut = _ints(table["response_cut_bytes"], 0) > 0
    for name in ("client_ip", "broker_ip", "client_id", "outcome"):
        columns[name] = _texts(table[name])
    for name in ("client_port", "broker_port", "api_key", "api_version", "correlation_id", "throttle_time_ms"):
        columns[name] = _ints(table[name], NONE)
    for name in ("request_bytes", "response_bytes"):
        columns[name] = _ints(table[name], -1)
    for name in TIMES:
        nanoseconds = _ints(table[name].cast(pa.timestamp("ns", "UTC")).cast(pa.int64()), NO_TIME)
        columns[name] = np.where(nanoseconds == NO_TIME, NO_TIME, nanoseconds // 1000)
    columns["errors"] = _error_texts(table["errors"])
    for name, missing in (("response_bytes", -1), ("throttle_time_ms", NONE), ("response_first", NO_TIME),
                          ("response_last", NO_TIME), ("errors", "")):  # fmt: skip
        columns[name] = np.where(is_cut, missing, columns[name])
    if "request_packet_first" in table.column_names:
        columns["request_packet_first"] = _ints(table["request_packet_first"], 0)
    return _frame(columns)


def compare_exchanges(
    table: pa.Table,
    truth: Frame,
    tolerance_us: int = 0,
    *,
    missing: bool = True,
    extra: bool = True,
    columns: Sequence[str] = (*HEADER, *BODY),
    match_request_bytes: bool = False,
    examples: int = 3,
) -> list[str]:
    """Compare an `exchanges` table with a truth frame; return the differences, [] where there are none.

    Rows match by client, broker, correlation id, key, version and the µs of the request's first byte; with a tolerance,
    by the nearest one within it. All times must be equal within `tolerance_us`. `missing`: a row of the truth that the
    table lacks is a difference. `extra`: so is a row that the truth lacks. `columns`: those of HEADER and BODY to
    compare. Each kind of difference has one sentence, with the number of rows and up to `examples` of them.
    """
    ours, found = match_exchanges(table, truth, tolerance_us, match_request_bytes=match_request_bytes)
    differences: list[str] = []
    matched = found >= 0
    if missing and not matched.all():
        differences.append(_say("rows of the truth are not in the table", truth[~matched], len(truth), examples))
    if extra:
        unclaimed = np.ones(len(ours), dtype=bool)
        unclaimed[found[matched]] = False
        if unclaimed.any():
            differences.append(_say("rows of the table are not in the truth", ours[unclaimed], len(ours), examples))
    left = truth[matched].reset_index(drop=True)
    right = ours.iloc[found[matched]].reset_index(drop=True)
    for name in columns:
        wrong = _differs(name, left, right, tolerance_us)
        if wrong.any():
            shown = left[wrong].assign(wanted=left[name][wrong], got=right[name][wrong])
            differences.append(_say(f"rows differ in {name}", shown, len(left), examples))
    return differences


def match_exchanges(
    table: pa.Table, truth: Frame, tolerance_us: int = 0, *, match_request_bytes: bool = False
) -> tuple[Frame, np.ndarray[Any, np.dtype[np.int64]]]:
    """Our rows as a frame, and for each row of the truth the number of its row in that frame, or -1.

    No row of ours matches two rows of the truth.
    """
    ours = exchanges_frame(table)
    by = [*IDENTITY, *(["request_bytes"] if match_request_bytes else [])]
    left = truth[[*by, "request_first"]].assign(left=np.arange(len(truth)))
    right = ours[[*by, "request_first"]].assign(right=np.arange(len(ours)))
    found = np.full(len(truth), -1, dtype=np.int64)
    if not len(left) or not len(right):
        return ours, found
    if tolerance_us == 0:
        keys = [*by, "request_first"]
        pairs = left.merge(right.drop_duplicates(keys), on=keys)
        found[pairs["left"].to_numpy()] = pairs["right"].to_numpy()
    else:
        pairs = pd.merge_asof(
            left.sort_values("request_first"),
            right.assign(ours_first=right["request_first"]).sort_values("request_first"),
            on="request_first",
            by=by,
            tolerance=tolerance_us,
            direction="nearest",
        ).dropna(subset=["right"])
        pairs = pairs.assign(distance=(pairs["request_first"] - pairs["ours_first"]).abs())
        pairs = pairs.sort_values("distance").drop_duplicates("right")
        found[pairs["left"].to_numpy(dtype=np.int64)] = pairs["right"].to_numpy(dtype=np.int64)
    return ours, found


def error_text(codes: dict[int, int]) -> str:
    """The `errors` text of some error codes and their counts: ``{3: 1, 29: 2}`` gives ``3x1,29x2``."""
    return ",".join(f"{code}x{count}" for code, count in sorted(codes.items()))


def _differs(name: str, truth: Frame, ours: Frame, tolerance_us: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    wanted, got = truth[name].to_numpy(), ours[name].to_numpy()
    if name in TIMES:
        one_is_missing = (wanted == NO_TIME) != (got == NO_TIME)
        return np.asarray(one_is_missing | (np.abs(wanted - got) > tolerance_us))
    if name == "outcome":
        got = np.where(np.isin(got, WITHOUT_RESPONSE), "unanswered", got)
        return np.asarray(wanted != got, dtype=bool)
    if name == "client_id":
        # The truth comes from Kafka 4.3's parser. It reads no client id where it does not know the key or the version.
        unread = (wanted == None) & _not_in_4_3(truth)  # noqa: E711  # element by element
        unread |= truth["status"].astype(object).str.contains("unknown_").to_numpy(dtype=bool)
        return np.asarray((wanted != got) & ~unread, dtype=bool)
    different = np.asarray(wanted != got, dtype=bool)
    if name in BODY:
        different &= truth["whole"].to_numpy(dtype=bool)
    return different


def _not_in_4_3(truth: Frame) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Rows of versions that Kafka 4.3 does not know but clients still send."""
    key, version = truth["api_key"].to_numpy(), truth["api_version"].to_numpy()
    return np.asarray(((key == 0) & (version < 3)) | ((key == 18) & (version > 4)), dtype=bool)


def _say(what: str, rows: Frame, of: int, examples: int) -> str:
    """One sentence: the number of rows, and the first few of them."""
    shown = []
    for row in rows.head(examples).to_dict("records"):
        at = row["request_first"]
        text = (
            f"{row['client_ip']}:{row['client_port']} > {row['broker_ip']}:{row['broker_port']} key {row['api_key']} "
            f"v{row['api_version']} correlation {row['correlation_id']} at {at // 10**6}.{at % 10**6:06}"
        )
        for extra in ("status", "request_packet_first"):
            if extra in row:
                text += f" {extra} {row[extra]}"
        if "wanted" in row:
            text += f": wanted {row['wanted']!r}, got {row['got']!r}"
        elif "outcome" in row:
            text += f" ({row['outcome']})"
        shown.append(text)
    return f"{len(rows)} of {of} {what}: " + "; ".join(shown)


def _frame(columns: dict[str, Any]) -> Frame:
    """A frame whose texts stay Python objects: pandas' own string type would turn None into NaN."""
    return pd.DataFrame({k: pd.Series(v, dtype=object) if v.dtype == object else v for k, v in columns.items()})


def _ints(column: Any, missing: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    values = pc.fill_null(column.cast(pa.int64()), missing)
    return np.asarray(values.to_numpy(), dtype=np.int64)


def _texts(column: Any) -> np.ndarray[Any, Any]:
    """Text as an object array with None for null."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # several chunks, too large for one
        return np.concatenate([_texts(chunk) for chunk in column.chunks])
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    codes = column.dictionary_encode()
    words = np.array([*codes.dictionary.to_pylist(), None], dtype=object)
    result: np.ndarray[Any, Any] = words[pc.fill_null(codes.indices, len(words) - 1).to_numpy(zero_copy_only=False)]
    return result


def _addresses(column: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, np.dtype[np.int64]]]:
    """("10.0.0.1:9092" or "[::1]:9092") to addresses and ports."""
    texts = _texts(column)
    unique, where = np.unique(texts.astype(str), return_inverse=True)
    parts = [str(text).rpartition(":") for text in unique]
    hosts = np.array([host.strip("[]") for host, _, _ in parts], dtype=object)
    ports = np.array([int(port) for _, _, port in parts], dtype=np.int64)
    return hosts[where], ports[where]


def _error_texts(column: Any) -> np.ndarray[Any, Any]:
    """list<struct<code, count>> to texts. Null is equal to an empty list."""
    lengths = _ints(pc.list_value_length(column), 0)
    flat = pc.list_flatten(column)
    if isinstance(flat, pa.ChunkedArray):
        flat = flat.combine_chunks()
    if not len(flat):
        return np.full(len(lengths), "", dtype=object)
    codes, counts = (pc.struct_field(flat, name).cast(pa.string()) for name in ("code", "count"))
    words = pc.binary_join_element_wise(codes, counts, "x")
    if isinstance(words, pa.ChunkedArray):
        words = words.combine_chunks()
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return _texts(pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), words), ","))
