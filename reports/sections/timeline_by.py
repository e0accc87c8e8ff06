"""The timeline of each broker or client (`--by broker`, `--by client`): from the counts of the section `events`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from operator import itemgetter

from .. import units
from ..batch import Array, endpoint
from ..model import Column, ReportTable, in_columns
from ..section_parts.section import SectionInput
from .event_answers import ANSWERS, SECOND
from .event_counts import CONNECTIONS, ERRORS, THROTTLED
from .timeline import display_interval

#: What --by may say.
BY = ("broker", "client")
#: The value that is summed for each column.
_SUMS = {
    "answered": (ANSWERS.name, "answers"), "error_codes": (ERRORS.name, "codes"),
    "throttled": (THROTTLED.name, "responses"), "opened": (CONNECTIONS.name, "opened"),
    "refused": (CONNECTIONS.name, "refused"), "closed_by_client": (CONNECTIONS.name, "client_closed"),
    "closed_by_broker": (CONNECTIONS.name, "broker_closed"),
}  # fmt: skip
_COUNTS = (
    Column("answered", "answered", "count", "responses that came in it"),
    Column("error_codes", "error\ncodes", "count", "non-zero error codes in responses"),
    Column("throttled", "throttled", "count", "responses with throttle_time_ms above zero"),
    Column("opened", "conns\nopened", "count", "connections with a complete handshake", 1),
    Column("refused", "conns\nrefused", "count", "connections that a RST or ICMP refused", 1),
    Column("closed_by_client", "closed by\nclient", "count", "connections that the client closed first", 2),
    Column("closed_by_broker", "closed by\nbroker", "count", "connections that the broker closed first", 2),
)


#: The columns of both forms: a table has one of `broker` and `client`.
COLUMNS = (
    Column("start", "start", "time", "start of the interval"),
    Column("broker", "broker", "text", "address and port of the broker", end="broker"),
    Column("client", "client", "text", "client_id of the requests"),
    *_COUNTS,
)


def columns(by: str) -> tuple[Column, ...]:
    """The columns of one form."""
    return tuple(column for column in COLUMNS if column.name == by or column.name not in BY)


def timeline_by(given: SectionInput, by: str, rows: int = 24) -> ReportTable:
    """A row for each interval and broker (or client) with something in it, in order of time."""
    interval = max(display_interval(given.counts, rows), SECOND)
    span = None if given.selected is None else given.selected.span
    found: defaultdict[tuple[int, str], dict[str, int]] = defaultdict(lambda: dict.fromkeys(_SUMS, 0))
    for column, (form, value) in _SUMS.items():
        keys, values = given.keys(form), given.values(form)[value]
        name = _names(given, by, keys)
        for row in (values > 0).nonzero()[0].tolist():
            second = int(keys["second"][row])
            if second >= 0 and (span is None or span[0] // SECOND <= second < span[1] / SECOND):
                found[second * SECOND // interval * interval, name(row)][column] += int(values[row])
    ordered = sorted(found.items(), key=itemgetter(0))
    made = in_columns(columns(by), ({"start": start, by: name, **sums} for (start, name), sums in ordered))
    return ReportTable(
        "timeline_by", f"Timeline by {by}, {units.step(interval)} each", columns(by), made,
        ("A response counts in the interval in which it came.",), whole=True, empty="nothing was answered",
    )  # fmt: skip


def _names(given: SectionInput, by: str, keys: dict[str, Array]) -> Callable[[int], str]:
    context = given.context
    if by == "broker":
        return lambda row: endpoint(context.address(int(keys["broker_ip"][row])), int(keys["broker_port"][row]))
    return lambda row: context.text(int(keys["client_id"][row])) or "(none)"
