"""Readers that ask for an offset that the log does not have, and go on elsewhere: they skip records, or read again.

Each report reads the error and the ListOffsets that follows it. Where Fetch requests are read too, the offset that the
reader asked for says how many records it skips, and its next one whether it went there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kafkatap.dissector.dtypes import NO_TIME

from .. import units
from ..finding_words import and_more
from ..findings import ERROR, Finding, Party
from ..groups.offsets_over_time import POSITIONS
from ..parties import has_own_name
from ..section_parts.counted import CLIENT, PLACE, RESULTS, Rows, counted, largest, latest
from ..section_parts.section import SectionInput
from .parties import client_option, client_parties, client_words
from .signature import Signature

#: OFFSET_OUT_OF_RANGE, of a Fetch.
_OUT_OF_RANGE, _FETCH = 1, 1
#: Timestamps of ListOffsets that ask for an end of the log.
_END, _BEGINNING = -1, -2
#: Clients ask at once, or with their next poll: a reader that works on its records for longer than this is rare, and
#: one that repeats the request does so within request.timeout.ms, which is this.
_BOUND_NS = 30 * units.SECOND
#: A program that asks for both ends so shortly one after the other goes to neither by itself.
_TOGETHER_NS = units.SECOND
#: Rows of each form. A report needs the few around an error; programs that watch lag ask for all ends again and again.
_ROWS = 50_000
_PACKETS = 10

#: `time`: of the response. `offset`: the one that the reader asked for, where Fetch requests are read. `is_one`: 1, so
#: that `last` says which rows are small.
_REFUSED = counted(
    "advice.offsets-out-of-range", CLIENT | PLACE, lambda x: (x.error_code == _OUT_OF_RANGE) & (x.api_key == _FETCH),
    of=RESULTS, more={"time": "response_last"}, newest="last", rows=_ROWS,
    is_one=largest(1), last=largest("response_last"), packet=latest("response_packet_last"), offset=largest(),
)  # fmt: skip
_ASKED = _REFUSED.also(
    ("fetched partition",),
    (lambda x: x.error_code == _OUT_OF_RANGE, lambda x: x.beside("fetch partition", "offset") >= 0),
    beside=("fetch partition",), offset=lambda x: x.beside("fetch partition", "offset"),
)  # fmt: skip


def _timestamp(x: Rows) -> Any:
    """Of the request."""
    return x.beside("list offsets partition", "timestamp", NO_TIME)


#: `time`: of the request.
_LISTED = counted(
    "advice.listed-offsets", CLIENT | PLACE,
    lambda x: (x.error_code == 0) & (x.offset >= 0) & (x.request_first != NO_TIME) & (_timestamp(x) != NO_TIME),
    of=("listed partition",), more={"time": "request_first"}, newest="last", rows=_ROWS,
    beside=("list offsets partition",),
    is_one=largest(1), last=largest("request_first"), timestamp=latest(_timestamp), offset=latest("offset"),
)  # fmt: skip

#: Where readers went: what asks for it, and Kafka's setting that does.
_WAYS = {_END: ("the end of the log", "latest"), _BEGINNING: ("the beginning of the log", "earliest")}
_BY_TIME = ("an offset by its time", "by_duration")


class _Reset(NamedTuple):
    """A reader's position on a partition that went from `asked` (None: not known) to `to`. `timestamp`: of its
    ListOffsets. `client`: numbers of its id and its address. `is_seen`: whether its next Fetch there was captured."""

    client: tuple[int, int]
    topic: str
    partition: int
    begin: int
    end: int
    packet: int
    timestamp: int
    asked: int | None
    to: int
    is_seen: bool

    @property
    def records(self) -> int:
        """How many are between both; negative: it went back; 0: not known. Offsets without a record count as well, as
        in any lag."""
        return 0 if self.asked is None else self.to - self.asked

    @property
    def direction(self) -> int:
        """1: forward, -1: back, 0: not known."""
        return (self.records > 0) - (self.records < 0)


#: A reader and what it reads: the numbers of its id and its address, topic, partition.
_Reader = tuple[int, int, str, int]


def _by_reader(given: SectionInput, form: str) -> dict[_Reader, list[dict[str, int]]]:
    """The rows of each reader in order of time."""
    found: dict[_Reader, list[dict[str, int]]] = defaultdict(list)
    for row in given.rows(form):
        topic = given.context.topic(row["topic"], row["topic_id"])
        if row["time"] > 0 and topic is not None:
            found[row["client_id"], row["client_ip"], topic, row["partition"]].append(row)
    for rows in found.values():
        rows.sort(key=lambda row: row["time"])
    return found


def _resets(given: SectionInput) -> Iterator[_Reset]:
    """Those of which the error and the answer of the next ListOffsets are there, and that went elsewhere. A follower of
    a replica is no reader."""
    if not len(given.keys(_REFUSED.name)["time"]):
        return
    refused, listed = _by_reader(given, _REFUSED.name), _by_reader(given, _LISTED.name)
    has_fetches = POSITIONS.name in given.sections.forms
    positions = _by_reader(given, POSITIONS.name) if has_fetches else {}
    for reader, rows in refused.items():
        if has_own_name(given.context.text(reader[0])):
            continue
        for row, answer in _answered(rows, listed.get(reader, ())):
            later = next((p["offset"] for p in positions.get(reader, ()) if p["time"] > answer["time"]), None)
            asked = row["offset"] if row["offset"] >= 0 else None
            if asked != answer["offset"] and (later is None or later >= answer["offset"]):
                yield _Reset(
                    reader[:2], *reader[2:], row["time"], answer["time"], row["packet"], answer["timestamp"], asked,
                    answer["offset"], later is not None,
                )  # fmt: skip


def _answered(
    refused: Sequence[dict[str, int]], listed: Sequence[dict[str, int]]
) -> Iterator[tuple[dict[str, int], dict[str, int]]]:
    """Each error that a ListOffsets follows, with the first one. Of several errors before it, the last."""
    for row, after in zip(refused, (*(other["time"] for other in refused[1:]), None), strict=True):
        mine = [one for one in listed if row["time"] <= one["time"] <= row["time"] + _BOUND_NS]
        if not mine or (after is not None and after <= mine[0]["time"]):
            continue
        together = {one["timestamp"] for one in mine if one["time"] <= mine[0]["time"] + _TOGETHER_NS}
        if len(together) == 1:
            yield row, mine[0]


def _findings(given: SectionInput) -> list[Finding]:
    """One for each topic, way and direction."""
    found: dict[tuple[str, int, int], list[_Reset]] = defaultdict(list)
    for reset in _resets(given):
        found[reset.topic, min(reset.timestamp, 0), reset.direction].append(reset)
    return [_finding(given, resets) for resets in found.values()]


def _finding(given: SectionInput, resets: list[_Reset]) -> Finding:
    context = given.context
    resets.sort(key=lambda reset: (-abs(reset.records), reset.begin, reset.partition))
    worst, records = resets[0], abs(sum(reset.records for reset in resets))
    clients = list(dict.fromkeys(reset.client for reset in resets))
    partitions = len({reset.partition for reset in resets})
    group = _group(given, worst.client)
    who = client_words(context, *worst.client) + (f' of group "{group}"' if group else "")
    who += and_more(len(clients) - 1)
    where = f"{worst.topic}-{worst.partition}"
    place = where if partitions == 1 else f"{partitions:,} partitions of {worst.topic}"
    way, policy = _WAYS.get(worst.timestamp, _BY_TIME)
    what, why = _words(worst, place, records)
    went = f"{'went on at' if worst.is_seen else 'asked for'} {way}, {worst.to:,} (auto.offset.reset={policy})"
    if worst.asked is not None:
        no_more = "no longer has" if worst.direction > 0 else "does not have"
        went = f"it asked for offset {worst.asked:,}, which the log {no_more} (OFFSET_OUT_OF_RANGE), and {went}"
    else:
        went = f"the log does not have the offset that it was at (OFFSET_OUT_OF_RANGE), and it {went}"
    on = "" if partitions == 1 else f"on {where} "
    numbers = {
        "records": records if worst.direction else None, "direction": worst.direction, "asked": worst.asked,
        "to": worst.to, "reset": policy, "partition": worst.partition, "partitions": partitions,
        "clients": len(clients), "resets": len(resets),
    }  # fmt: skip
    shown = "error == OFFSET_OUT_OF_RANGE or api == ListOffsets"
    shown = f"({shown}) and partition == {worst.partition}" if partitions == 1 else shown
    see = ("filter", shown) if worst.direction else _NUMBER_OF_RECORDS
    found = POSITION_RESET.found(
        given, {"first": min(reset.begin for reset in resets), "last": max(reset.end for reset in resets)},
        f"{who} {what}: {on}{went}. {why}", 0, numbers,
        (see, *(client_option(context, worst.client[0]) if len(clients) == 1 else ())), ERROR,
        "show" if worst.direction else "report", packets=tuple(reset.packet for reset in resets[:_PACKETS]),
        parties=(
            *dict.fromkeys(party for client in clients for party in client_parties(context, *client)),
            *((Party("group", group),) if group else ()), Party("topic", worst.topic), Party("partition", where),
        ),
    )  # fmt: skip
    if worst.direction < 0:
        return found._replace(setting=_SHORTER, remedy=_REMEDY_OF_SHORTER)
    return found._replace(label="records lost") if worst.direction > 0 else found


def _words(worst: _Reset, place: str, records: int) -> tuple[str, str]:
    """What happened to a reader, and why."""
    many = f"{records:,} record{'' if records == 1 else 's'}"
    deleted = "Retention (or DeleteRecords) had deleted records that it had not read"
    first_deleted = "Retention (or DeleteRecords) had deleted the first of them; the log may still have later ones"
    shorter = "The log ends before: a topic made anew, an unclean leader election, or a position from elsewhere"
    if worst.direction > 0:
        what = f"{'skipped' if worst.timestamp == _END else 'missed'} {many} of {place}"
        # At its beginning the log has none of them any more; behind that, deletion is sure of the first one alone.
        return what, deleted if worst.timestamp == _BEGINNING or records == 1 else first_deleted
    if worst.direction < 0:
        back = f"went back by {many} on {place}" if worst.timestamp == _END else f"reads up to {many} of {place} again"
        return back, shorter
    unknown = {
        _END: "What it had not read before is skipped",
        _BEGINNING: "It missed what was deleted before, or reads all again",
    }
    return f"lost its position in {place}", unknown.get(worst.timestamp, "It skips records, or reads some again")


def _group(given: SectionInput, client: tuple[int, int]) -> str | None:
    """The only group of a client, where groups were read."""
    if "groups.members" not in given.sections.forms:
        return None
    from ..groups.group import groups_of, shared_clients  # only runs that read groups need it

    groups = given.once(groups_of)
    name = given.context.address(client[1]), given.context.text(client[0])
    if name in shared_clients(groups):
        return None
    return next((group.name for group in groups if name in group.clients), None)


#: The option that reads Fetch requests.
_NUMBER_OF_RECORDS = ("sections", "advice")
_SHORTER = "unclean.leader.election.enable, auto.offset.reset"
_REMEDY_OF_SHORTER = (
    "Find out whether the topic was deleted and made anew, lost records in an unclean leader election "
    "(`unclean.leader.election.enable`), or whether the position comes from elsewhere. Set the position of the group "
    "by hand: `kafka-consumer-groups.sh --reset-offsets`. `auto.offset.reset=none` stops the reader instead."
)
POSITION_RESET = Signature(
    "position_reset",
    "a reader loses its position, and skips records or reads them again",
    "After OFFSET_OUT_OF_RANGE to a Fetch, the client asks by ListOffsets for the end (-1), the beginning (-2) or a "
    "time, and reads from there. Its lag falls to nothing.",
    "retention.ms, retention.bytes, auto.offset.reset",
    "Keep `retention.ms` and `retention.bytes` of the topic above the largest lag of its readers, and let nobody lower "
    "them below it. Alert on lag in time, as a share of the retention: the number falls to nothing with this. "
    "`auto.offset.reset=none` stops the reader instead, and `by_duration` reads on nearer. Records that the log still "
    "has can be read again: `kafka-consumer-groups.sh --reset-offsets`. The others have to come from their source.",
    f"one error, with a ListOffsets of the same client and partition within {_BOUND_NS // units.SECOND} s after it. A "
    "client that asks for both ends, and followers, do not count. Only `--sections advice` and small input show the "
    "number of records, the difference of the offsets.",
    _findings,
    counts=(_REFUSED, _ASKED, _LISTED),
    exact_facts=("fetch partition", "fetched partition"),
    label="position reset",
)  # fmt: skip
