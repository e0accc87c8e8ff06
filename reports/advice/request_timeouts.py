"""Clients that give up at a constant time, although the broker needs longer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED, FETCHES, NO_INT32, UNANSWERED
from kafkatap.kernels.arrays import is_among

from .. import units
from ..batch import Array, rows_of
from ..connection_words import P_KAFKA
from ..counting.count_forms import NUMBER
from ..counting.rollup import api_label
from ..finding_words import sentence
from ..findings import Finding
from ..section_parts.counted import BROKER, CONNECTION, CONNECTIONS, PAIR, Rows, counted, largest, latest, total
from ..section_parts.notable import LONG_NS
from ..section_parts.section import SectionInput
from .parties import broker_party, client_option, client_parties, client_words
from .signature import Signature

#: JoinGroup and SyncGroup have a timeout of their own: that of the rebalance.
_OTHER_TIMEOUT = (11, 14)
#: Of one client. Once or twice may be a client that stops.
_LEAST = 3
#: Waits are the same timeout if they differ from their median by less than this part: clients look at their timers when
#: they poll.
_CONSTANT = 0.15
#: Of the waits of a client.
_SHARE = 0.6
#: Where a client gives up Fetch requests before the broker has to answer them.
_BOTH = "request.timeout.ms, fetch.max.wait.ms (librdkafka: socket.timeout.ms, fetch.wait.max.ms)"
_OF_BOTH = (
    "Set `fetch.max.wait.ms` well below `request.timeout.ms`: Kafka's defaults are 500 ms and 30 s. Without records "
    "the broker answers a Fetch when that time is over, and not before."
)
#: Latest requests of a connection that are kept: more than clients have in flight (max.in.flight is 5).
_SLOTS = 8


def _is_waiting(x: Rows) -> Any:
    """Whether a request took long, or was not answered."""
    is_long = (x.outcome == ANSWERED) & (x.total_ns >= LONG_NS)
    return (is_long | (x.outcome == UNANSWERED)) & ~is_among(x.api_key, _OTHER_TIMEOUT)


def _asked_wait_ms(x: Rows) -> Any:
    """How long the client lets the broker wait for data."""
    is_known = is_among(x.api_key, FETCHES) & (x.max_wait_ms != NO_INT32)
    return np.where(is_known, np.maximum(x.max_wait_ms, 0), 0)


#: The latest such requests of each connection. `done`: 0 without a response.
_WAITS = counted(
    "advice.long-waits", CONNECTION | PAIR, _is_waiting, more={"slot": lambda x: x.correlation_id % _SLOTS},
    newest="asked",
    requests=total(1), asked=largest("request_first"),
    done=latest(lambda x: np.where(x.outcome == ANSWERED, x.response_last, 0)), api_key=latest("api_key"),
    wait_ms=latest(_asked_wait_ms), packet=latest("request_packet_first"),
)  # fmt: skip
#: Of connections that have rows of _WAITS, by their sums: the longest wait is no longer than all.
_CLOSED = counted(
    "advice.closed-by-client", CONNECTION,
    lambda x: ((x.unanswered > 0) | (x.total_ns >= LONG_NS)) & (x.protocol == P_KAFKA) & (x.closed_by == 0),
    of=CONNECTIONS, newest="closed_at", connections=total(1), closed_at=largest("closed_at"),
)  # fmt: skip
_LONGEST = counted(
    "advice.longest", {"api_key": NUMBER} | BROKER, lambda x: _is_waiting(x) & (x.outcome == ANSWERED),
    answered=total(1), total_ns=largest("total_ns"),
)  # fmt: skip


class _GivenUp(NamedTuple):
    """A connection that a client closed while its oldest request waited. `needed_ns`: what the broker needed for it; 0:
    its response was not captured. `wait_ns`: how long the broker was to wait for data, as the request says."""

    api_key: int
    broker: tuple[int, int]
    asked: int
    waited_ns: int
    needed_ns: int
    wait_ns: int
    packet: int


def _given_up(given: SectionInput) -> dict[tuple[int, int], list[_GivenUp]]:
    """By client."""
    ends = given.keys(_CLOSED.name)["connection"], given.values(_CLOSED.name)["closed_at"]
    closed: dict[int, int] = dict(zip(*(column.tolist() for column in ends), strict=True))

    def is_given_up(x: dict[str, Array]) -> Array:
        place = rows_of(ends[0], x["connection"])
        at = np.append(ends[1], 0)[place]
        found: Array = (place >= 0) & (x["asked"] < at) & ((x["done"] <= 0) | (x["done"] > at))
        return found

    oldest: dict[int, dict[str, int]] = {}
    for row in given.rows(_WAITS.name, is_given_up):
        before = oldest.get(row["connection"])
        if before is None or row["asked"] < before["asked"]:
            oldest[row["connection"]] = row
    found: dict[tuple[int, int], list[_GivenUp]] = defaultdict(list)
    for connection, row in oldest.items():
        waited = closed[connection] - row["asked"]
        if waited >= LONG_NS:
            needed = row["done"] - row["asked"] if row["done"] else 0
            broker = row["broker_ip"], row["broker_port"]
            wait = row["wait_ms"] * 1_000_000
            one = _GivenUp(row["api_key"], broker, row["asked"], waited, needed, wait, row["packet"])
            found[row["client_id"], row["client_ip"]].append(one)
    return found


def clients_that_give_up(given: SectionInput) -> set[tuple[int, int]]:
    """The clients with a finding, by the numbers of their client_id and address."""
    return {client for client, *_ in given.once(_cases)}


def _findings(given: SectionInput) -> list[Finding]:
    return [_finding(given, *case) for case in given.once(_cases)]


def _gives_up_waits(same: list[_GivenUp]) -> bool:
    """Whether a client asks the broker to wait for data longer than it waits itself, each time."""
    return min(one.wait_ns for one in same) > max(one.waited_ns for one in same)


def _cases(given: SectionInput) -> Iterator[tuple[tuple[int, int], list[_GivenUp], int, int]]:
    """The clients whose timeout is too short: what they gave up, what the broker needed for it, and for others."""
    longest = {
        (row["api_key"], row["broker_ip"], row["broker_port"]): row["total_ns"] for row in given.rows(_LONGEST.name)
    }
    for client, given_up in _given_up(given).items():
        usual = float(np.median([one.waited_ns for one in given_up]))
        same = sorted(one for one in given_up if abs(one.waited_ns - usual) <= _CONSTANT * usual)
        if len(same) < _LEAST or len(same) < _SHARE * len(given_up):
            continue
        # What the broker needed for these requests, or else for others of the same API.
        needed = max(one.needed_ns for one in same)
        others = max(longest.get((one.api_key, *one.broker), 0) for one in same)
        if _gives_up_waits(same) or max(needed, others) > max(one.waited_ns for one in same):
            yield client, same, needed, others


def _finding(given: SectionInput, client: tuple[int, int], same: list[_GivenUp], needed: int, others: int) -> Finding:
    context, waited = given.context, int(np.median([one.waited_ns for one in same]))
    same = sorted(same, key=lambda one: one.asked)
    apis = ", ".join(sorted({api_label(one.api_key) or "?" for one in same}))
    late = sum(one.needed_ns > 0 for one in same)
    wait = min(one.wait_ns for one in same) if _gives_up_waits(same) else 0
    why = sentence([
        f"its request.timeout.ms is shorter than the {units.duration(wait)} that the broker is to wait for data "
        "(fetch.max.wait.ms)" if wait else None,
        f"the broker answered {late:,} of them later, after up to {units.duration(needed)}" if late else None,
        f"others were answered after up to {units.duration(others)}" if not late and not wait else None,
    ])  # fmt: skip
    text = (
        f"{client_words(context, *client)} gives up after {units.duration(waited)}, {len(same)} times ({apis}): it "
        f"closes the connection and asks again; {why}"
    )
    made = REQUEST_TIMEOUTS.rule.found(
        text, *client_parties(context, *client), broker_party(context, *same[0].broker), begin=same[0].asked,
        end=same[-1].asked + same[-1].waited_ns, packets=(one.packet for one in same[:10]),
        lost=sum(one.waited_ns for one in same), see=[("sections", "timeouts"), *client_option(context, client[0])],
        given_up=len(same), timeout_ns=waited, answered_later=late, needed_ns=needed or None, others_ns=others or None,
    )  # fmt: skip
    numbers = {**made.numbers, "wait_ns": wait}
    return made._replace(setting=_BOTH, remedy=_OF_BOTH, numbers=numbers) if wait else made


REQUEST_TIMEOUTS = Signature(
    "request_timeout",
    "a request timeout shorter than the broker's time",
    "A client closes connection after connection after the same wait, and sends the request again. The broker "
    "answers later, or answers others after more time than the client waits. Or they are Fetch requests with a "
    "longer `max_wait_ms`.",
    "request.timeout.ms (librdkafka: socket.timeout.ms)",
    "Raise `request.timeout.ms` above what the broker needs, at least above fetch.max.wait.ms; Kafka's default is 30 "
    "s. Each attempt costs the broker the same work again.",
    f"a client closed {_LEAST} connections after the same time ({_CONSTANT:.0%} apart at most), and a response of the "
    "broker took longer, or all are Fetch requests whose `max_wait_ms` is longer. Otherwise the broker hangs or the "
    "network loses packets.",
    _findings,
    counts=(_WAITS, _CLOSED, _LONGEST),
    label="timeouts",
)
