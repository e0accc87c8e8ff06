"""The slowest exchanges of each API, and the first failed exchange of each error code: with their packets.

Counts have a row for each such exchange. `read` adds an exchange only if it belongs to the `_KEPT` slowest of its API
so far, or is the first of its error code and API so far. The slowest of all are among the slowest of each part. So the
tables do not depend on how the exchanges were gathered, and the rows are few.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED, KIND_GROUP, KIND_RESOURCE, NO_TIME
from kafkatap.dissector.time_parts import TIME_PARTS
from kafkatap.kernels.arrays import dict_rows, distinct_values

from ..batch import Array
from ..counting.count_forms import ADDRESS, NUMBER, TEXT, CountForm
from ..counting.count_table import MAX, MIN
from ..counting.rollup import api_label
from ..finding_words import counted
from ..model import Column, ReportTable, in_columns
from ..section_parts.counted import form
from ..section_parts.gathered import Gathered
from ..section_parts.section import CountRow, Section, SectionInput
from ..section_parts.section_counts import Tally
from .error_codes import error_label

_MEANING = {part.name: part.meaning for part in TIME_PARTS}
_WHO = (
    Column("client_id", "client", "text", "client_id of the request", of=lambda r: r.text("client_id")),
    Column(
        "address", "address", "text", "address and port of the client", 3, end="client", of=lambda r: r.end("client")
    ),
    Column("broker", "broker", "text", "address and port of the broker", 2, end="broker", of=lambda r: r.end("broker")),
)
_SPLIT = (
    Column("total_ns", "total", "ns", "total time: from the request's first byte to the response's last byte"),
    Column("broker_ns", "broker\ntime", "ns", "broker time, with its wait for data or members"),
    Column("waiting_ns", "waiting", "ns", f"of the broker time: {_MEANING['waiting']}", 3),
    Column("round_trip_ns", "round\ntrip", "ns", "of the broker time: the round trip to the broker", 3),
    Column("hol_wait_ns", "HOL\nwait", "ns", _MEANING["HOL"]),
    Column("hol_round_trip_ns", "HOL\nround trip", "ns", "of the HOL wait: the round trip to the broker", 4),
    Column("throttle_wait_ns", "throttle\nwait", "ns", _MEANING["throttle"]),
    *(
        Column(f"{name}_ns", name, "ns", _MEANING[name], 1 if name != "unexplained" else 2)
        for name in ("loss", "receiver", "sender", "path", "unexplained")
    ),
)  # fmt: skip
_PACKETS = (
    Column("packet", "packet", "packet", "packet: of the request's first byte", of="request_packet_first"),
    Column("response_packet", "response\npacket", "packet", "response packet: of the response's last byte", 1,
           of="response_packet_last"),
)  # fmt: skip
#: For the picture of an exchange: the rest of the total time passed between the two.
_TRANSFERS = (
    Column("request_transfer_ns", "request\ntransfer", "ns", "from the request's first byte to its last one", 9),
    Column("response_transfer_ns", "response\ntransfer", "ns", "from the response's first byte to its last one", 9),
)
COLUMNS = (
    Column("api", "API", "text", "API of the request", of=lambda r: api_label(r["api_key"])),
    *_WHO,
    Column("start", "start", "time", "time of the request's first byte", of="request_first"),
    *_SPLIT,
    Column("request_bytes", "request", "bytes", "size of the request", 4),
    Column("response_bytes", "response", "bytes", "size of the response", 4),
    *_TRANSFERS,
    *_PACKETS,
)
ERROR_COLUMNS = (
    Column("error", "error", "text", "Kafka's name of the error code", of=lambda r: error_label(r["error_code"])),
    Column("code", "code", "count", "number of the error code", 3, of="error_code"),
    Column("api", "API", "text", "API of the request", of=lambda r: api_label(r["api_key"])),
    Column("name", "name", "text", "topic, group, or other name that the code refers to", 1, of=lambda r: _name(r)),
    *_WHO,
    Column("start", "start", "time", "time of the response's first byte", of="at"),
    Column("total_ns", "total", "ns", "total time of the exchange", 1),
    *_PACKETS,
)

#: Exchanges of each API that are kept, and shown.
_KEPT = 10
_EXCHANGE = {
    "exchange": NUMBER, "api_key": NUMBER, "client_id": TEXT, "client_ip": ADDRESS, "client_port": NUMBER,
    "broker_ip": ADDRESS, "broker_port": NUMBER,
}  # fmt: skip
_TIMES = tuple(column.name for column in _SPLIT)
_SIZES = ("request_bytes", "response_bytes")
_AT_ENDS: Any = dict.fromkeys(("request_packet_first", "response_packet_last"), MAX)
_OF_SLOW: Any = dict.fromkeys((*_TIMES, "request_first", *_SIZES, *(c.name for c in _TRANSFERS)), MAX)
_SLOW = form("slowest.exchanges", _EXCHANGE, **_OF_SLOW, **_AT_ENDS)
_RESULT = {"error_code": NUMBER, "kind": NUMBER, "topic": TEXT, "topic_id": TEXT, "name": TEXT}
_FAILED = form("slowest.errors", _EXCHANGE | _RESULT, at=MIN, total_ns=MAX, **_AT_ENDS)


def read(gathered: Gathered, tally: Tally) -> None:
    """Add exchanges that are slower than those so far, and errors that are earlier."""
    _add_slow(gathered, tally)
    _add_failed(gathered, tally)


def _add_slow(gathered: Gathered, tally: Tally) -> None:
    api, total = gathered.column("api_key"), gathered.column("total_ns")
    start, key = gathered.column("request_first"), gathered.column("key")
    is_candidate = (gathered.column("outcome") == ANSWERED) & (gathered.column("long_poll") == 0)
    kept = _slowest(*tally.rows(_SLOW.name))
    for api_key in distinct_values(api[is_candidate]).tolist():
        mine = np.flatnonzero(is_candidate & (api == api_key))
        limit = kept.get(api_key, [])
        if len(limit) == _KEPT:
            mine = mine[total[mine] >= limit[-1][0]]
        mine = mine[np.lexsort((key[mine], start[mine], -total[mine]))][:_KEPT]
        if len(limit) == _KEPT:
            _, last_start, last_key = limit[-1]
            ties = total[mine] == limit[-1][0]
            is_later = (start[mine] > last_start) | ((start[mine] == last_start) & (key[mine] > last_key))
            mine = mine[~(ties & is_later)]
        if len(mine):
            slow = gathered.rows(mine)
            _add(
                tally, _SLOW, slow, {},
                request_transfer_ns=slow["request_last"] - slow["request_first"],
                response_transfer_ns=slow["response_last"] - slow["response_first"],
            )  # fmt: skip


def _slowest(keys: dict[str, Array], values: dict[str, Array]) -> dict[int, list[tuple[int, int, int]]]:
    """By API the (total time, start, exchange) of its slowest exchanges, the slowest first."""
    order = np.lexsort((keys["exchange"], values["request_first"], -values["total_ns"]))
    columns = (keys["api_key"], values["total_ns"], values["request_first"], keys["exchange"])
    found: dict[int, list[tuple[int, int, int]]] = {}
    for api_key, *row in zip(*(column[order].tolist() for column in columns), strict=True):
        mine = found.setdefault(api_key, [])
        if len(mine) < _KEPT:
            mine.append((row[0], row[1], row[2]))
    return found


def _add_failed(gathered: Gathered, tally: Tally) -> None:
    results = gathered.result_rows
    failed = np.flatnonzero(results["error_code"])
    if not len(failed):
        return
    exchanges = gathered.rows(results.exchange[failed])
    keys = {name: results[name][failed] for name in _RESULT}
    time = np.where(exchanges["response_first"] != NO_TIME, exchanges["response_first"], exchanges["request_first"])
    kinds = np.stack((keys["error_code"].astype(np.int64), exchanges["api_key"].astype(np.int64)))
    # Results of one exchange are in an order that is the same in every run.
    order = np.lexsort((results["partition"][failed], keys["kind"], exchanges["key"], time, *kinds))
    is_first = np.ones(len(order), bool)
    is_first[1:] = (np.diff(kinds[:, order], axis=1) != 0).any(axis=0)
    chosen = order[is_first]
    earliest: dict[tuple[int, int], int] = {}
    for row in dict_rows({name: column for columns in tally.rows(_FAILED.name) for name, column in columns.items()}):
        kind = row["error_code"], row["api_key"]
        earliest[kind] = min(row["at"], earliest.get(kind, row["at"]))
    is_new = [
        moment <= earliest.get((code, api_key), moment)
        for (code, api_key), moment in zip(kinds[:, chosen].T.tolist(), time[chosen].tolist(), strict=True)
    ]
    chosen = chosen[np.array(is_new, bool)]
    if len(chosen):
        mine = {name: column[chosen] for name, column in keys.items()}
        _add(tally, _FAILED, exchanges[chosen], mine, at=time[chosen])


def _add(tally: Tally, of: CountForm, rows: Array, keys: dict[str, Array], **values: Array) -> None:
    keys = {name: rows["key" if name == "exchange" else name] for name in _EXCHANGE} | keys
    tally.add(of.name, keys, {name: rows[name] for name in of.values if name not in values} | values)


def tables(given: SectionInput) -> tuple[ReportTable, ...]:
    """The slowest exchanges, and the first of each error code."""
    return (_slow_table(given), _error_table(given))


def _form_rows(given: SectionInput, of: CountForm) -> list[CountRow]:
    """The rows of a form that are exchanges: not those that were added up."""
    return [row for row in given.count_rows(of.name) if row["api_key"] >= 0]


def _slow_table(given: SectionInput) -> ReportTable:
    kept = {
        exchange
        for mine in _slowest(given.keys(_SLOW.name), given.values(_SLOW.name)).values()
        for _, _, exchange in mine
    }
    # Waits for data or for members would hide the others.
    rows = in_columns(
        COLUMNS, (row for row in _form_rows(given, _SLOW) if row["exchange"] in kept),
        lambda row: (row["waiting_ns"] - row["total_ns"], row["request_first"], row["exchange"]),
    )  # fmt: skip
    notes: tuple[str, ...] = (
        f"The {_KEPT} slowest exchanges of each API, without long polls, in order of total time less the wait for "
        "data or members.",
    )
    if lost := given.counts.total("unanswered") + given.counts.total("response_lost"):
        notes += (f"{counted(lost, 'request has', 'requests have')} no response, and no row here: see timeouts.",)
    return ReportTable("slowest", "Slowest exchanges", COLUMNS, rows, notes, empty="no answered request")


def _error_table(given: SectionInput) -> ReportTable:
    first: dict[tuple[int, int], CountRow] = {}
    for row in sorted(_form_rows(given, _FAILED), key=lambda row: (row["at"], row["exchange"])):
        first.setdefault((row["error_code"], row["api_key"]), row)
    rows = in_columns(ERROR_COLUMNS, first.values())
    notes = ("The first exchange with each error code of each API, in order of time.",)
    return ReportTable("first_errors", "First exchange of each error code", ERROR_COLUMNS, rows, notes, empty="none")


def _name(row: CountRow) -> str | None:
    """What an error code refers to."""
    has_name = row["kind"] in (KIND_GROUP, KIND_RESOURCE) or (row["topic"] < 0 and row["topic_id"] < 0)
    return row.text("name") if has_name else row.context.topic(row["topic"], row["topic_id"])


SECTION = Section(
    "slowest", "Which exchanges are the slowest, which failed first, and in which packets are they?",
    columns={"slowest": COLUMNS, "first_errors": ERROR_COLUMNS}, tables=tables, forms=(_SLOW, _FAILED), read=read,
)  # fmt: skip
