"""Label values of metrics, bounded: busy names have series of their own, the rest is "other".

A store of counters needs few series, and series that last and never go backwards. So a name keeps its slot for at least
STAY seconds. Then another name may replace it, if that was seen in LASTING seconds and is more than OUTGROWN times as
busy, by a decaying count. Counts of a name without a slot go to "other" and stay there. Only new counts are added to a
series, so no series goes backwards. A name that returns starts at zero, which `rate` and `increase` handle as a reset.

Memory is bounded whatever is on the wire: `limit` slots, and CANDIDATES times as many waiting names, each cut to WIDTH
columns. There are at most `limit` replacements in STAY seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest

import numpy as np

from kafkatap.reports.batch import Array
from kafkatap.reports.units import cut, safe

#: Brokers with series of their own, at most.
BROKERS = 100
#: The label value of all names without a slot of their own.
OTHER = "other"
#: The label value of null.
NULL = "-"
#: Seconds for which a name keeps its slot.
STAY = 600
#: Seconds in which a name must have been seen to replace another.
LASTING = 10
OUTGROWN = 2.0
CANDIDATES = 4
#: The decay of a count per second: half is left after a minute.
DECAY = 0.5 ** (1 / 60)
WIDTH = 128


def label(text: str | None) -> str:
    """A text from the wire as a label value: escaped, not too long, NULL for null. If the text equals NULL or OTHER,
    its first character is escaped."""
    if text is None:
        return NULL
    if text in (NULL, OTHER):
        return f"\\x{ord(text[0]):02x}{text[1:]}"
    return cut(safe(text), WIDTH)


class Labels:
    """The label values of one dimension. `texts[slot]`: the value of a slot; slot 0 is OTHER."""

    def __init__(self, limit: int) -> None:
        self.texts = [OTHER]
        self._limit = limit
        self._slots = {OTHER: 0}
        self._busy = np.zeros(limit + 1)
        self._since = np.zeros(limit + 1, np.int64)
        self._candidates: dict[str, tuple[float, int]] = {}  # how busy, and seconds seen
        self._second = 0

    def __len__(self) -> int:
        return len(self.texts)

    def slot(self, text: str) -> int:
        """The slot of a name, or that of OTHER."""
        return self._slots.get(text, 0)

    def admit(self, texts: Sequence[str], weights: Array) -> tuple[Array, int]:
        """Admit the names of a second, with the weight of each. Call it once a second.

        Return the slot of each (int64), and the slot that another name gets from the next second on, 0 for none. The
        caller has to remove the counts of that slot.
        """
        self._second += 1
        self._busy *= DECAY
        slots = np.fromiter((self._slots.get(text, -1) for text in texts), np.int64, len(texts))
        new = np.flatnonzero(slots < 0)
        for i in new[np.argsort(-weights[new], kind="stable")].tolist():
            slots[i] = self._slots.get(texts[i], 0) if len(self.texts) > self._limit else self._take(texts[i])
        np.add.at(self._busy, slots, weights)
        self._wait([(texts[i], float(weights[i])) for i in new.tolist() if slots[i] == 0])
        return slots, self._replace()

    def _take(self, text: str) -> int:
        """Assign a free slot to a name."""
        slot = self._slots.setdefault(text, len(self.texts))
        if slot == len(self.texts):
            self.texts.append(text)
            self._since[slot] = self._second
        return slot

    def _wait(self, names: Sequence[tuple[str, float]]) -> None:
        """Add names without a slot to the waiting ones, and drop the least busy ones if there are too many."""
        waiting = {text: (busy * DECAY, seen) for text, (busy, seen) in self._candidates.items()}
        for text, weight in names:
            busy, seen = waiting.get(text, (0.0, 0))
            waiting[text] = (busy + weight, seen + 1)
        most = CANDIDATES * self._limit
        self._candidates = (
            dict(nlargest(most, waiting.items(), lambda item: item[1])) if len(waiting) > most else waiting
        )

    def _replace(self) -> int:
        """Replace the least busy name by the busiest waiting one, if the conditions hold; return the slot, else 0."""
        lasting = [(busy, text) for text, (busy, seen) in self._candidates.items() if seen >= LASTING]
        ripe = np.flatnonzero(self._second - self._since[1 : len(self.texts)] >= STAY) + 1
        if not lasting or not len(ripe):
            return 0
        slot = int(ripe[np.argmin(self._busy[ripe])])
        busy, text = max(lasting)
        if busy <= OUTGROWN * self._busy[slot]:
            return 0
        del self._slots[self.texts[slot]], self._candidates[text]
        self._slots[text], self.texts[slot] = slot, text
        self._busy[slot], self._since[slot] = busy, self._second
        return slot
