"""Words on an exchange for the comments of its packets: its name, outcome, error codes and status.

Client ids are other people's text: they are escaped and cut.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkatap.dissector import dtypes as r
from kafkatap.dissector.kafka.error_codes import error_name

from . import units
from .counting.rollup import api_label

#: Characters of a client id that are quoted, and error codes that are named.
LONGEST_NAME, MOST_CODES = 100, 5
_OUTCOMES = {
    r.NO_REPLY_EXPECTED: "no response expected (acks=0)",
    r.UNANSWERED: "no response",
    r.RESPONSE_LOST: "response not captured",
    r.ORPHAN_RESPONSE: "response without its request",
}


def outcome_text(outcome: int) -> str:
    """Why a request has no response, or a response no request."""
    return _OUTCOMES.get(outcome, r.OUTCOMES[outcome])


def exchange_name(api_key: int, api_version: int, client: str | None) -> str:
    """`Fetch v11 of client "billing"`."""
    return f"{api_label(api_key)} v{api_version}" + client_text(client)


def client_text(client: str | None) -> str:
    """` of client "billing"`, "" without a client id."""
    return "" if client is None else f' of client "{units.cut(units.safe(client), LONGEST_NAME)}"'


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
