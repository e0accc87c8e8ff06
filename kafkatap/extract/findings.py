"""What the packet comments say: one line on the first packet of each request and of each response.

Client ids and topics are other people's text: it is escaped and cut. Nothing of a message's body is quoted.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping

import numpy as np

from kafkatap.dissector import dtypes as r
from kafkatap.dissector.time_parts import DURATIONS, parts_of
from kafkatap.kernels.arrays import dict_rows, is_among
from kafkatap.reports import units
from kafkatap.reports.batch import Array, Context, endpoint
from kafkatap.reports.exchange_texts import (
    codes_text,
    exchange_name,
    host_text,
    outcome_text,
    part_label,
    parts_text,
    status_text,
)
from kafkatap.reports.expressions.exchange_columns import began_at

#: A part of the total time that is at least this large is named as the cause.
CAUSE_SHARE = 0.5

_ENDS = ("client_ip", "client_port", "broker_ip", "broker_port")
#: The columns that comments are made of.
_COLUMNS = (
    "exchange", "key", "outcome", "closed_by", "api_key", "api_version", "client_id", "throttle_time_ms",
    "request_status", "response_status", "request_problem", "response_problem", *_ENDS, *DURATIONS,
)  # fmt: skip
#: An exchange's columns as Python's numbers.
_Exchange = Mapping[str, int]
#: Rows that are converted at once, and how many such blocks are kept; names and ends that are kept in writing.
_BLOCK, _BLOCKS, _KEPT = 128, 64, 10_000
#: Bits of a packet: requests begin in it, responses do.
_REQUESTS, _RESPONSES = 1, 2


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
        is_on[rows["request_packet_first"]] = _REQUESTS
        is_on[rows["response_packet_first"]] |= _RESPONSES
        is_on[:1] = 0
        self._bits = is_on
        self._errors_of = _Places(errors["exchange"])
        self._has_errors = is_among(rows["exchange"], errors["exchange"]).tobytes()  # by row
        self._blocks: dict[int, list[tuple[_Exchange, dict[str, int]]]] = {}
        self._names: dict[tuple[int, ...], str] = {}
        self._ends_texts: dict[tuple[int, ...], str] = {}
        self._written: dict[int, int] = {}  # by exchange that waits for its response: the written packet of its request
        self.request_packets = [np.zeros(0, np.int64)]  # in the extracted capture

    def all_of(self, packets: Array, written: int) -> dict[int, list[str]]:
        """The comments of packets that are written one after the other (their numbers), by place. `written`: how many
        packets were written before them."""
        kinds = np.where(packets <= self._last, self._bits[np.minimum(packets, self._last)], 0)
        self.request_packets.append(np.flatnonzero(kinds & _REQUESTS) + written + 1)
        places = np.flatnonzero(kinds) if self._are_written else kinds[:0]
        return {
            place: self._of(packet, written + place + 1, kind)
            for place, packet, kind in zip(
                places.tolist(), packets[places].tolist(), kinds[places].tolist(), strict=True
            )
        }

    def _of(self, packet: int, written: int, kinds: int) -> list[str]:
        """The comments of a packet. `written`: its number in the extracted capture."""
        found: list[str] = []
        for row in self._requests.at(packet) if kinds & _REQUESTS else ():
            found.append(self._request(row))
            self._written[row] = written
        for row in self._responses.at(packet) if kinds & _RESPONSES else ():
            found.append(self._response(row, self._written.pop(row, 0)))
        return found

    def _exchange(self, row: int) -> tuple[_Exchange, dict[str, int]]:
        """The columns of an exchange, and the parts of its time. Packets come in about the order of the rows, so these
        are read in blocks."""
        number, place = divmod(row, _BLOCK)
        block = self._blocks.get(number)
        if block is None:
            if len(self._blocks) >= _BLOCKS:
                del self._blocks[next(iter(self._blocks))]
            first = number * _BLOCK
            rows = self._rows[first : first + _BLOCK]
            found = list(dict_rows(rows, _COLUMNS))
            self._add_hosts(found, rows)
            block = self._blocks[number] = list(zip(found, dict_rows(parts_of(rows)), strict=True))
        return block[place]

    def _add_hosts(self, block: list[dict[str, int]], rows: Array) -> None:
        """Add the numbers of the names of both ends."""
        context = self._context
        for end in ("client", "broker") if context.hosts is not None else ():
            assert context.hosts is not None
            numbers = context.hosts.numbers(rows[f"{end}_ip"], began_at(rows), context.addresses)
            for x, number in zip(block, numbers.tolist(), strict=True):
                x[f"{end}_host"] = number

    def _request(self, row: int) -> str:
        x, parts = self._exchange(row)
        text = f"kafkatap: request {self._name(x)}, {self._ends(x)}, exchange {x['key']}: "
        if x["outcome"] != r.ANSWERED:
            return text + outcome_text(x["outcome"], x["closed_by"]) + self._status(x, "request")
        text += f"answered after {units.duration(x['total_ns'])}{parts_text(parts)}"
        return text + _cause(x["total_ns"], parts) + self._status(x, "request")

    def _response(self, row: int, request: int) -> str:
        x, _ = self._exchange(row)
        if x["outcome"] == r.ORPHAN_RESPONSE:
            return f"kafkatap: response without its request, {self._ends(x)}, exchange {x['key']}"
        where = f"the request in packet {request}" if request else "its request"
        text = f"kafkatap: response to {where}: {self._name(x)}, exchange {x['key']}: "
        text += f"{units.duration(x['total_ns'])}, {self._codes(x) if self._has_errors[row] else 'no error code'}"
        if x["throttle_time_ms"] > 0:
            text += f", throttle_time_ms {x['throttle_time_ms']}"
        return text + self._status(x, "response")

    def _name(self, x: _Exchange) -> str:
        key = x["api_key"], x["api_version"], x["client_id"]
        name = self._names.get(key)
        if name is None:
            if len(self._names) >= _KEPT:
                self._names.clear()
            name = self._names[key] = exchange_name(*key[:2], self._context.text(key[2]))
        return name

    def _ends(self, x: _Exchange) -> str:
        hosts = tuple([x.get(f"{end}_host", -1) for end in ("client", "broker")])
        key = (*[x[name] for name in _ENDS], *hosts)
        ends = self._ends_texts.get(key)
        if ends is None:
            if len(self._ends_texts) >= _KEPT:
                self._ends_texts.clear()
            ends = self._ends_texts[key] = " > ".join(
                endpoint(self._context.address(key[at]), key[at + 1]) + self._host(host)
                for at, host in zip((0, 2), hosts, strict=True)
            )
        return ends

    def _host(self, number: int) -> str:
        hosts = self._context.hosts
        return host_text(None if hosts is None or number < 0 else hosts.names[number])

    def _codes(self, x: _Exchange) -> str:
        rows = self._errors[self._errors_of.at(x["exchange"])]
        return codes_text(zip(rows["code"].tolist(), rows["count"].tolist(), strict=True))

    def _status(self, x: _Exchange, message: str) -> str:
        status = x[f"{message}_status"]
        return status_text(status, problem=self._context.text(x[f"{message}_problem"])) if status != r.OK else ""


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


def _cause(total: int, parts: dict[str, int]) -> str:
    """The verdict: which part most of the time was."""
    name = max(parts, key=parts.__getitem__)
    return f"; mostly {part_label(name)}" if total > 0 and parts[name] >= CAUSE_SHARE * total else ""
