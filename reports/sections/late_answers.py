"""Slow requests by the moment at which their answers end: what answers come together, and how long requests had waited.

`event_freezes` reads them beside the slots in which a broker answers (`event_answers`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafkatap.dissector.dtypes import FETCHES
from kafkatap.kernels.arrays import is_among

from ..section_parts.counted import PAIR, Rows, counted, is_slow, largest, least, least_where, total
from ..section_parts.notable import LONG_NS
from .event_answers import SLOT_NS
from .slow_times import MEMBER_WAITS, slow_ns

#: APIs that a broker answers from what it has in memory. All others may wait for a quorum, a follower or a member.
#: Produce is one of them unless acks is -1, Fetch beyond its max_wait_ms.
_PROMPT = (0, *FETCHES, 2, 3, 10, 12, 17, 18, 23, 36, 60)
_PRODUCE = 0


def is_prompt(x: Any) -> Any:
    """Whether a broker that works answers requests at once. `x`: has api_key and acks."""
    return is_among(x["api_key"], _PROMPT) & ((x["api_key"] != _PRODUCE) | (x["acks"] != -1))


def _own_ns(x: Rows) -> Any:
    """How long the broker took for requests themselves: without requests ahead, quotas, losses and waits for data."""
    return x.broker_ns - x.waiting_ns


def _is_late(x: Rows) -> Any:
    return is_slow(x) & ~is_among(x.api_key, MEMBER_WAITS) & (x.throttle_wait_ns == 0) & (x.hol_throttle_wait_ns == 0)


#: `asked`: when the first request began to wait for LONG_NS or more by itself; `latest`: when the last one was asked.
#: `prompt_ns`: the longest wait of one that is answered at once otherwise. `is_lossy`: most of a wait was loss.
LATE = counted(
    "events.late", PAIR, _is_late, more={"slot": lambda x: x.response_last // SLOT_NS},
    last=largest("response_last"), answered=least("response_first"), requests=total(1), ns=total(slow_ns),
    asked=least(lambda x: least_where(_own_ns(x) >= LONG_NS, x.response_first - _own_ns(x))),
    latest=largest("request_last"), longest_ns=largest(slow_ns),
    prompt_ns=largest(lambda x: np.where(is_prompt(x), _own_ns(x), 0)),
    is_lossy=largest(lambda x: 2 * (x.loss_ns + x.hol_loss_wait_ns) > x.total_ns - x.waiting_ns),
    packet=least("request_packet_first"),
)  # fmt: skip
