"""What the packet comments say: one line on the first packet of each request and of each response.

Client ids and topics are other people's text: it is escaped and cut. Nothing of a message's body is quoted.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import namedtuple
from typing import Any

import numpy as np

from kafkatap.dissector import dtypes as r
from kafkatap.dissector.time_parts import parts_of
from kafkatap.reports import units
from kafkatap.reports.batch import Array, Context, endpoint
from kafkatap.reports.exchange_texts import codes_text, exchange_name, outcome_text, part_label, parts_text, status_text

#: A part of the total time that is at least this large is named as the cause.
CAUSE_SHARE = 0.5

#: An EXCHANGE as Python's numbers: a field of numpy's records takes a microsecond.
_Exchange = namedtuple("_Exchange", r.EXCHANGE.names or ())  # type: ignore[misc]


class Findings:
    """The comments of packets by the packets' numbers in the first pass.

    `rows`: EXCHANGE of the exchanges that get comments. `errors`: their ERROR_COUNTs. `context`: what their numbers
    mean. `are_written` False: there are no comments, only `request_packets`, the packets of requests.
    """

    def __init__(self, rows: Array, errors: Array, context: Context, are_written: bool = True) -> None:
        self._are_written = are_written
        self._rows, self._errors, self._context = rows, errors, context
        self._requests = _Places(rows["request_packet_first"])
        self._responses = _Places(rows["response_packet_first"])
        self._last = max(self._requests.last, self._responses.last)
        is_on = np.zeros(self._last + 1, np.uint8)
        is_on[rows["request_packet_first"]] = is_on[rows["response_packet_first"]] = 1
        is_on[:1] = 0
        self._bits = is_on.tobytes()  # a single number indexes bytes much faster
        self._errors_of = _Places(errors["exchange"])
        self._written: dict[int, int] = {}  # by exchange that waits for its response: the written packet of its request
        self.request_packets: list[int] = []

    def of(self, packet: int, written: int) -> list[str]:
        """The comments of a packet. `written`: its number in the extracted capture."""
        found: list[str] = []
        if not self.is_on(packet):
            return found
        for row in self._requests.at(packet):
            self.request_packets.append(written)
            if self._are_written:
                found.append(self._request(row))
                self._written[row] = written
        if not self._are_written:
            return found
        for row in self._responses.at(packet):
            found.append(self._response(row, self._written.pop(row, 0)))
        return found

    def is_on(self, packet: int) -> bool:
        """Whether a packet has comments."""
        return packet <= self._last and self._bits[packet] != 0

    def _request(self, row: int) -> str:
        x = _exchange(self._rows[row])
        text = f"kafkatap: request {self._name(x)}, {self._ends(x)}, exchange {x.key}: "
        if x.outcome != r.ANSWERED:
            return text + outcome_text(x.outcome, x.closed_by) + self._status(x, "request")
        parts = parts_of(x._asdict())
        text += f"answered after {units.duration(x.total_ns)}{parts_text(parts)}"
        return text + _cause(x.total_ns, parts) + self._status(x, "request")

    def _response(self, row: int, request: int) -> str:
        x = _exchange(self._rows[row])
        if x.outcome == r.ORPHAN_RESPONSE:
            return f"kafkatap: response without its request, {self._ends(x)}, exchange {x.key}"
        where = f"the request in packet {request}" if request else "its request"
        text = f"kafkatap: response to {where}: {self._name(x)}, exchange {x.key}: "
        text += f"{units.duration(x.total_ns)}, {self._codes(x)}"
        if x.throttle_time_ms > 0:
            text += f", throttle_time_ms {x.throttle_time_ms}"
        return text + self._status(x, "response")

    def _name(self, x: Any) -> str:
        return exchange_name(x.api_key, x.api_version, self._context.text(x.client_id))

    def _ends(self, x: Any) -> str:
        client, broker = (
            endpoint(self._context.address(getattr(x, f"{end}_ip")), getattr(x, f"{end}_port"))
            for end in ("client", "broker")
        )
        return f"{client} > {broker}"

    def _codes(self, x: Any) -> str:
        here = self._errors_of.at(x.exchange)
        if not here:
            return "no error code"
        rows = self._errors[here]
        return codes_text(zip(rows["code"].tolist(), rows["count"].tolist(), strict=True))

    def _status(self, x: Any, message: str) -> str:
        problem = self._context.text(getattr(x, f"{message}_problem"))
        return status_text(getattr(x, f"{message}_status"), problem=problem)


class _Places:
    """Rows by a number in each, such as that of a packet. A number is looked up without numpy, which takes longer."""

    def __init__(self, numbers: Array) -> None:
        order = np.argsort(numbers, kind="stable")
        self._rows = array("q", order.astype(np.int64).tobytes())
        self._numbers = array("q", numbers[order].astype(np.int64).tobytes())
        self.last = self._numbers[-1] if len(numbers) else 0

    def at(self, number: int) -> array[int]:
        """The rows with this number."""
        first = bisect_left(self._numbers, number)
        return self._rows[first : bisect_right(self._numbers, number, first)]


def _exchange(row: Array) -> Any:
    """An EXCHANGE as a tuple with names."""
    return _Exchange._make(row.tolist())


def _cause(total: int, parts: dict[str, int]) -> str:
    """The verdict: which part most of the time was."""
    name = max(parts, key=lambda part: parts[part])
    return f"; mostly {part_label(name)}" if total > 0 and parts[name] >= CAUSE_SHARE * total else ""
