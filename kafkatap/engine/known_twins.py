"""`KnownTwins`: the connections of which a run has another one, the same once more (`reports.twins`), and counts that
one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED, ORPHAN_RESPONSE, OUTCOMES
from kafkatap.kernels.arrays import is_among
from kafkatap.reports.batch import Batch

Array = np.ndarray[Any, Any]
#: The part of the ledger that has what is theirs.
SEEN_TWICE = "seen_twice"


class KnownTwins:
    """`twins`: by the key of each, that of the connection that counts in its place. Exchanges that are left out are
    counted by outcome. `on_left_out`: gets them."""

    def __init__(self, twins: Mapping[int, int]) -> None:
        self._twins = dict(twins)
        self._keys = np.array(sorted(twins), np.int64)
        self._outcomes = np.zeros(len(OUTCOMES), np.int64)
        self.on_left_out: Callable[[Array], None] = lambda exchanges: None

    def __bool__(self) -> bool:
        return len(self._keys) > 0

    def has(self, keys: Array) -> Array:
        """Which keys of connections are of them: bool (n,)."""
        return is_among(keys, self._keys)

    def mark(self, rows: Array) -> None:
        """Write `twin_of` of CONNECTION_ROWs."""
        for n in np.flatnonzero(self.has(rows["connection"])).tolist():
            rows["twin_of"][n] = self._twins[int(rows["connection"][n])]

    def left_out_of(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Batches without their rows."""
        return filter(None, map(self._others, batches)) if self else batches

    def _others(self, batch: Batch) -> Batch | None:
        """The rows of other connections in a batch; None where there are none."""
        are_left_out = self.has(batch.exchanges["connection"])
        self._outcomes += np.bincount(batch.exchanges["outcome"][are_left_out], minlength=len(OUTCOMES))
        self.on_left_out(batch.exchanges[are_left_out])
        estimates, tokens = batch.estimates, batch.tokens
        if estimates is not None:
            estimates = estimates[~self.has(estimates["connection"])]
        if tokens is not None:
            tokens = tokens.picked(~self.has(tokens.exchanges["connection"]))
        found = batch.picked(~are_left_out)._replace(estimates=estimates, tokens=tokens)
        return found if len(found.exchanges) or estimates is not None or tokens is not None else None

    def moved(self, ledger: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
        """A ledger in which their requests and responses are in a part of their own."""
        outcomes = dict(zip(OUTCOMES, self._outcomes.tolist(), strict=True))
        requests, responses = ({**ledger[section], SEEN_TWICE: 0} for section in ("requests", "responses"))
        answered, orphans = outcomes[OUTCOMES[ANSWERED]], outcomes.pop(OUTCOMES[ORPHAN_RESPONSE])
        late = max(answered - responses["matched"], 0)  # of those that came after the response to a later request
        theirs = {"matched": answered - late, "out_of_order": late, "orphan": orphans}
        for parts, left_out in ((requests, outcomes), (responses, theirs)):
            for name, count in left_out.items():
                parts[name] -= count
                parts[SEEN_TWICE] += count
        return ledger | {"requests": requests, "responses": responses}


#: Nothing is known to be seen twice.
NO_TWINS = KnownTwins({})
