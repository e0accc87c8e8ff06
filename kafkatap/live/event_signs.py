"""`Signs`: whether a look for events (`event_watch`) may find one that the look before did not.

A look reads all rows of the last minutes. Most seconds need none: they bring answers of brokers that answer all the
time, and nothing else. Whatever the rules judge by is a sign: a connection that begins, ends or changes, a row of
counts, an event row, the first answer after a silence. What follows a sign by time alone follows within `AFTER_NS`.
Only what waits may tell something later: requests, while their broker is silent or packets are sent again, and packets
that nothing acknowledges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kafkatap.reports.batch import Array
from kafkatap.reports.section_parts.cluster import ENDS, NODE_ADDRESSES, NODES, codes_of
from kafkatap.reports.sections.error_words import USERS, WORDS
from kafkatap.reports.sections.event_answers import ANSWERS
from kafkatap.reports.sections.event_counts import CONNECTIONS, LINKS, STUCK, TRANSACTIONS
from kafkatap.reports.sections.event_leaders import LEADERS
from kafkatap.reports.sections.event_outages import SILENCE_NS
from kafkatap.reports.sections.event_replicas import IN_SYNC
from kafkatap.reports.sections.slow_times import COUNTS as SLOW_COUNTS
from kafkatap.reports.sections.sufferers import SUFFERED

if TYPE_CHECKING:
    from kafkatap.reports.section_parts.section_counts import SectionCounts

SECOND = 1_000_000_000
#: The longest time that a rule waits after what it judges by: silences of SILENCE_NS, and the answers of the second
#: after a freeze; and a second in which the packets come late.
AFTER_NS = 3 * SECOND
#: Answers that are counted so long after the latest ones are read nevertheless: their bytes waited for others.
_LATE_NS = 5 * SECOND
#: Forms whose rows are signs, not their values: these change with each message that says the same once more.
_BY_ROWS = frozenset(each.name for each in (LEADERS, IN_SYNC, NODES, NODE_ADDRESSES))
#: Forms that say what events cost, or why there is none, and those of connections and answers, which are read here.
_NO_SIGNS = frozenset(
    each.name for each in (*SLOW_COUNTS, SUFFERED, WORDS, USERS, CONNECTIONS, LINKS, STUCK, ENDS, ANSWERS, TRANSACTIONS)
)


class Signs:
    """Of counts of the section `events`. `note` and `read` say what came."""

    def __init__(self, counts: SectionCounts) -> None:
        self._counts = counts
        self._state: tuple[int, ...] = ()
        self._events = 0
        self._codes, self._latest = np.zeros(0, np.int64), np.zeros(0, np.int64)  # of ends of brokers: the last answer
        self._until = 0  # when signs were there last

    def note(self, now: int) -> None:
        """Something came that is a sign."""
        self._until = now + AFTER_NS

    def read(self, now: int) -> None:
        """Read what was counted since the last call."""
        forms = self._counts.forms
        state = tuple(
            len(counts) if name in _BY_ROWS else int(counts.table.value_rows().sum())
            for name, counts in forms.items() if name not in _NO_SIGNS
        )  # fmt: skip
        events = self._counts.noted("events")
        if self._has_silence_ended() or state != self._state or events != self._events:
            self.note(now)
        self._state = state

    def forgot(self) -> None:
        """Event rows were forgotten: that is no sign."""
        self._events = self._counts.noted("events")

    def _has_silence_ended(self) -> bool:
        """Whether a broker answered for the first time, or for the first time after SILENCE_NS."""
        answers = self._counts.forms[ANSWERS.name]
        keys, values = answers.keys(), answers.values()
        since = int(self._latest.max(initial=0)) - _LATE_NS
        rows = np.flatnonzero((values["last"] > since) & (keys["second"] >= 0))
        if not len(rows):
            return False
        codes, last = codes_of(keys["broker_ip"][rows], keys["broker_port"][rows]), values["last"][rows]
        before = np.append(self._latest, 0)[self._places(codes)]
        newer = np.flatnonzero(last > before)
        if not len(newer):
            return False
        # Each end of a broker: its last answer so far, and what came since, in order of time.
        first = np.maximum(values["first"][rows][newer], before[newer])
        codes = np.concatenate((self._codes, codes[newer]))
        first = np.concatenate((self._latest, first))
        last = np.concatenate((self._latest, last[newer]))
        order = np.lexsort((first, codes))
        codes, first, last = codes[order], first[order], last[order]
        ends, at = np.unique(codes, return_inverse=True)
        # Times of one end count from its first answer here, and those of the next one are far later.
        base = first[np.flatnonzero(np.diff(codes, prepend=-2))][at]
        reached = np.maximum.accumulate(np.minimum(last - base, _FAR - 1) + at * _FAR)
        gaps = first[1:] - base[1:] + at[1:] * _FAR - reached[:-1]
        found = len(ends) > len(self._codes) or bool((gaps[at[1:] == at[:-1]] >= SILENCE_NS).any())
        latest = np.zeros(len(ends), np.int64)
        np.maximum.at(latest, at, last)
        kept = np.sort(np.argsort(latest)[-_ENDS:])
        self._codes, self._latest = ends[kept], latest[kept]
        return found

    def _places(self, codes: Array) -> Array:
        """The place of each end of a broker among those that answered, their number: it is none of these."""
        at = np.searchsorted(self._codes, codes)
        is_known = at < np.searchsorted(self._codes, codes, "right")
        found: Array = np.where(is_known, at, len(self._codes))
        return found

    def are_there(self, now: int) -> bool:
        """Whether there was a sign lately."""
        return now <= self._until

    def has_silent(self, exchanges: Array, now: int) -> bool:
        """Whether an end of a broker of these exchanges answered nothing for SILENCE_NS, or never."""
        latest = np.append(self._latest, 0)[self._places(codes_of(exchanges["broker_ip"], exchanges["broker_port"]))]
        return bool((now - latest >= SILENCE_NS).any())


#: Ends of brokers that are known, those that answered last.
_ENDS = 20_000
#: Longer than times between answers that are compared exactly, ns: 19 h. So 2^17 ends of brokers fit into 63 bits.
_FAR = 1 << 46
