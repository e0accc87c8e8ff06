"""Label values of metrics, bounded: the names that matter have series of their own, the rest is "other".

Whoever stores counters wants two things at odds with each other: few series, and series that last and never go
backwards. So a name that was admitted keeps its slot, busy or not, for STAY seconds at least; after that the slot goes
to another name only where that one was seen in LASTING seconds and is, by a decaying count, more than OUTGROWN times as
busy. What is counted while a name has no slot goes to "other" and stays there: only what came new is ever added to a
series, so that "other" never goes backwards, and neither does a name's series while it is there. A name that comes back
starts again at zero, which `rate` and `increase` take for the reset that it is.

Memory and series are bounded whatever is on the wire: `limit` slots, CANDIDATES times as many names that wait for one,
each cut to WIDTH columns, and over time no more than `limit` replacements in STAY seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest

import numpy as np

from kafkatap.reports.batch import Array
from kafkatap.reports.units import cut, safe

#: The label value, and the slot, of all that has none of its own.
OTHER = "other"
#: The label value of null.
NULL = "-"
#: Seconds for which an admitted name keeps its slot.
STAY = 600
#: Seconds in which a name must have been seen to take another's slot.
LASTING = 10
OUTGROWN = 2.0
CANDIDATES = 4
#: What is left of a count after a second: half after a minute.
DECAY = 0.5 ** (1 / 60)
WIDTH = 128


def label(text: str | None) -> str:
    """A text from the wire as a label value: harmless where it is shown, and not too long; null as reports have it. A
    text that would be taken for null or for OTHER has its first character escaped."""
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
        """The slot of a name, that of OTHER where it has none."""
        return self._slots.get(text, 0)

    def admit(self, texts: Sequence[str], weights: Array) -> tuple[Array, int]:
        """To be called once a second with all names seen in it and how much each did.

        Returns the slot of each (int64), and the slot that goes to another name from the next second on, 0 for none:
        what was counted there so far is to be thrown away.
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
        """A free slot for a name."""
        slot = self._slots.setdefault(text, len(self.texts))
        if slot == len(self.texts):
            self.texts.append(text)
            self._since[slot] = self._second
        return slot

    def _wait(self, names: Sequence[tuple[str, float]]) -> None:
        """Note names without a slot; forget the least busy where there are too many."""
        waiting = {text: (busy * DECAY, seen) for text, (busy, seen) in self._candidates.items()}
        for text, weight in names:
            busy, seen = waiting.get(text, (0.0, 0))
            waiting[text] = (busy + weight, seen + 1)
        most = CANDIDATES * self._limit
        self._candidates = (
            dict(nlargest(most, waiting.items(), lambda item: item[1])) if len(waiting) > most else waiting
        )

    def _replace(self) -> int:
        """Give the least busy name's slot to the busiest that waits, where both are ripe for it."""
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
