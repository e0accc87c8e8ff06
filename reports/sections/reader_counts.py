"""What is counted for readers of topics: fetch sessions, positions, commits, members and assignments of groups.

An incremental Fetch (KIP-227) lists only the partitions that changed. The others stay in its session, which the broker
numbers when it answers a full Fetch. So a partition is in a session from the request that listed it to the one that
forgot it: both times are maxima here, and no state is followed. A session belongs to a connection. Session 0 stands for
Fetches without sessions, and for ShareFetch, which has one session on a connection.
"""

from __future__ import annotations

import numpy as np

from kafkatap.dissector.dtypes import FETCHES, NO_TIME

from ..batch import Array
from ..counting.count_forms import ADDRESS, NUMBER, OTHER, TEXT, CountForm
from ..counting.count_table import EMPTY, LATEST, MAX, MIN, SUM
from ..section_parts.gathered import FactRows, Gathered
from ..section_parts.matching import matched
from ..section_parts.section_counts import Tally
from .topic_counts import WRITES, roles_of

_TOPIC = {"topic": TEXT, "topic_id": TEXT}
_PARTITION = {**_TOPIC, "partition": NUMBER}
_CLIENT = {"client_id": TEXT, "client_ip": ADDRESS}
_OTHERS = {"client_id": OTHER, "client_ip": -1}
_OTHER_PARTITION = {"topic": OTHER, "topic_id": -1, "partition": -1}

#: `idle`: Fetches that list no partition. `full`: those that began the session. `empty`: answers without records.
SESSIONS = CountForm(
    "topics.sessions",
    {"connection": NUMBER, "session": NUMBER, "role": NUMBER, "api_key": NUMBER, **_CLIENT},
    {"fetches": SUM, "idle": SUM, "full": SUM, "first": MIN, "last": MAX},
    {**_OTHERS, "connection": -1, "session": -1},
)
#: `position`: the latest offset that the reader asked for. `lag`: the largest distance to the high watermark.
POSITIONS = CountForm(
    "topics.positions",
    {"connection": NUMBER, "session": NUMBER, "role": NUMBER, "api_key": NUMBER, **_CLIENT, **_PARTITION},
    {"listed": SUM, "first": MIN, "lag": MAX, "forgotten_at": MAX, "listed_at": MAX, "position": LATEST},
    {**_OTHERS, **_OTHER_PARTITION, "connection": -1, "session": -1},
)
#: `offset`: the latest one that was committed, or that the broker returned for the group.
COMMITS = CountForm(
    "topics.commits",
    {"group": TEXT, **_CLIENT, **_PARTITION},
    {"commits": SUM, "offset_at": MAX, "offset": LATEST},
    {**_OTHERS, **_OTHER_PARTITION, "group": OTHER},
)
MEMBERS = CountForm(
    "topics.members",
    {"group": TEXT, "member": TEXT, **_CLIENT},
    {"requests": SUM, "first": MIN, "last": MAX, "left_at": MAX},
    {**_OTHERS, "group": OTHER, "member": -1},
)
#: `assignment`: the bytes of a SyncGroup response, or -1 if topic and partition are known.
ASSIGNED = CountForm(
    "topics.assigned",
    {"group": TEXT, "member": TEXT, **_CLIENT, "assignment": TEXT, **_PARTITION},
    {"seen": SUM, "last": MAX},
    {**_OTHERS, **_OTHER_PARTITION, "group": OTHER, "member": -1, "assignment": -1},
)
FORMS = (SESSIONS, POSITIONS, COMMITS, MEMBERS, ASSIGNED)
_MEMBER_KINDS = (
    "commit", "heartbeat", "join group", "sync group", "consumer heartbeat", "share heartbeat", "streams heartbeat",
    "share fetch", "transaction commit",
)  # fmt: skip
_ASSIGNED_KINDS = (
    ("consumer assigned partition", "consumer heartbeat"),
    ("share assigned partition", "share heartbeat"),
)
FACTS = (
    "fetch", "fetch partition", "forgotten partition", "fetched", "fetched partition", "fetched batch",
    "produce partition", "share fetch partition", "share forgotten partition", "commit partition",
    "committed partition", "offset fetch", "offset fetch group", "fetched offset", "fetched offset of group",
    "synced group", "transaction commit partition", "leave group", "leaving member", *_MEMBER_KINDS,
    *(kind for kind, _ in _ASSIGNED_KINDS),
)  # fmt: skip


def read(gathered: Gathered, tally: Tally) -> None:
    """Count fetch sessions, and what ties clients to groups."""
    fetches = gathered.of_api(*FETCHES)
    _count_writes(gathered, tally)
    if len(fetches):
        sessions = _sessions_of(gathered)
        _count_sessions(gathered, tally, fetches, sessions)
        _count_positions(gathered, tally, sessions)
    _commits(gathered, tally)
    _returned_offsets(gathered, tally)
    _members(gathered, tally)
    _assignments(gathered, tally)


def _sessions_of(gathered: Gathered) -> dict[str, Array]:
    """By exchange: the session, whether the request began it, and the key columns. int64 each."""
    epoch = gathered.top("fetch", "session_epoch")
    asked, answered = gathered.top("fetch", "session_id", 0), gathered.top("fetched", "session_id", 0)
    session = np.where(epoch > 0, asked, answered)
    session[session < -(2**31)] = 0  # NO_NUMBER: a version without sessions
    return {
        "session": session, "epoch": epoch, "role": roles_of(gathered),
        **{name: gathered.column(name) for name in ("connection", "api_key", "client_id", "client_ip")},
    }  # fmt: skip


def _keys(sessions: dict[str, Array], exchange: Array) -> dict[str, Array]:
    names = ("connection", "session", "role", "api_key", "client_id", "client_ip")
    return {name: sessions[name][exchange] for name in names}


def _partition(facts: FactRows) -> dict[str, Array]:
    return {name: facts[name] for name in _PARTITION}


def _count_sessions(gathered: Gathered, tally: Tally, fetches: Array, sessions: dict[str, Array]) -> None:
    listed = np.zeros(len(gathered.exchanges), np.int64)
    for name in ("fetch partition", "share fetch partition"):
        listed += np.bincount(gathered.facts(name).exchange, minlength=len(listed))
    times = gathered.column("request_first")[fetches]
    fetches = fetches[times != NO_TIME]
    times = times[times != NO_TIME]
    is_share = sessions["api_key"][fetches] == FETCHES[1]
    epoch = np.where(is_share, gathered.top("share fetch", "session_epoch")[fetches], sessions["epoch"][fetches])
    values = {
        "fetches": 1, "idle": (listed[fetches] == 0) & (epoch > 0),
        "full": (epoch == 0) | (~is_share & (epoch <= 0)), "first": times, "last": times,
    }  # fmt: skip
    tally.add(SESSIONS.name, _keys(sessions, fetches), values)


def _count_positions(gathered: Gathered, tally: Tally, sessions: dict[str, Array]) -> None:
    start = gathered.column("request_first")
    lag = _lag(gathered, tally, sessions)
    for name in ("fetch partition", "share fetch partition"):
        facts = gathered.facts(name)
        if len(facts):
            times = start[facts.exchange]
            values = {"listed": 1, "first": times, "listed_at": times}
            if name == "fetch partition":
                values |= {"position": facts["offset"], "lag": lag}
            tally.add(POSITIONS.name, _keys(sessions, facts.exchange) | _partition(facts), values)
    for name in ("forgotten partition", "share forgotten partition"):
        facts = gathered.facts(name)
        if len(facts):
            keys = _keys(sessions, facts.exchange) | _partition(facts) | {"partition": facts["item"]}
            tally.add(POSITIONS.name, keys, {"forgotten_at": start[facts.exchange]})


def _count_writes(gathered: Gathered, tally: Tally) -> None:
    """Partitions of writers, whatever the connection."""
    facts = gathered.facts("produce partition")
    if len(facts):
        times = gathered.column("request_first")[facts.exchange]
        keys = {"connection": -1, "session": 0, "role": WRITES, "api_key": 0, **_who(gathered, facts.exchange)}
        tally.add(POSITIONS.name, keys | _partition(facts), {"listed": 1, "first": times, "listed_at": times})


def _lag(gathered: Gathered, tally: Tally, sessions: dict[str, Array]) -> Array:
    """The lag of each fact of "fetch partition": the high watermark of the response less its offset. int64.

    A session may answer partitions that the request does not list. Their lag, from the base offset of the first batch,
    is counted here.
    """
    asked, answered = gathered.facts("fetch partition"), gathered.facts("fetched partition")
    found = np.full(len(asked), EMPTY[MAX])
    answered = answered.where(answered["high_watermark"] >= 0)
    at = matched(asked, answered)
    listed = at >= 0
    offsets = asked["offset"][at[listed]]
    found[at[listed]] = np.maximum(answered["high_watermark"][listed] - offsets, 0)
    rest, batches = answered.where(~listed), gathered.facts("fetched batch")
    at = matched(batches, rest)
    rest, at = rest.where(at >= 0), at[at >= 0]
    if len(rest):
        lag = np.maximum(rest["high_watermark"] - batches["base_offset"][at], 0)
        tally.add(POSITIONS.name, _keys(sessions, rest.exchange) | _partition(rest), {"lag": lag})
    return found


def _who(gathered: Gathered, exchange: Array) -> dict[str, Array]:
    return {name: gathered.column(name)[exchange] for name in _CLIENT}


def _commits(gathered: Gathered, tally: Tally) -> None:
    has_failed = np.zeros(len(gathered.exchanges), bool)
    failed = gathered.facts("committed partition")
    has_failed[failed.exchange[failed["error_code"] != 0]] = True
    for name, top in (("commit partition", "commit"), ("transaction commit partition", "transaction commit")):
        facts = gathered.facts(name)
        if len(facts):
            times = gathered.column("request_first")[facts.exchange]
            keys = {"group": gathered.top(top, "group")[facts.exchange]} | _who(gathered, facts.exchange)
            at = np.where(has_failed[facts.exchange] | (facts["offset"] < 0), EMPTY[MAX], times)
            values = {"commits": 1, "offset_at": at, "offset": np.where(at == EMPTY[MAX], at, facts["offset"])}
            tally.add(COMMITS.name, keys | _partition(facts), values)


def _returned_offsets(gathered: Gathered, tally: Tally) -> None:
    """Committed offsets that brokers return, where the request has one group."""
    counts = np.bincount(gathered.facts("offset fetch group").exchange, minlength=len(gathered.exchanges))
    single = np.where(counts == 1, gathered.top("offset fetch group", "group"), -1)
    for name, groups in (
        ("fetched offset", gathered.top("offset fetch", "group")),
        ("fetched offset of group", single),
    ):
        facts = gathered.facts(name)
        known = (groups[facts.exchange] >= 0) & (facts["offset"] >= 0)
        if known.any():
            rows = facts.where(known)
            times = gathered.column("request_first")[rows.exchange]
            keys = {"group": groups[rows.exchange]} | _who(gathered, rows.exchange) | _partition(rows)
            tally.add(COMMITS.name, keys, {"offset_at": times, "offset": rows["offset"]})


def _members(gathered: Gathered, tally: Tally) -> None:
    for name in _MEMBER_KINDS:
        facts = gathered.facts(name)
        times = gathered.column("request_first")[facts.exchange]
        chosen = (facts["group"] >= 0) & (times != NO_TIME)
        if not chosen.any():
            continue
        rows, times = facts.where(chosen), times[chosen]
        keys = {"group": rows["group"], "member": rows["member"], **_who(gathered, rows.exchange)}
        values = {"requests": 1, "first": times, "last": times}
        if "heartbeat" in name and name != "heartbeat":
            values["left_at"] = np.where(rows["member_epoch"] < 0, times, EMPTY[MAX])
        tally.add(MEMBERS.name, keys, values)
    group = gathered.top("leave group", "group")
    for name in ("leave group", "leaving member"):
        facts = gathered.facts(name)
        rows = facts.where(facts["member"] >= 0)
        if len(rows):
            times = gathered.column("request_first")[rows.exchange]
            keys = {"group": group[rows.exchange], "member": rows["member"], **_who(gathered, rows.exchange)}
            tally.add(MEMBERS.name, keys, {"requests": 1, "first": times, "last": times, "left_at": times})


def _assignments(gathered: Gathered, tally: Tally) -> None:
    synced = gathered.facts("synced group")
    synced = synced.where((synced["error_code"] == 0) & (synced["assignment"] >= 0))
    nothing = {"topic": -1, "topic_id": -1, "partition": -1}
    found = [(synced, "sync group", {"assignment": synced["assignment"], **nothing})]
    for name, top in _ASSIGNED_KINDS:
        facts = gathered.facts(name)
        found.append((facts, top, {"assignment": -1, **_partition(facts), "partition": facts["item"]}))
    for facts, top, what in found:
        if not len(facts):
            continue
        group, member = gathered.top(top, "group")[facts.exchange], gathered.top(top, "member")[facts.exchange]
        times = gathered.column("response_last")[facts.exchange]
        known = group >= 0
        keys = {"group": group, "member": member, **_who(gathered, facts.exchange), **what}
        tally.add(
            ASSIGNED.name,
            {key: column[known] if isinstance(column, np.ndarray) else column for key, column in keys.items()},
            {"seen": 1, "last": times[known]},
        )
