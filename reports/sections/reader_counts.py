"""What is counted for readers of topics: fetch sessions, positions, commits, members and assignments of groups.

An incremental Fetch (KIP-227) lists only the partitions that changed. The others stay in its session, which the broker
numbers when it answers a full Fetch. So a partition is in a session from the request that listed it to the one that
forgot it: both times are maxima here, and no state is followed. A session belongs to a connection. Session 0 stands for
Fetches without sessions, and for ShareFetch, which has one session on a connection.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafkatap.dissector.dtypes import FETCHES, NO_INT32, NO_TIME
from kafkatap.kernels.arrays import is_among

from ..batch import Array
from ..counting.count_forms import NUMBER, OTHER, TEXT
from ..counting.count_table import EMPTY, MAX
from ..section_parts.counted import (
    CLIENT,
    CONNECTION,
    KEPT,
    PLACE,
    Rows,
    counted,
    largest,
    largest_where,
    latest,
    least,
    once,
    total,
)
from ..section_parts.gathered import Gathered
from .topic_counts import WRITES, role

_SHARE_FETCH = FETCHES[1]


def _sessions(gathered: Gathered) -> Array:
    """The fetch session of each exchange: int64."""
    asked, answered = gathered.top("fetch", "session_id", 0), gathered.top("fetched", "session_id", 0)
    session = np.where(gathered.top("fetch", "session_epoch") > 0, asked, answered)
    session[session < -(2**31)] = 0  # NO_NUMBER: a version without sessions
    return session


def _listed(gathered: Gathered) -> Array:
    """How many partitions each Fetch lists: int64."""
    found = np.zeros(len(gathered), np.int64)
    for kind in ("fetch partition", "share fetch partition"):
        found += np.bincount(gathered.facts(kind).exchange, minlength=len(found))
    return found


@once
def _epoch(x: Rows) -> Any:
    is_share = x.api_key == _SHARE_FETCH
    return np.where(is_share, x.top("share fetch", "session_epoch"), x.top("fetch", "session_epoch"))


_SESSION = {**CONNECTION, "session": NUMBER, "role": NUMBER, "api_key": NUMBER, **CLIENT}
_MADE: Any = {"session": lambda x: x.each(_sessions), "role": role}
_KEPT = {"role": KEPT, "api_key": KEPT}
#: Kinds of facts of which roles and sessions are made.
_TOPS = ("fetch", "fetched", "share fetch")

#: `idle`: Fetches that list no partition. `full`: those that began the session.
SESSIONS = counted(
    "topics.sessions", _SESSION, lambda x: is_among(x.api_key, FETCHES) & (x.request_first != NO_TIME), more=_MADE,
    other=_KEPT, beside=(*_TOPS, "fetch partition", "share fetch partition"),
    fetches=total(1), idle=total(lambda x: (x.each(_listed) == 0) & (_epoch(x) > 0)),
    full=total(lambda x: (_epoch(x) == 0) | ((x.api_key != _SHARE_FETCH) & (_epoch(x) <= 0))),
    first=least("request_first"), last=largest("request_first"),
)  # fmt: skip


def _lag(x: Rows) -> Any:
    end = x.beside("fetched partition", "high_watermark")
    return largest_where(end >= 0, np.maximum(end - x.offset, 0))


#: `position`: the latest offset that the reader asked for. `lag`: the largest distance to the high watermark.
POSITIONS = counted(
    "topics.positions", {**_SESSION, **PLACE}, of=("fetch partition",), more=_MADE, other={**_KEPT, "topic": OTHER},
    beside=(*_TOPS, "fetched partition"),
    listed=total(1), first=least("request_first"), lag=largest(_lag), forgotten_at=largest(),
    listed_at=largest("request_first"), position=latest("offset"),
)  # fmt: skip
#: A session may answer partitions that the request does not list. Their lag is from the base offset of the first batch.
_UNLISTED = POSITIONS.also(
    ("fetched partition",),
    (lambda x: x.high_watermark >= 0,
     lambda x: x.beside("fetch partition", "partition", NO_INT32) == NO_INT32,
     lambda x: x.beside("fetched batch", "partition", NO_INT32) != NO_INT32),
    beside=("fetch partition", "fetched batch"),
    lag=lambda x: np.maximum(x.high_watermark - x.beside("fetched batch", "base_offset"), 0),
)  # fmt: skip
_SHARED = POSITIONS.also(
    ("share fetch partition",), listed=1, first="request_first", listed_at="request_first"
)  # fmt: skip
_FORGOTTEN = POSITIONS.also(
    ("forgotten partition", "share forgotten partition"), more={"partition": "item"}, forgotten_at="request_first"
)
#: Partitions of writers, whatever the connection.
_WRITTEN = POSITIONS.also(
    ("produce partition",), more={"connection": -1, "session": 0, "role": WRITES},
    listed=1, first="request_first", listed_at="request_first",
)  # fmt: skip


def _has_failed(gathered: Gathered) -> Array:
    """Whether a commit of an exchange failed: bool."""
    found, commits = np.zeros(len(gathered), bool), gathered.facts("committed partition")
    found[commits.exchange[commits["error_code"] != 0]] = True
    return found


def _is_committed(x: Rows) -> Any:
    return ~x.each(_has_failed) & (x.offset >= 0)


def _only_groups(gathered: Gathered) -> Array:
    """The group of each OffsetFetch that has one, -1 of others: int64."""
    groups = gathered.facts("offset fetch group")
    count = np.bincount(groups.exchange, minlength=len(gathered))
    found: Array = np.where(count == 1, gathered.top("offset fetch group", "group"), -1)
    return found


def _group_asked(x: Rows) -> Any:
    return x.top("offset fetch", "group") if x.fact == "fetched offset" else x.each(_only_groups)


#: `offset`: the latest one that was committed, or that the broker returned for the group.
COMMITS = counted(
    "topics.commits", {"group": TEXT, **CLIENT, **PLACE}, of=("commit partition", "transaction commit partition"),
    more={"group": lambda x: x.top(x.fact.removesuffix(" partition"), "group")},
    other={"client_id": OTHER, "topic": OTHER}, beside=("commit", "transaction commit", "committed partition"),
    commits=total(1), offset_at=largest(lambda x: largest_where(_is_committed(x), x.request_first)),
    offset=latest(lambda x: largest_where(_is_committed(x), x.offset)),
)  # fmt: skip
#: Committed offsets that brokers return, where the request has one group.
_RETURNED = COMMITS.also(
    ("fetched offset", "fetched offset of group"), lambda x: (_group_asked(x) >= 0) & (x.offset >= 0),
    {"group": _group_asked}, ("offset fetch", "offset fetch group"), offset_at="request_first", offset="offset",
)  # fmt: skip


def _left_at(x: Rows) -> Any:
    """Only heartbeats with an epoch say that a member leaves."""
    return largest_where(x.member_epoch < 0, x.request_first) if x.fact.endswith(" heartbeat") else EMPTY[MAX]


MEMBERS = counted(
    "topics.members", {"group": TEXT, "member": TEXT, **CLIENT},
    lambda x: (x.group >= 0) & (x.request_first != NO_TIME),
    of=("commit", "heartbeat", "join group", "sync group", "consumer heartbeat", "share heartbeat",
        "streams heartbeat", "share fetch", "transaction commit"),
    other={"client_id": OTHER},
    requests=total(1), first=least("request_first"), last=largest("request_first"), left_at=largest(_left_at),
)  # fmt: skip
_LEAVING = MEMBERS.also(
    ("leave group", "leaving member"), lambda x: x.member >= 0, {"group": lambda x: x.top("leave group", "group")},
    requests=1, first="request_first", last="request_first", left_at="request_first",
)  # fmt: skip


def _of_request(column: str) -> Any:
    """A column of the request that an assignment answers."""
    return lambda x: x.top(_ASKED[x.fact], column)


_ASKED = {
    "synced group": "sync group", "consumer assigned partition": "consumer heartbeat",
    "share assigned partition": "share heartbeat",
}  # fmt: skip
_GROUP: Any = {"group": _of_request("group"), "member": _of_request("member")}
#: `assignment`: the bytes of a SyncGroup response, or -1 if topic and partition are known.
ASSIGNED = counted(
    "topics.assigned", {"group": TEXT, "member": TEXT, **CLIENT, "assignment": TEXT, **PLACE},
    lambda x: (x.error_code == 0) & (x.assignment >= 0) & (_of_request("group")(x) >= 0), of=("synced group",),
    more=_GROUP | {"topic": -1, "topic_id": -1, "partition": -1}, other={"client_id": OTHER, "topic": OTHER},
    seen=total(1), last=largest("response_last"),
)  # fmt: skip
_ASSIGNED_PARTITIONS = ASSIGNED.also(
    ("consumer assigned partition", "share assigned partition"), lambda x: _of_request("group")(x) >= 0,
    {"assignment": -1, "topic": "topic", "topic_id": "topic_id", "partition": "item"}, seen=1, last="response_last",
)  # fmt: skip
COUNTS = (
    SESSIONS, POSITIONS, _UNLISTED, _SHARED, _FORGOTTEN, _WRITTEN, COMMITS, _RETURNED, MEMBERS, _LEAVING, ASSIGNED,
    _ASSIGNED_PARTITIONS,
)  # fmt: skip
