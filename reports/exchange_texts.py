"""Words on an exchange for the comments of its packets: its name, outcome, error codes and status.

Client ids are other people's text: they are escaped and cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kafkatap.dissector import dtypes as r
from kafkatap.dissector.kafka.error_codes import error_name

from . import units
from .counting.rollup import api_label

if TYPE_CHECKING:
    from .hosts.host_table import HostName

#: Characters of a client id that are quoted, and error codes that are named.
LONGEST_NAME, MOST_CODES = 100, 5
_OUTCOMES = {
    r.NO_REPLY_EXPECTED: "no response expected (acks=0)",
    r.IN_FLIGHT: "in flight when the capture ended",
    r.UNANSWERED: "no response",
    r.RESPONSE_LOST: "response not captured",
    r.ORPHAN_RESPONSE: "response without its request",
}


def outcome_text(outcome: int, closed_by: int = -1) -> str:
    """Why a request has no response, or a response no request. `closed_by`: as of EXCHANGE."""
    if outcome == r.UNANSWERED and closed_by >= 0:
        return f"the {r.CLOSED_BY[closed_by]} closed the connection before the response"
    return _OUTCOMES.get(outcome, r.OUTCOMES[outcome])


def exchange_name(api_key: int, api_version: int, client: str | None) -> str:
    """`Fetch v11 of client "billing"`."""
    return f"{api_label(api_key)} v{api_version}" + client_text(client)


def client_text(client: str | None) -> str:
    """` of client "billing"`, "" without a client id."""
    return "" if client is None else f' of client "{units.cut(units.safe(client), LONGEST_NAME)}"'


def host_text(name: HostName | None) -> str:
    """` (payments-7f9)`, "" without a name."""
    return "" if name is None else f" ({units.cut(units.safe(name.text), LONGEST_NAME)})"


#: Parts of the total time whose names alone say too little in a sentence.
_LABELS = {
    "HOL": "head-of-line wait", "throttle": "throttle wait", "waiting": "wait for data or members",
    "broker": "broker time", "loss": "loss", "receiver": "full receive window", "sender": "idle sender",
    "path": "transfer", "unexplained": "unexplained",
}  # fmt: skip


def part_label(name: str) -> str:
    """What a sentence calls a part of the total time (`dissector.time_parts`)."""
    return _LABELS[name]


def parts_text(parts: Mapping[str, int]) -> str:
    """` (head-of-line wait 1.20 s, broker time 4.10 ms)`: the parts of a total time, "" for none."""
    shown = [f"{part_label(name)} {units.duration(ns)}" for name, ns in parts.items() if ns > 0]
    return f" ({', '.join(shown)})" if shown else ""


def codes_text(counts: Iterable[tuple[int, int]]) -> str:
    """Names of error codes with their counts; "" for none."""
    named = [error_name(code) + (f" x{count}" if count > 1 else "") for code, count in counts]
    more = [f"{len(named) - MOST_CODES} more error codes"] if len(named) > MOST_CODES else []
    return ", ".join(named[:MOST_CODES] + more)


def status_text(status: int, before: str = "", problem: str | None = None) -> str:
    """`; malformed at FIELD` for a message that was not decoded as it should be, "" for others."""
    if status in (r.OK, r.NOT_DECODED):
        return ""
    where = f" at {units.cut(units.safe(problem), LONGEST_NAME)}" if problem else ""
    return f"; {before}{r.STATUSES[status]}{where}"
