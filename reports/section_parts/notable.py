"""The exchanges that first lines are made of: long, throttled, failed, without an answer, or with facts.

Most exchanges are none of these. So sections that read only these (`Section.reads_notable`) cost little: the others are
left out before batches are gathered.
"""

from __future__ import annotations

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED, EXCHANGE, FETCHES, IN_FLIGHT, RESPONSE_LOST, RESULT, UNANSWERED
from kafkatap.dissector.exchange_places import enter_places, row_of
from kafkatap.dissector.facts.fact_rows import FACT
from kafkatap.kernels import helper, kernel
from kafkatap.kernels.arrays import taken

from ..batch import Array, Batch

#: Times from which on answered exchanges are notable, ns. LONG_NS: in total. Nobody sets a timeout below this.
LONG_NS = 100_000_000
#: SLOW_NS: without waits for data and members. A person does not see less than about 20 ms, and healthy brokers answer
#: in a few ms.
SLOW_NS = 20_000_000
#: WAIT_NS: until the response begins. Clients repeat a SYN, and TCP a lost segment several times, within it.
WAIT_NS = 1_000_000_000
#: APIs of which all exchanges are notable: they begin connections.
API_VERSIONS, AUTHENTICATE = 18, 36

_FETCH = FETCHES[0]
_NO_FACTS = np.zeros(0, FACT)


@helper
def _is_notable(e):  # type: ignore[no-untyped-def]
    """Whether an exchange is notable by its own columns."""
    if e.outcome == ANSWERED:
        is_found = (
            e.total_ns >= LONG_NS
            or e.total_ns - e.waiting_ns - e.hol_poll_wait_ns >= SLOW_NS
            or e.response_first - e.request_last >= WAIT_NS
            or e.nagle_ns > 0
            or e.receiver_ns > 0
            or e.throttle_time_ms > 0
            or (e.api_key == _FETCH and e.min_bytes > 1)
        )
    else:
        is_found = e.outcome == IN_FLIGHT or e.outcome == UNANSWERED or e.outcome == RESPONSE_LOST
    return is_found or e.api_key == API_VERSIONS or e.api_key == AUTHENTICATE


@kernel(EXCHANGE, RESULT, FACT, np.int32, np.int32)
def choose_notable(exchanges, results, facts, places, chosen):  # type: ignore[no-untyped-def]
    """Write the rows of notable exchanges to `chosen`, ascending; return how many they are.

    `places`: as of `exchange_places`. `chosen` has room for all exchanges.
    """
    for i in range(len(exchanges)):
        chosen[i] = 1 if _is_notable(exchanges[i]) else 0
    if len(results) > 0 or len(facts) > 0:
        enter_places(places, exchanges)
        for i in range(len(results)):
            if results[i].error_code != 0:
                row = row_of(places, exchanges, np.int64(results[i].exchange))
                if row >= 0:
                    chosen[row] = 1
        number = np.int64(-1)
        for i in range(len(facts)):
            if facts[i].exchange != number:
                number = np.int64(facts[i].exchange)
                row = row_of(places, exchanges, number)
                if row >= 0:
                    chosen[row] = 1
    count = np.int64(0)
    for i in range(len(exchanges)):
        if chosen[i] == 1:
            chosen[count] = i
            count += 1
    return count


class NotableExchanges:
    """Picks the notable exchanges of batches."""

    def __init__(self) -> None:
        self._places: Array = np.zeros(2, np.int32)
        self._chosen: Array = np.zeros(1, np.int32)

    def of(self, batch: Batch) -> Batch:
        """A batch with its notable exchanges, their facts, and the results with error codes. It may have other
        results, which belong to none of its exchanges."""
        rows = batch.exchanges
        if len(rows) > len(self._chosen):
            room = 1 << (len(rows) - 1).bit_length()
            self._places, self._chosen = np.zeros(2 * room, np.int32), np.zeros(room, np.int32)
        facts = _NO_FACTS if batch.facts is None else batch.facts
        count = choose_notable(rows, batch.results, facts, self._places, self._chosen)
        return batch if count == len(rows) else batch._replace(exchanges=taken(rows, self._chosen[:count]))
