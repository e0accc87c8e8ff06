"""Brokers that freeze again and again for less than a second: garbage collection, a disk that blocks, a host without
processor time.

A freeze is a time without any answer of a broker, after which the requests of several clients are answered together.
One of them, at least, is answered at once otherwise: no quota, quorum or follower is the reason. No packets were sent
again, and other brokers answered meanwhile, or requests came: so neither the path nor the capture was silent. Longer
silences are events of their own (`event_outages`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from kafkatap.kernels.arrays import distinct_values, groups_of, is_among

from ..batch import Array
from ..counting.count_table import EMPTY, MIN
from ..finding_words import counted
from ..findings import NOTICED_NS, Finding, Party, Rule
from ..parties import has_own_name
from ..section_parts.notable import LONG_NS, SLOW_NS
from ..units import duration
from .event_answers import SECOND, SLOT_NS
from .event_timeline import Seen
from .late_answers import LATE

_FROZE = Rule(
    "broker_froze", "broker froze", command="show",
    remedy="look for pauses of garbage collection, a slow disk and processors that others use, at the broker's times",
)  # fmt: skip
#: TCP repeats what is not acknowledged after 200 ms at the earliest. From then on the kernel's part is known.
FREEZE_NS = 2 * LONG_NS
#: A silence of this length is an event of its own.
_MOST_NS = SECOND
#: Answers that come within this after a freeze come together: a broker works off what has come meanwhile.
_TOGETHER_NS = LONG_NS
#: From how many freezes on they are no chance, and how many clients wait for each.
_TIMES, _SEVERAL = 3, 2
#: Freezes explain the slow requests at a broker if they have most of their time. If most answers are late, it is slow.
_MOST = 0.5
_SLOTS = SECOND // SLOT_NS
_NEVER = EMPTY[MIN]


class Freeze(NamedTuple):
    """From `begin`, when the first request waited, to `end`, the first answer. `since`: the slot of the last answer
    before. `rows`: of LATE, what it made late."""

    since: int
    begin: int
    end: int
    rows: Array
    others_answered: bool

    @property
    def ns(self) -> int:
        return self.end - self.begin


def freezes(seen: Seen) -> Iterator[Finding]:
    """A finding for each broker that freezes again and again."""
    late = seen.columns(LATE.name, "slot")
    people = [n for n in distinct_values(late["client_id"]).tolist() if not has_own_name(seen.context.text(n))]
    late = seen.of(late, is_among(late["client_id"], people))
    late["client"] = (late["client_ip"] << 32) + late["client_id"]
    every: Array | None = None
    for (broker,), rows in groups_of(late["broker"]):
        mine = seen.of(late, np.sort(rows))
        waits = seen.of(mine, mine["asked"] != _NEVER)
        if len(distinct_values(waits["client"])) < _SEVERAL:
            continue
        silences = list(_silences(_slots_of(seen, seen.answers_of(broker)), waits["slot"]))
        if len(silences) < _TIMES:
            continue
        if every is None:
            every = _slots_of(seen, np.arange(len(seen.answers["slots"])))
        others = Others(every, late)
        found = [freeze for silence in silences if (freeze := _freeze(mine, others, *silence)) is not None]
        if len(found) >= _TIMES and _is_rule(seen, broker, mine, found):
            yield _finding(seen, broker, mine, found)


class Others(NamedTuple):
    """What other brokers did meanwhile. `answers`: the slots with answers of any broker; `late`: the rows of all."""

    answers: Array
    late: dict[str, Array]

    def answered(self, before: int, after: int) -> bool:
        """Whether any broker answered between two slots, in which the one that is looked at did not."""
        return bool(np.searchsorted(self.answers, before + 1) < np.searchsorted(self.answers, after))

    def waited(self, broker: int, since: int, after: int) -> bool:
        """Whether requests to others had waited since a time (ns), and were answered in a slot or the second after."""
        near = slice(*np.searchsorted(self.late["slot"], (after, after + _SLOTS)))
        return bool(((self.late["broker"][near] != broker) & (self.late["asked"][near] <= since)).any())


def _slots_of(seen: Seen, rows: Array) -> Array:
    """The slots of some answers, ascending: int64 (n,), by the number of slots since the epoch."""
    seconds, at = np.unique(seen.answers["second"][rows], return_inverse=True)
    bits = np.zeros(len(seconds), np.int64)
    np.bitwise_or.at(bits, at, seen.answers["slots"][rows])
    second, slot = np.nonzero(bits[:, None] >> np.arange(_SLOTS) & 1)
    found: Array = seconds[second] * _SLOTS + slot
    return found


def _silences(slots: Array, late: Array) -> Iterator[tuple[int, int]]:
    """The slots before and after each silence of FREEZE_NS or more after which late answers came. `late`: the slots of
    these."""
    gaps = np.flatnonzero((np.diff(slots) - 1) * SLOT_NS >= FREEZE_NS)
    last = np.searchsorted(late, slots[gaps + 1] + _TOGETHER_NS // SLOT_NS, "right")
    is_hit = last > np.searchsorted(late, slots[gaps + 1])
    for gap in gaps[is_hit].tolist():
        yield int(slots[gap]), int(slots[gap + 1])


def _freeze(late: dict[str, Array], others: Others, before: int, after: int) -> Freeze | None:
    """`late`: of a broker. `before`, `after`: the slots with answers around a silence. None: something else explains
    it."""
    since, until = (before + 1) * SLOT_NS, after * SLOT_NS
    near = np.arange(*np.searchsorted(late["slot"], (after, after + _SLOTS)))
    is_soon = late["slot"][near] <= after + _TOGETHER_NS // SLOT_NS
    has_waited = late["asked"][near] <= until - LONG_NS
    rows, waited = near[is_soon], near[is_soon & has_waited]
    clients = set(late["client"][waited].tolist())
    left = set(late["client"][near[~is_soon & has_waited]].tolist()) - clients
    if len(clients) < _SEVERAL or len(left) >= len(clients) or late["is_lossy"][rows].any():
        return None
    end = int(late["answered"][waited].min())
    begin = max(since, int(late["asked"][waited].min()))
    if not LONG_NS <= end - begin < _MOST_NS or late["prompt_ns"][waited].max() < LONG_NS:
        return None
    others_answered = others.answered(before, after)
    asked_meanwhile = bool((late["latest"][rows] > begin + SLOW_NS).any())
    if not others_answered:
        broker = int(late["broker"][rows[0]])
        if not asked_meanwhile or others.waited(broker, until - LONG_NS, after):
            return None
    return Freeze(before * SLOT_NS, begin, end, rows, others_answered)


def _is_rule(seen: Seen, broker: int, late: dict[str, Array], found: Sequence[Freeze]) -> bool:
    """Whether freezes are most of what is late at a broker, and not all that it answers is. `late`: of the broker."""
    begin, end = found[0].begin, found[-1].end
    rows = np.concatenate([freeze.rows for freeze in found])
    if late["ns"][rows].sum() < max(NOTICED_NS, _MOST * late["ns"].sum()):
        return False
    answers = seen.of(seen.answers, seen.answers_of(broker))
    clients = distinct_values(late["client"][rows])
    theirs = is_among((answers["client_ip"] << 32) + answers["client_id"], clients)
    theirs &= (answers["last"] >= begin - SECOND) & (answers["first"] <= end + SECOND)
    return bool(late["requests"][rows].sum() <= _MOST * answers["answers"][theirs].sum())


def _finding(seen: Seen, broker: int, late: dict[str, Array], found: Sequence[Freeze]) -> Finding:
    rows = np.concatenate([freeze.rows for freeze in found])
    begin, end = found[0].begin, found[-1].end
    lengths, total = [freeze.ns for freeze in found], sum(freeze.ns for freeze in found)
    clients = distinct_values(late["client"][rows])
    hosts = distinct_values(late["client_ip"][rows])
    longest: dict[str, int] = {}
    for number, ns in zip(late["client_id"][rows].tolist(), late["longest_ns"][rows].tolist(), strict=True):
        name = seen.context.text(number)
        if name is not None:
            longest[name] = max(ns, longest.get(name, 0))
    others = sum(freeze.others_answered for freeze in found)
    parts = [
        f"{seen.brokers.label(broker)} froze {len(found):,} times in {duration(end - begin)}, "
        f"{duration(min(lengths))} to {duration(max(lengths))} each, {duration(total)} in all",
        f"{counted(len(clients), 'client')} of {counted(len(hosts), 'host')} waited at once",
        "its kernel acknowledged what came",
    ]
    parts += ["other brokers answered meanwhile"] if others > _MOST * len(found) else []
    return _FROZE.found(
        "; ".join(parts), seen.brokers.party(broker),
        *(Party("client", name) for name, _ in sorted(longest.items(), key=lambda one: (-one[1], one[0]))),
        begin=begin, end=end, packets=[int(late["packet"][freeze.rows].min()) for freeze in found[:10]],
        lost=int(late["ns"][rows].sum()), see=seen.shown(broker, begin, end),
        times=len(found), least_freeze_ns=min(lengths), longest_freeze_ns=max(lengths), sum_freeze_ns=total,
        sum_silence_ns=sum(freeze.end - freeze.since for freeze in found),
        requests=int(late["requests"][rows].sum()), clients=len(clients), hosts=len(hosts),
        longest_wait_ns=max(longest.values(), default=0), others_answered=others,
    )  # fmt: skip
