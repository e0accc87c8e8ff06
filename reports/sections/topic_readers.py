"""Readers of topics and their groups, from the counts of `reader_counts`.

A Fetch names no group. `GroupsOf` finds the groups of a client by what it does elsewhere, best evidence first:

share fetch       its ShareFetch requests name the group
assignment        a SyncGroup or heartbeat response to the same client_id and address assigns the topic
commit            the same client_id and address commits offsets of the topic
same client       the same client_id and address sends requests of a group
member id         a member id of a group from another address begins with the client_id, as those of Java and librdkafka
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator

from ..counting.count_table import EMPTY, MAX, MIN
from ..section_parts.section import SectionInput
from .reader_counts import ASSIGNED, COMMITS, MEMBERS, POSITIONS, SESSIONS
from .topic_counts import OFFSETS, READS
from .topic_rows import TopicNames

SHARE_FETCH = 78
#: The evidence for a group, best first.
EVIDENCE = ("share fetch", "assignment", "commit", "same client_id and address", "member id")
BY_SHARE_FETCH, BY_ASSIGNMENT, BY_COMMIT, BY_CLIENT, BY_MEMBER_ID = range(5)
#: (client_id, client_ip): numbers of a string and an address.
Client = tuple[int, int]
#: (topic, partition): a name, as of Context.topic.
Place = tuple[str | None, int]


class Reading:
    """What one client reads of one partition, over all of its sessions."""

    def __init__(self) -> None:
        self.first, self.last = 2**63, 0
        self.position = self.position_at = self.lag = -1
        self.is_reading = False


class Reader:
    """What one client reads of one topic. `idle`: Fetches of sessions with the topic that list no partition.
    `unknown`: sessions that began before the capture."""

    def __init__(self) -> None:
        self.partitions: dict[int, Reading] = defaultdict(Reading)
        self.sessions: set[tuple[int, int]] = set()
        self.idle = self.unknown = 0
        self.is_share = False


def log_ends(given: SectionInput, names: TopicNames) -> dict[Place, int]:
    """The largest offset that was seen behind the last record of each partition."""
    ends: dict[Place, int] = {}
    for row in given.rows(OFFSETS.name):
        if row["end"] != EMPTY[MAX]:
            place = names[row], row["partition"]
            ends[place] = max(ends.get(place, -1), row["end"])
    return ends


def readers_of(given: SectionInput, names: TopicNames) -> dict[tuple[int, Client, str | None], Reader]:
    """By role, client and topic."""
    sessions = {
        (row["connection"], row["session"], row["client_id"], row["client_ip"], row["api_key"]): row
        for row in given.rows(SESSIONS.name)
    }
    found: dict[tuple[int, Client, str | None], Reader] = defaultdict(Reader)
    for row in given.rows(POSITIONS.name):
        reader = found[row["role"], (row["client_id"], row["client_ip"]), names[row]]
        reading = reader.partitions[row["partition"]]
        session = sessions.get((row["connection"], row["session"], row["client_id"], row["client_ip"], row["api_key"]))
        in_session = row["listed_at"] > row["forgotten_at"]
        end = max(row["listed_at"], row["forgotten_at"])
        is_kept = row["session"] != 0 or row["api_key"] == SHARE_FETCH
        if session is not None and in_session and is_kept:
            end = max(end, session["last"])
        reading.is_reading |= in_session
        if row["first"] != EMPTY[MIN]:
            reading.first = min(reading.first, row["first"])
        reading.last = max(reading.last, end)
        reading.lag = max(reading.lag, row["lag"])
        if row["position"] >= 0 and (row["listed_at"], row["position"]) > (reading.position_at, reading.position):
            reading.position_at, reading.position = row["listed_at"], row["position"]
        reader.is_share |= row["api_key"] == SHARE_FETCH
        place = row["connection"], row["session"]
        if session is not None and is_kept and place not in reader.sessions:
            reader.sessions.add(place)
            reader.idle += session["idle"]
            reader.unknown += session["full"] == 0
    return found


def committed_of(given: SectionInput, names: TopicNames) -> dict[tuple[str | None, Place], int]:
    """The latest committed offset by group and partition."""
    latest: dict[tuple[str | None, Place], tuple[int, int]] = {}
    for row in given.rows(COMMITS.name):
        if row["offset_at"] != EMPTY[MAX]:
            place = given.context.text(row["group"]), (names[row], row["partition"])
            latest[place] = max(latest.get(place, (EMPTY[MAX], -1)), (row["offset_at"], row["offset"]))
    return {place: offset for place, (_, offset) in latest.items()}


def assigned_topics(given: SectionInput, names: TopicNames) -> set[tuple[Client, str | None, str | None]]:
    """(client, topic, group) of all assignments."""
    context = given.context
    found: set[tuple[Client, str | None, str | None]] = set()
    parsed: dict[int, set[str]] = {}
    for row in given.rows(ASSIGNED.name):
        client, group = (row["client_id"], row["client_ip"]), context.text(row["group"])
        if row["assignment"] >= 0:
            bytes_of = context.strings[row["assignment"]] or b""
            topics = parsed.setdefault(row["assignment"], set(topics_in(bytes_of)))
            found.update((client, topic, group) for topic in topics)
        else:
            found.add((client, names[row], group))
    return found


def topics_in(assignment: bytes) -> Iterator[str]:
    """The topics in the bytes of a consumer's assignment (ConsumerProtocolAssignment). Other bytes have none."""
    at = 6
    try:
        (count,) = struct.unpack_from(">i", assignment, 2)
        for _ in range(count):
            (size,) = struct.unpack_from(">h", assignment, at)
            (partitions,) = struct.unpack_from(">i", assignment, at + 2 + size)
            end = at + 6 + size + 4 * partitions
            if size < 0 or partitions < 0 or end > len(assignment):
                return
            yield assignment[at + 2 : at + 2 + size].decode("utf-8", "replace")
            at = end
    except struct.error:
        return


def unseen_readers(given: SectionInput) -> set[Client]:
    """Clients with fetch sessions that began before the capture."""
    return {
        (row["client_id"], row["client_ip"])
        for row in given.rows(SESSIONS.name)
        if row["full"] == 0 and row["role"] == READS and row["fetches"]
    }


class GroupsOf:
    """The groups of clients. See the module docstring."""

    def __init__(self, given: SectionInput, names: TopicNames) -> None:
        context = given.context
        self._context = context
        self._assigned: dict[tuple[Client, str | None], set[str | None]] = defaultdict(set)
        self._commits: dict[tuple[Client, str | None], set[str | None]] = defaultdict(set)
        self._clients: dict[Client, set[str | None]] = defaultdict(set)
        self._members: dict[str, set[str | None]] = defaultdict(set)  # by the client_id that a member id begins with
        for client, topic, group in assigned_topics(given, names):
            self._assigned[client, topic].add(group)
        self.committed = committed_of(given, names)
        for row in given.rows(COMMITS.name):
            if row["commits"]:
                client = row["client_id"], row["client_ip"]
                self._commits[client, names[row]].add(context.text(row["group"]))
        for row in given.rows(MEMBERS.name):
            group = context.text(row["group"])
            self._clients[row["client_id"], row["client_ip"]].add(group)
            member = context.text(row["member"]) or ""
            if len(member) > 37 and member[-37] == "-":  # a UUID of 36 characters behind it
                self._members[member[:-37]].add(group)

    def named_topics(self, clients: set[Client]) -> Iterator[tuple[Client, str]]:
        """The topics that assignments to these clients, or their commits, name."""
        for client, topic in {*self._assigned, *self._commits}:
            if client in clients and topic is not None:
                yield client, topic

    def of(self, client: Client, topic: str | None) -> list[tuple[str | None, int]]:
        """(group, index in EVIDENCE) of the groups in which a client reads a topic, by name."""
        for evidence, found in (
            (BY_ASSIGNMENT, self._assigned.get((client, topic))),
            (BY_COMMIT, self._commits.get((client, topic))),
            (BY_CLIENT, self._clients.get(client)),
            (BY_MEMBER_ID, self._members.get(self._context.text(client[0]) or "")),
        ):
            if found:
                return [(group, evidence) for group in sorted(found, key=str)]
        return []
