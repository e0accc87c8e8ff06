"""What each client does: rates of its requests, settings of its Fetches, identity, groups, and whether it is idle.

A client is a client_id and an address. `finding` names what floods brokers, with its rate: Metadata for all topics,
Fetches that do not wait or are empty, commits, connections that are not used again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED, NO_INT32, NO_TIME

from .. import units
from ..batch import Array, Context
from ..counting.connection_counts import KEY, VALUES, connection_totals
from ..counting.count_forms import NUMBER, OTHER, TEXT
from ..counting.rollup import group_columns
from ..counting.tally import GROUP_KEY
from ..model import Column, ReportTable, Row, in_columns, largest_first
from ..section_parts.counted import CLIENT, KEPT, Rows, counted, largest, least, once, total
from ..section_parts.gathered import Gathered
from ..section_parts.section import Section, SectionInput

COLUMNS = (
    Column("client_id", "client", "text", "client_id of the requests"),
    Column("address", "address", "text", "IP address of the client", end="client"),
    Column("software", "software", "texts", "names and versions of the client software (KIP-511)", 3),
    Column("principal", "principal", "texts", "user names in SASL tokens (PLAIN, SCRAM), with their mechanism", 3),
    Column("mechanisms", "SASL", "texts", "SASL mechanisms of handshakes", 4),
    Column("tls_connections", "TLS", "count",
           "connections of the address that use TLS; requests of those that were not decrypted are unknown", 4),
    Column("groups", "groups", "texts", "groups in its requests", 2),
    Column("transactional_ids", "transac-\ntional ids", "texts", "transactional ids in its requests", 4),
    Column("first", "first", "time", "its first request", 3),
    Column("last", "last", "time", "its last request", 4),
    Column("idle_ns", "idle", "ns", "time from its last request to the end of the capture, or of the selected time",
           1),
    Column("requests", "requests", "count", "requests"),
    Column("requests_per_second", "mean/s", "number", "requests a second, from its first to its last request", 1),
    Column("busiest_second", "most/s", "count", "requests in its busiest second (of the clock)"),
    Column("metadata", "Meta-\ndata", "count", "Metadata requests", 3, apis=(3,)),
    Column("metadata_all", "for all\ntopics", "count", "Metadata requests for all topics", 1, apis=(3,)),
    Column("fetches", "Fetch", "count", "Fetch requests", 2, apis=(1,)),
    Column("empty_fetches", "empty", "share", "answered Fetches without records", 2, apis=(1,)),
    Column("fetch_settings", "max.wait min.bytes max.bytes", "text", "settings of most of its Fetches", 3),
    Column("commits", "commits", "count", "OffsetCommit requests", 3, apis=(8,)),
    Column("commits_per_second", "com-\nmits/s", "number", "OffsetCommit requests a second", 4, apis=(8,)),
    Column("connections", "conns", "count", "TCP connections whose last client_id this is", 2),
    Column("api_versions", "ApiVer-\nsions", "count", "ApiVersions requests; usually one for each connection", 3),
    Column("finding", "finding", "text", "what floods the brokers"),
)  # fmt: skip
_METADATA, _FETCH, _COMMIT, _API_VERSIONS = 3, 1, 8, 18


@once
def _is_request(x: Rows) -> Any:
    return x.request_first != NO_TIME


def _is_for_all(x: Rows) -> Any:
    topics = x.top("metadata", "length", 1)
    return (x.api_key == _METADATA) & ((topics == -1) | ((topics == 0) & (x.api_version == 0)))


@once
def _is_answered(x: Rows) -> Any:
    return (x.api_key == _FETCH) & (x.outcome == ANSWERED)


def _has_records(gathered: Gathered) -> Array:
    has_records = np.zeros(len(gathered), bool)
    has_records[gathered.facts("fetched batch").exchange] = True
    return has_records


CLIENTS = counted(
    "clients.requests", CLIENT, _is_request,
    requests=total(1), metadata=total(lambda x: x.api_key == _METADATA), metadata_all=total(_is_for_all),
    fetches=total(lambda x: x.api_key == _FETCH), answered=total(_is_answered),
    empty=total(lambda x: _is_answered(x) & ~x.each(_has_records)), commits=total(lambda x: x.api_key == _COMMIT),
    api_versions=total(lambda x: x.api_key == _API_VERSIONS),
    first=least("request_first"), last=largest("request_first"),
)  # fmt: skip
#: Columns that are values of CLIENTS.
_AS_COUNTED = ("first", "last", "requests", "metadata", "metadata_all", "fetches", "commits", "api_versions")
SECONDS = counted(
    "clients.seconds", CLIENT, _is_request, more={"second": lambda x: x.request_first // units.SECOND},
    requests=total(1),
)  # fmt: skip
SETTINGS = counted(
    "clients.fetches", CLIENT | {"max_wait_ms": NUMBER, "min_bytes": NUMBER},
    lambda x: _is_request(x) & (x.api_key == _FETCH), more={"max_bytes": lambda x: x.top("fetch", "max_bytes")},
    fetches=total(1),
)  # fmt: skip
GROUP, TRANSACTIONAL_ID, PRINCIPAL, MECHANISM = range(4)
_NAME_COLUMNS = ("group", "transactional_id", "principal", "mechanism")
_NAMED = {
    **dict.fromkeys((
        "commit", "heartbeat", "join group", "sync group", "consumer heartbeat", "share heartbeat", "share fetch",
        "streams heartbeat", "transaction commit",
    ), GROUP),
    **dict.fromkeys(("init producer", "produce", "end transaction"), TRANSACTIONAL_ID),
    "principal": PRINCIPAL, "sasl handshake": MECHANISM,
}  # fmt: skip


def _name(x: Rows) -> Any:
    return x[_NAME_COLUMNS[_NAMED[x.fact]]]


#: The names that clients say. `what`: GROUP, TRANSACTIONAL_ID, PRINCIPAL or MECHANISM.
NAMES = counted(
    "clients.names", CLIENT | {"what": NUMBER, "name": TEXT}, lambda x: _name(x) >= 0, of=tuple(_NAMED),
    more={"what": lambda x: _NAMED[x.fact], "name": _name}, other={"what": KEPT, "name": OTHER}, requests=total(1),
)  # fmt: skip
COUNTS = (CLIENTS, SECONDS, SETTINGS, NAMES)
#: Rates a second from which on something is a flood.
ALL_TOPICS_RATE, METADATA_RATE, FETCH_RATE, COMMIT_RATE, CONNECTION_RATE = 1.0, 10.0, 20.0, 10.0, 1.0
EMPTY_SHARE, SHORT_WAIT_MS, REUSE, LEAST = 0.9, 10, 3, 10


Client = tuple[int, int]


class _Known:
    """Facts about clients besides their counts: software, user, groups, settings of Fetch."""

    def __init__(self, given: SectionInput) -> None:
        self.busiest: dict[Client, int] = defaultdict(int)
        self.settings: dict[Client, list[tuple[int, int, int, int]]] = defaultdict(list)  # fetches and the settings
        self.names: dict[tuple[Client, int], set[str]] = defaultdict(set)
        self.connections: dict[Client, int] = defaultdict(int)
        self.tls: dict[int, int] = defaultdict(int)  # connections by address
        self.software: dict[Client, set[str]] = defaultdict(set)
        context = given.context
        for row in given.rows(SECONDS.name):
            if row["second"] >= 0:
                self.busiest[_client(row)] = max(self.busiest[_client(row)], row["requests"])
        for row in given.rows(SETTINGS.name):
            shown = row["max_wait_ms"], row["min_bytes"], row["max_bytes"]
            self.settings[_client(row)].append((row["fetches"], *shown))
        for row in given.rows(NAMES.name):
            self.names[_client(row), row["what"]].add(context.text(row["name"]) or "")
        self._add_connections(context)
        groups = group_columns(given.counts.groups, GROUP_KEY)
        columns = (groups[name].tolist() for name in ("client_id", "client_ip", "software", "software_version"))
        for who in zip(*columns, strict=True):
            self._add_software(context, *who)

    def _add_connections(self, context: Context) -> None:
        counted = connection_totals(context)
        keys = group_columns(counted.table, KEY)
        columns = [keys[name].tolist() for name in KEY]
        values = counted.table.value_rows()[
            :, [list(VALUES).index(n) for n in ("connections", "tls_connections")]
        ].tolist()
        for client_id, ip, software, version, _, _, (connections, tls) in zip(*columns, values, strict=True):
            self.connections[client_id, ip] += connections
            self._add_software(context, client_id, ip, software, version)
            self.tls[ip] += tls

    def _add_software(self, context: Context, client_id: int, ip: int, name: int, version: int) -> None:
        if name >= 0:
            self.software[client_id, ip].add(f"{context.text(name)} {context.text(version) or ''}".rstrip())


def _client(row: Mapping[str, int]) -> Client:
    return row["client_id"], row["client_ip"]


def tables(given: SectionInput) -> tuple[ReportTable, ...]:
    """Rows by requests."""
    known = _Known(given)
    end = given.context.last
    if end is not None and given.selected is not None and given.selected.span is not None:
        end = min(end, given.selected.span[1])  # what was left out may have been sent later
    found = (
        _row(given.context, known, _client(row), row, end)
        for row in given.rows(CLIENTS.name) if row["requests"]
    )  # fmt: skip
    rows = largest_first(COLUMNS, in_columns(COLUMNS, found), "requests", then=("client_id", "address"))
    notes = (
        "most/s: requests in the busiest second. idle: since its last request, until the end of the "
        "capture, or of the selected time.",
    )
    return (ReportTable("client_activity", "Activity of clients", COLUMNS, rows, notes, empty="no requests"),)


def _row(context: Context, known: _Known, client: Client, v: dict[str, int], end: int | None) -> Row:
    seconds = max((v["last"] - v["first"]) / units.SECOND, 1.0)
    settings = max(known.settings.get(client, ()), default=None)
    names = {what: tuple(sorted(known.names.get((client, what), ()))) for what in range(4)}
    connections = known.connections.get(client, 0)
    return {
        "client_id": context.text(client[0]), "address": context.address(client[1]),
        "software": tuple(sorted(known.software.get(client, ()))),
        "principal": names[PRINCIPAL], "mechanisms": names[MECHANISM],
        "tls_connections": known.tls.get(client[1], 0),
        "groups": names[GROUP], "transactional_ids": names[TRANSACTIONAL_ID],
        "idle_ns": max(end - v["last"], 0) if end is not None else None,
        "requests_per_second": v["requests"] / seconds, "busiest_second": known.busiest.get(client, 0),
        "empty_fetches": v["empty"] / v["answered"] if v["answered"] else None,
        "fetch_settings": _settings_text(settings), "commits_per_second": v["commits"] / seconds,
        "connections": connections, "finding": "; ".join(findings(v, seconds, settings, connections)) or None,
        **{name: v[name] for name in _AS_COUNTED},
    }  # fmt: skip


def _settings_text(settings: tuple[int, int, int, int] | None) -> str | None:
    """`500 ms, 1 B, 50.0 MiB`"""
    if settings is None:
        return None
    _, wait, least, most = settings
    parts = [f"{wait} ms" if wait > NO_INT32 else "-", units.size(least) if least > NO_INT32 else "-"]
    return ", ".join([*parts, units.size(most) if most > 0 else "-"])


def findings(
    v: Mapping[str, int], seconds: float, settings: tuple[int, int, int, int] | None, connections: int
) -> list[str]:
    """What a client floods brokers with. `v`: values of CLIENTS; `seconds`: over how long."""
    found = []
    if v["metadata_all"] >= LEAST and v["metadata_all"] / seconds >= ALL_TOPICS_RATE:
        found.append(f"{_rate(v['metadata_all'], seconds)} Metadata requests/s for all topics")
    elif v["metadata"] / seconds >= METADATA_RATE:
        found.append(f"{_rate(v['metadata'], seconds)} Metadata requests/s")
    if settings is not None and v["fetches"] / seconds >= FETCH_RATE:
        wait, empty = settings[1], v["empty"] / max(v["answered"], 1)
        if wait < SHORT_WAIT_MS or empty >= EMPTY_SHARE:
            share = f", {units.share(empty)} empty" if v["empty"] else ""
            found.append(f"{_rate(v['fetches'], seconds)} Fetches/s with max.wait {wait} ms{share}")
    if v["commits"] >= LEAST and v["commits"] / seconds >= COMMIT_RATE:
        found.append(f"{_rate(v['commits'], seconds)} commits/s")
    if connections >= LEAST and connections / seconds >= CONNECTION_RATE and v["requests"] < REUSE * connections:
        found.append(
            f"{_rate(connections, seconds)} connections/s with {v['requests'] / connections:.1f} requests each"
        )
    return found


def _rate(count: int, seconds: float) -> str:
    rate = count / seconds
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"


SECTION = Section(
    "clients", "Who floods the brokers with requests, and who is idle?",
    columns={"client_activity": COLUMNS}, tables=tables, facts=("metadata", "fetch", "fetched batch"), counts=COUNTS,
)  # fmt: skip
