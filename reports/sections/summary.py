"""What matters in a report, in at most eleven lines. Each has the command that shows more.

The lines come from the other tables of the report, so they never disagree with these. "Slow" means the same as for
clients (`clients.SLOW_NS`): a 99th percentile of total time of 20 ms, or that mean for what a Fetch waits besides data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from kafkatap.dissector.dtypes import FETCHES, WAITS

from .. import units
from ..batch import Context
from ..counting import tally
from ..counting.connection_counts import connection_totals
from ..counting.counts import ReportCounts
from ..counting.histogram import P99
from ..counting.rollup import api_label, group_columns, roll_up
from ..encryption import NAMED_SHARE
from ..model import Column, ReportTable, Value, as_number
from .clients import SLOW_NS
from .commands import command, is_showable
from .time_shares import Spent, names_of, percent, spent
from .tls_findings import MUCH, tls_findings

COLUMNS = (
    Column(
        "finding",
        "finding",
        "text",
        "slow_api, slow_client, network, throttled, errors, unanswered, not_decoded, tls_failed, "
        "certificate, encrypted, lost; none: nothing is wrong; no_requests: there are no requests",
    ),
    Column("label", "finding", "text", "the finding in words"),
    Column("text", "what was found", "text", "a sentence"),
    Column("api", "API", "text", "API that it is on, if it is one", 9),
    Column("client_id", "client", "text", "client_id that it is on, if it is one", 9),
    Column("command", "more", "text", "command that shows more"),
)

#: Error codes that are part of a usual start: no line names them while there are others.
_USUAL_ERRORS = frozenset((("MEMBER_ID_REQUIRED", "JoinGroup"), ("UNSUPPORTED_VERSION", "ApiVersions")))
NO_REQUESTS = "no Kafka request was found, or none matches the selection"
#: Names in one line at most; the rest is counted.
_NAMED = 3

Row = dict[str, Value]
Options = tuple[tuple[str, str | None], ...]


class Finding(NamedTuple):
    """One line of the summary. `options`: of the command that shows more, which is `kafkatap` with `name`."""

    finding: str
    label: str
    text: str
    options: Options
    api: str | None = None
    client: str | None = None
    name: str = "report"


class Tables(NamedTuple):
    """The tables that the summary is made from."""

    errors: ReportTable
    clients: ReportTable
    not_decoded: ReportTable


def summary(counts: ReportCounts, context: Context, tables: Tables, selected: str | None = None) -> ReportTable:
    """At most eleven rows, the most important first. `selected`: the selection as the user wrote it."""
    slow = _slow_api(counts, context)
    makers: tuple[Callable[[], Finding | None], ...] = (
        lambda: _slow_client(tables.clients, slow),
        lambda: _throttled(tables.clients),
        lambda: _errors(tables.errors),
        lambda: _unanswered(counts, context),
        lambda: _not_decoded(tables.not_decoded),
        lambda: _lost(counts, context, selected is not None),
    )
    found = [finding for finding in (slow, *(make() for make in makers)) if finding is not None]
    last = len(found) - 1 if found and found[-1].finding == "lost" else len(found)
    found[last:last] = [Finding(f.finding, f.label, f.text, (("sections", "tls"),)) for f in tls_findings(context)]
    rows: list[tuple[Value, ...]] = [
        (f.finding, f.label, f.text, f.api, f.client, command(context, selected, f.options, f.name)) for f in found
    ]
    if not _requests(counts):
        rows.insert(0, ("no_requests", "no requests", NO_REQUESTS, None, None, None))
    elif not rows:
        rows = [("none", "all well", _all_well(counts, bool(tables.errors.rows)), None, None, None)]
    return ReportTable("summary", "Summary", COLUMNS, rows, whole=True)


def _rows(table: ReportTable) -> list[Row]:
    names = [c.name for c in table.columns]
    return [dict(zip(names, row, strict=True)) for row in table.rows]


def _requests(counts: ReportCounts) -> int:
    return int(counts.groups.value_rows()[:, :4].sum())


def _all_well(counts: ReportCounts, has_errors: bool) -> str:
    requests = _requests(counts)
    many = "The only request was" if requests == 1 else f"All {requests:,} requests were"
    failed = "failed beyond a usual start" if has_errors else "failed"
    return f"{many} answered, or expected no answer. None was slow, {failed} or throttled, and nothing was lost."


def _client_text(client: Value, before: str = "") -> str:
    """The name of a client. `before`: what a name follows."""
    return "(no client_id)" if client is None else f"{before}{client}" if client else "(empty client_id)"


def _api_value(label: str) -> str:
    """What options and filters call an API: `Fetch`, or `999` for an API without a name."""
    return label.rpartition(" ")[2]


def _client_option(client: Value) -> Options:
    """`--client NAME`, if that selects this client only."""
    text = "" if client is None else str(client)
    return (("client", text if text and is_showable(text) and not set("*?[") & set(text) else None),)


def _counted(n: int, one: str, many: str | None = None) -> str:
    return f"{n:,} {one if n == 1 else many or one + 's'}"


class _ApiTime(NamedTuple):
    """The time of the exchanges of one API, without waits for data and members."""

    key: int
    parts: Spent
    answered: int
    p99: int
    longest: int
    names: tuple[str, ...]

    @property
    def is_slow(self) -> bool:
        if self.key in WAITS:
            return sum(self.parts) >= SLOW_NS * max(self.answered, 1)
        return self.p99 >= SLOW_NS


def _slow_api(counts: ReportCounts, context: Context) -> Finding | None:
    """The slow API that cost the most time, with its parts and the client that has most of it."""
    columns = group_columns(counts.groups, tally.GROUP_KEY)
    keys: list[int] = columns["api_key"].tolist()
    rolled = roll_up(counts.groups, tally.GROUP_VALUES, counts.histograms, [(k,) if k >= 0 else None for k in keys])
    p99 = rolled.percentiles(tally.M_TOTAL, rolled.values["total_max"], (P99,))[:, 0].tolist()
    times = [
        _ApiTime(int(key or 0), _worked(int(key or 0), spent(rolled, i)), int(rolled.values["answered"][i]), p99[i],
                 int(rolled.values["total_max"][i]), names_of(rolled, i))
        for i, (key,) in enumerate(rolled.keys)
    ]  # fmt: skip
    slow = [t for t in times if t.is_slow]
    if not slow:
        return None
    worst = max(slow, key=lambda t: (sum(t.parts), -t.key))
    clients = columns["client_id"].tolist()
    labels: list[tuple[int | str | None, ...] | None] = [
        (context.text(client),) if key == worst.key else None for key, client in zip(keys, clients, strict=True)
    ]
    people = roll_up(counts.groups, tally.GROUP_VALUES, counts.histograms, labels)
    costs = [(sum(_worked(worst.key, spent(people, i))), key[0]) for i, key in enumerate(people.keys)]
    cost, client = max(costs, key=lambda pair: (pair[0], str(pair[1])))
    name = api_label(worst.key)
    total = sum(worst.parts)
    if worst.key in WAITS:
        mean = units.duration(total // max(worst.answered, 1))
        time = f"{mean} on average besides its wait for {'data' if worst.key in FETCHES else 'members'}"
    else:
        time = f"total p99 {units.duration(worst.p99)}, longest {units.duration(worst.longest)}"
    share = percent(cost / total) if total else "0 %"
    whose = f"{'all' if share == '100 %' else share} of it by {_client_text(client, 'client ')}"
    text = f"{name}: {time}; {worst.parts.in_words(worst.names) or 'no time'}; {whose}"
    main = None if client is None else str(client)
    return Finding("slow_api", "slow API", text, (("by", "client"), ("api", _api_value(name))), name, main)


def _worked(api_key: int, parts: Spent) -> Spent:
    """The parts without waits for data and members."""
    return parts._replace(broker=0, hol=0) if api_key in WAITS else parts._replace(hol=0)


def _slow_client(table: ReportTable, slow: Finding | None) -> Finding | None:
    """The client with a lossy network or a slow receiver, or else the slowest one that waits for brokers, unless the
    slow API names it."""
    rows = [row for row in _rows(table) if row["verdict"] in ("network", "client", "broker")]
    blamed = [row for row in rows if row["verdict"] != "broker"]
    if not blamed:
        blamed = [row for row in rows if slow is None or row["client_id"] != slow.client]
    if not blamed:
        return None
    worst = max(blamed, key=lambda row: as_number(row["total_sum_ns"]))
    parts = (
        [] if worst["total_p99_ns"] is None else [f"total p99 {units.duration(int(as_number(worst['total_p99_ns'])))}"]
    )
    parts += [str(worst["evidence"])]
    closed = int(as_number(worst["zero_windows"]))
    if worst["verdict"] == "client":
        parts.append(f"it closed its receive window {_counted(closed, 'time')}")
    if len(blamed) > 1:
        parts.append(f"{_counted(len(blamed) - 1, 'other client')} too")
    client = worst["client_id"]
    is_network = worst["verdict"] == "network"
    title = "slow client" if slow is None or slow.client is None else "also slow"
    return Finding(
        "network" if is_network else "slow_client",
        "network" if is_network else title,
        f"{_client_text(client)}: {'; '.join(parts)}",
        (("by", "client"), *_client_option(client)),
        client=_or_none(client),
    )


def _or_none(value: Value) -> str | None:
    return None if value is None else str(value)


def _throttled(table: ReportTable) -> Finding | None:
    """The client with the longest throttle wait, or else with the most throttled responses."""
    rows = [row for row in _rows(table) if row["throttled"] or row["throttle_wait_sum_ns"]]
    if not rows:
        return None
    worst = max(rows, key=lambda row: (as_number(row["throttle_wait_sum_ns"]), as_number(row["throttled"])))
    wait = units.duration(int(as_number(worst["throttle_wait_sum_ns"])))
    share = as_number(worst["throttle_share"])
    others = f"; {_counted(len(rows) - 1, 'other client')} too" if len(rows) > 1 else ""
    text = (
        f"{_client_text(worst['client_id'])}: {_counted(int(as_number(worst['throttled'])), 'throttled response')}, "
        f"throttle wait {wait}; {percent(share)} of its time is the quota's{others}"
    )
    options = (("by", "client"), *_client_option(worst["client_id"]))
    return Finding("throttled", "throttled", text, options, client=_or_none(worst["client_id"]))


def _errors(table: ReportTable) -> Finding | None:
    """The most frequent error code, with the clients and topics that it hits."""
    rows = [row for row in _rows(table) if (row["error"], row["api"]) not in _USUAL_ERRORS]
    totals: Counter[tuple[Value, Value, Value]] = Counter()
    for row in rows:
        totals[row["error"], row["code"], row["api"]] += int(as_number(row["count"]))
    if not totals:
        return None
    (error, code, api), count = min(totals.items(), key=lambda item: (-item[1], str(item[0])))
    mine = [row for row in rows if (row["error"], row["api"]) == (error, api)]
    clients: Counter[Value] = Counter()
    names: Counter[Value] = Counter()
    for row in mine:
        clients[row["client_id"]] += int(as_number(row["count"]))
        if row["name"] is not None:
            names[row["name"]] += int(as_number(row["count"]))
    client, hits = min(clients.items(), key=lambda item: (-item[1], str(item[0])))
    whom = f"all to {_client_text(client, 'client ')}"
    if len(clients) > 1:
        whom = f"to {len(clients):,} clients, {percent(hits / count)} to {_client_text(client)}"
    where = f" ({_listed([str(name) for name, _ in names.most_common()])})" if names else ""
    others = sum(totals.values()) - count
    rest = f"; {_counted(others, 'time')} another error" if others else ""
    text = f"{_counted(count, 'time')} {error} in {api}{where}, {whom}{rest}"
    value = code if "(no name)" in str(error) else error
    options = (("filter", f"error == {value} and api == {_api_value(str(api))}"),)
    return Finding("errors", "errors", text, options, str(api), _or_none(client), "show")


def _listed(names: list[str]) -> str:
    """The first names, and the number of the rest."""
    left = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {left:,} more" if left > 0 else "")


def _unanswered(counts: ReportCounts, context: Context) -> Finding | None:
    """Requests without a response, by API, and the client that has most of them."""
    columns = group_columns(counts.groups, tally.GROUP_KEY)
    numbers = counts.groups.value_rows()[:, list(tally.GROUP_VALUES).index("unanswered")].tolist()
    apis: Counter[int] = Counter()
    clients: Counter[int] = Counter()
    for key, client, n in zip(columns["api_key"].tolist(), columns["client_id"].tolist(), numbers, strict=True):
        if n:
            apis[key] += n
            clients[client] += n
    if not apis:
        return None
    total = sum(apis.values())
    by_api = _listed(
        [f"{api_label(key)} {n:,}" for key, n in sorted(apis.items(), key=lambda item: (-item[1], item[0]))]
    )
    number, most = max(clients.items(), key=lambda item: (item[1], -item[0]))
    client = context.text(number)
    whose = f"{'all' if most == total else f'{most:,}'} by {_client_text(client, 'client ')}"
    text = f"{_counted(total, 'request has', 'requests have')} no response: {by_api}; {whose}"
    options = (("filter", "outcome == unanswered"),)
    return Finding("unanswered", "unanswered", text, options, client=client, name="show")


def _not_decoded(table: ReportTable) -> Finding | None:
    rows = _rows(table)
    if not rows:
        return None
    names = _listed([f"{row['api']} v{row['api_version']}" for row in rows])
    requests = _counted(sum(int(as_number(row["requests"])) for row in rows), "request")
    text = f"{requests} of versions or APIs without definitions: {names}"
    return Finding("not_decoded", "not decoded", text, (("definitions", "PATH"),), str(rows[0]["api"]))


#: Parts of the ledger that are losses, in a few words: section, part, one, many.
_LOSSES = (
    ("packets", "headers_not_captured", "packet with cut headers", "packets with cut headers"),
    ("packets", "bad_header", "packet with an invalid header", "packets with invalid headers"),
    ("packets", "unknown_link_type", "packet of an unread link type", "packets of an unread link type"),
    ("packets", "fragment", "IP fragment alone", "IP fragments alone"),
    ("packets", "evicted_fragment", "IP fragment evicted", "IP fragments evicted"),
    ("limits", "connections", "connection ended early", "connections ended early"),
    ("limits", "requests", "waiting request given up", "waiting requests given up"),
    ("limits", "gaps", "gap given up", "gaps given up"),
    ("limits", "messages", "message cut", "messages cut"),
    ("limits", "names", "name counted as (other)", "names counted as (other)"),
    ("requests", "response_lost", "response missing", "responses missing"),
    ("responses", "orphan", "response without its request", "responses without their requests"),
    ("requests", "header_not_captured", "request without a header", "requests without headers"),
    ("responses", "header_not_captured", "response without a header", "responses without headers"),
    ("responses", "out_of_order", "response out of order", "responses out of order"),
)
_UNPLACED = (("skipped", "in no message that was found"), ("out_of_window", "outside of the TCP window"))
_RESPONSE_LOST, _ORPHAN = ("requests", "response_lost"), ("responses", "orphan")


def _lost(counts: ReportCounts, context: Context, is_selection: bool) -> Finding | None:
    """What the capture lacks, the gravest first. Of a selection, responses are those that are selected."""
    parts = ["reading was interrupted"] if context.interrupted else []
    damaged = sum(1 for f in context.files if f.damage)
    parts += [_counted(damaged, "damaged file")] if damaged else []
    drops = sum(f.drops or 0 for f in context.files)
    parts += [f"{_counted(drops, 'packet')} dropped during capture"] if drops else []
    connections = connection_totals(context)
    gaps = connections.total("gap_bytes")
    parts += [f"{units.size(gaps)} in gaps"] if gaps else []
    one_sided = connections.total("one_sided")
    parts += [f"{_counted(one_sided, 'connection')} captured in one direction only"] if one_sided else []
    parts += [f"{units.size(context.not_captured)} cut off by the snap length"] if context.not_captured else []
    (unknown,) = _outcomes(counts, "unknown_waits")
    unknown_waits = [f"throttle time or long poll of {_counted(unknown, 'exchange')} unknown"] if unknown else []
    parts += [] if is_selection else unknown_waits
    selected = dict(zip((_RESPONSE_LOST, _ORPHAN), _outcomes(counts, "response_lost", "orphan_response"), strict=True))
    of_selection = unknown_waits if is_selection else []
    for section, part, one, many in _LOSSES:
        if is_selection and section in ("requests", "responses"):
            n = selected.get((section, part), 0)
            of_selection += [_counted(n, one, many)] if n else []
        else:
            n = context.ledger.get(section, {}).get(part, 0)
            parts += [_counted(n, one, many)] if n else []
    payload = context.ledger.get("payload bytes", {})
    for part, words in _UNPLACED:
        n = payload.get(part, 0)
        parts += [f"{units.size(n)} ({units.share(n / payload['total'])}) {words}"] if n else []
    if NAMED_SHARE <= context.encrypted_share < MUCH:
        parts.append(f"{units.share(context.encrypted_share)} of the payload encrypted (TLS), not decrypted")
    if is_selection and parts:
        parts[0] = f"in the whole capture: {parts[0]}"
    texts = [", ".join(texts) for texts in (of_selection, parts) if texts]
    return Finding("lost", "lost", "; ".join(texts), (("v", ""),)) if texts else None


def _outcomes(counts: ReportCounts, *names: str) -> list[int]:
    """The sums of values of the groups."""
    at = [list(tally.GROUP_VALUES).index(name) for name in names]
    sums: list[int] = counts.groups.value_rows()[:, at].sum(axis=0).tolist()
    return sums
