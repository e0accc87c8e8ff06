"""The answers of each second, by client and broker: the one count of the first lines that every exchange is in.

They are counted in a kernel as soon as a batch comes. So no other exchange has to be kept but notable ones
(`section_parts.notable`).
"""

from __future__ import annotations

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED, EXCHANGE
from kafkatap.kernels import kernel

from ..counting.count_forms import ADDRESS, NUMBER, TEXT
from ..counting.count_table import ANY, MAX, MIN, SUM, CountArrays, claim_again, has_room
from ..section_parts.counted import BROKER, form

SECOND = 1_000_000_000
#: A second has 50 slots. `slots`: a bit for each in which an answer ended.
SLOT_NS = SECOND // 50
ANSWERS = form(
    "events.answers", {"client_ip": ADDRESS, **BROKER, "client_id": TEXT, "second": NUMBER},
    last=MAX, first=MIN, answers=SUM, packet=MIN, bytes=MAX, slots=ANY,
)  # fmt: skip
_WIDTH, _COLUMNS = len(ANSWERS.keys), len(ANSWERS.values)


@kernel(np.int64, CountArrays, EXCHANGE, int)
def count_answers(probe, answers, exchanges, first):  # type: ignore[no-untyped-def]
    """Add answered exchanges, as of `BatchCount`."""
    row = np.int64(-1)
    for i in range(first, len(exchanges)):
        e = exchanges[i]
        if e.outcome != ANSWERED:
            continue
        if not has_room(answers, _COLUMNS, 1):
            return i
        probe[0] = e.client_ip
        probe[1] = e.broker_ip
        probe[2] = e.broker_port
        probe[3] = e.client_id
        probe[4] = e.response_last // SECOND
        row = claim_again(answers, _WIDTH, row, probe)
        v = row * _COLUMNS
        values = answers.values
        values[v] = max(values[v], e.response_last)
        values[v + 1] = min(values[v + 1], e.response_last)
        values[v + 2] += 1
        values[v + 3] = min(values[v + 3], e.response_packet_last)
        values[v + 4] = max(values[v + 4], e.request_bytes)
        values[v + 5] |= np.int64(1) << (e.response_last % SECOND // SLOT_NS)
    return len(exchanges)
