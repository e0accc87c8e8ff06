"""Events of clients: a quota begins to bite, a storm of connections, connections that are never closed."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from kafkatap.kernels.arrays import distinct_values, groups_of, is_among

from ..batch import Array
from ..finding_words import counted
from ..findings import NOTE, Finding, Party, Rule
from ..section_parts.notable import SLOW_NS
from ..units import duration
from .connections import STORM_RATE
from .event_answers import SECOND
from .event_timeline import Burst, Seen, around, bursts

_QUOTA = Rule("quota_began", "quota", command="show")
_STORM = Rule("connection_storm", "storm")
_LEAK = Rule(
    "connection_leak", "leak", remedy="close each client when it is no longer used, or use one for all",
)  # fmt: skip
_DROPPED, _HOLE = Rule("capture_dropped", "capture lost", NOTE), Rule("capture_hole", "capture lost", NOTE)
#: Throttled responses that are farther apart are two events: Kafka's quotas are of the last 11 s (quota.window.num
#: times quota.window.size.seconds).
_QUOTA_NS = 11 * SECOND
#: A client that was throttled before the capture is throttled again within this.
_BEFORE_NS = SECOND
#: A client needs about two connections for each broker, for requests and for its coordinator. A leak is more than
#: twice that. Fewer than so many are neither a leak nor a storm: a client that starts again in a small cluster.
_MANY, _NEEDED = 20, 4
#: A leak goes on: there are more open connections after each of so many equal times until the capture ends.
_PARTS = 5


def client_events(seen: Seen) -> list[Finding]:
    return [*_throttled(seen), *_storms(seen), *_leaks(seen)]


def _throttled(seen: Seen) -> Iterator[Finding]:
    """Clients whose responses begin to be throttled."""
    for burst in bursts(seen.throttled, _QUOTA_NS, "client_ip", "client_id"):
        begin, last, client = burst.begin, burst.last, (int(burst["client_id"][0]), int(burst["client_ip"][0]))
        responses, most = burst.total("responses"), int(burst["ms"].max())
        if (begin - seen.begin < _BEFORE_NS and _was_here(seen, *client)) or most * 1_000_000 < SLOW_NS:
            continue
        text = (
            f"{seen.client_name(*client)} exceeds a quota: {counted(responses, 'throttled response')}"
            f"{f' in {duration(last - begin)}' if responses > 1 else ''}, "
            f"throttle time up to {duration(most * 1_000_000)}"
        )
        yield _QUOTA.found(
            text, seen.client_party(*client), begin=begin, end=None if seen.end - last < _QUOTA_NS else last,
            packets=[burst.packet], see=(*around(begin, last), ("filter", "throttle > 0ms")),
            responses=responses, throttle_time_ms=most,
        )  # fmt: skip


def _was_here(seen: Seen, client_id: int, client_ip: int) -> bool:
    """Whether a client had connections before the capture began, or none is known."""
    links = seen.connections
    mine = (links["client_ip"] == client_ip) & (links["client_id"] == client_id)
    return bool(links["seen"][mine].any()) or not links["opened"][mine].any()


def _storms(seen: Seen) -> Iterator[Finding]:
    """Clients that open many connections in a second, most of which do not live."""
    columns = seen.connections
    tried = columns["opened"] + columns["refused"] + columns["unanswered"]
    closes = columns["client_closed"] + columns["broker_closed"] + columns["refused"] + columns["unanswered"]
    for client_ip, client_id, of_client in _busy_clients(columns, tried):
        seconds, at = np.unique(columns["second"][of_client], return_inverse=True)
        opened = np.bincount(at, weights=tried[of_client]).astype(np.int64)
        gone = np.bincount(at, weights=closes[of_client]).astype(np.int64)
        is_busy = opened >= STORM_RATE
        beside = np.zeros(len(seconds) + 2, bool)  # a storm may begin or end in the middle of a second
        beside[:-2] |= is_busy
        beside[2:] |= is_busy
        busy = np.flatnonzero(is_busy | (beside[1:-1] & (2 * opened >= STORM_RATE)))
        for run in np.split(busy, np.flatnonzero(np.diff(seconds[busy]) > 1) + 1):
            if not len(run):
                continue
            low, high = int(seconds[run[0]]), int(seconds[run[-1]])
            count = int(opened[run].sum())
            lived = (seconds >= low) & (seconds <= high + 1)
            if count < _MANY or 2 * int(gone[lived].sum()) < count:
                continue
            second = columns["second"][of_client]
            rows = of_client[(second >= low) & (second <= high) & (tried[of_client] > 0)]
            yield _storm(seen, client_id, client_ip, rows, tried, count)


def _busy_clients(columns: dict[str, Array], tried: Array) -> Iterator[tuple[int, int, Array]]:
    """The clients with a second in which they opened STORM_RATE connections: their address, id, and rows. Of many
    thousand clients these are few."""
    _, client = np.unique((columns["client_ip"] << 32) + columns["client_id"], return_inverse=True)
    seconds = columns["second"] - columns["second"].min(initial=0)
    codes, at = np.unique(client * (seconds.max(initial=0) + 1) + seconds, return_inverse=True)
    is_busy = np.bincount(at, weights=tried, minlength=len(codes)) >= STORM_RATE
    rows = np.flatnonzero(is_among(client, distinct_values(client[is_busy[at]])))
    for (client_ip, client_id), found in groups_of(columns["client_ip"][rows], columns["client_id"][rows]):
        yield client_ip, client_id, rows[found]


def _storm(seen: Seen, client_id: int, client_ip: int, rows: Array, tried: Array, count: int) -> Finding:
    burst = Burst(seen.connections, rows)
    brokers, inverse = np.unique(burst["broker"], return_inverse=True)
    main, refused = int(brokers[np.argmax(np.bincount(inverse, weights=tried[rows]))]), burst.total("refused")
    within = duration(burst.last - burst.begin)
    text = f"{seen.client_name(client_id, client_ip)} opened {count:,} connections within {within}, "
    text += f"most to {seen.brokers.label(main)}"
    text += f"; {refused:,} refused" if refused else "; most were closed at once"
    return _STORM.found(
        text, seen.client_party(client_id, client_ip), seen.brokers.party(main), begin=burst.begin, end=burst.last,
        packets=[burst.packet], see=[("sections", "connections")], connections=count, refused=refused,
    )  # fmt: skip


def _leaks(seen: Seen) -> Iterator[Finding]:
    """Clients with more and more open connections until the capture ends. Clients whose ids differ in numbers only,
    as those of the Java client do, are one."""
    context, most = seen.context, max(_MANY, _NEEDED * int(seen.brokers.has_answered.sum()))
    columns = _of_many_opened(seen.connections, most)
    ids = distinct_values(columns["client_id"])
    stems = {n: re.sub(r"\d+", "*", context.text(n) or "") for n in ids.tolist()}
    numbers = {stem: i for i, stem in enumerate(sorted(set(stems.values())))}
    stem_of = np.array([numbers[stems[n]] for n in ids.tolist()], np.int64)[np.searchsorted(ids, columns["client_id"])]
    for (client_ip, stem), rows in groups_of(columns["client_ip"], stem_of):
        opened = int(columns["opened"][rows].sum())
        closed = int((columns["client_closed"] + columns["broker_closed"])[rows].sum())
        if opened - closed < most:
            continue
        begun = Burst(columns, rows[columns["opened"][rows] > 0])
        begin, last = begun.begin, begun.last
        edges = np.linspace(begin, seen.end, _PARTS + 1)
        change = columns["opened"] - columns["client_closed"] - columns["broker_closed"]
        if (np.histogram(columns["last"][rows], edges, weights=change[rows])[0] <= 0).any():
            continue
        name, host = sorted(numbers)[stem], context.address(client_ip) or "?"
        text = (
            f'"{name}" ({host}) opened {opened:,} connections within {duration(last - begin)} and closed '
            f"{closed:,}: {opened - closed:,} are open at the end"
        )
        yield _LEAK.found(
            text, Party("client", name), Party("host", host), begin=begin, packets=[begun.packet],
            see=[("sections", "connections")], opened=opened, closed=closed, open=opened - closed,
            clients=len(distinct_values(begun["client_id"])),
        )  # fmt: skip


def _of_many_opened(columns: dict[str, Array], most: int) -> dict[str, Array]:
    """The rows of the hosts that opened so many connections."""
    hosts, at = np.unique(columns["client_ip"], return_inverse=True)
    is_many = np.bincount(at, weights=columns["opened"], minlength=len(hosts)) >= most
    return {name: values[is_many[at]] for name, values in columns.items()}


def note_losses(seen: Seen) -> Iterator[Finding]:
    """Packets that the capture itself lost."""
    for file in seen.context.files:
        if file.drops and file.first is not None:
            text = f"{file.drops:,} packets were dropped during capture: what these had is not in the report"
            yield _DROPPED.found(text, begin=file.first, end=file.last, packets=[file.first_packet],
                                 see=[("ledger", "")], dropped_packets=file.drops)  # fmt: skip
    yield from _holes(seen)


def _holes(seen: Seen) -> Iterator[Finding]:
    """Times between two files without a packet of any connection, while connections go on."""
    files = sorted((f for f in seen.context.files if f.first is not None and f.last is not None),
                   key=lambda f: f.first or 0)  # fmt: skip
    reached = 0
    for file in files:
        assert file.first is not None
        assert file.last is not None
        if reached and file.first - reached >= _HOLE_NS and _goes_on(seen, reached, file.first):
            text = f"no packets were captured for {duration(file.first - reached)}, though connections went on"
            yield _HOLE.found(text, begin=reached, end=file.first, packets=[file.first_packet],
                              see=[("ledger", "")], hole_ns=file.first - reached)  # fmt: skip
        reached = max(reached, file.last)


#: Files without a packet for this long between them have a hole, if there were answers each second before it.
_HOLE_NS = 2 * SECOND


def _goes_on(seen: Seen, begin: int, end: int) -> bool:
    """Whether there were answers in the second before and in the second after a time."""
    first, last = seen.answers["first"], seen.answers["last"]
    before = ((last >= begin - SECOND) & (last <= begin)).any()
    return bool(before and ((first >= end) & (first <= end + SECOND)).any())
