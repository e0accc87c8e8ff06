"""Facts and roles have a source in every version of their message, or a reason why not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from kafkatap.dissector.layouts.catalog import load_messages
from kafkatap.dissector.layouts.schema import REQUEST, MessageLayout, Struct
from kafkatap.dissector.programs.fact_kinds import BATCH, KINDS, paths
from kafkatap.dissector.programs.fields import role_of
from kafkatap.dissector.programs.roles import ROLE_NAMES

#: Kinds, and columns of kinds, that the first of them covers together with the others.
TOGETHER = (
    ("fetch.replica_id", "fetch.replica_state_id"),
    ("live broker.port", "live broker endpoint"),
    ("live broker.host", "live broker endpoint"),
    ("fetched offset", "fetched offset of group"),
    ("fetched offsets.error", "fetched offset group", "fetched offset"),
    ("offset fetch.group", "offset fetch group"),
    ("find coordinator.key", "find coordinator key"),
    *((f"coordinator.{column}", "coordinator of key") for column in ("node", "port", "host", "error")),
    ("leave group.member", "leaving member"),
    *((f"add partitions.{column}", "add partitions of") for column in ("producer_id", "producer_epoch",
                                                                       "transactional_id")),
    ("add partition", "add partition of"),
    ("added partition", "added partition of"),
    ("added partitions.error", "added partition"),
)  # fmt: skip
#: What the protocol had not yet: the last version without it.
NOT_YET = {
    "produce.transactional_id": 2, "produced partition.log_append_ms": 1, "produced partition.log_start": 4,
    "fetch.session_id": 6, "fetch.session_epoch": 6, "fetch.max_bytes": 2, "fetch.isolation_level": 3,
    "fetch.rack": 10, "fetch partition.log_start": 4, "forgotten partition": 6, "fetched.session_id": 6,
    "fetched.error": 6, "fetched partition.stable_offset": 3, "fetched partition.log_start": 4,
    "fetched partition.preferred_replica": 10, "listed partition.timestamp": 0, "metadata broker.rack": 0,
    "metadata partition.leader_epoch": 6, "commit.generation": 0, "commit.member": 0, "commit.instance": 6,
    "offset fetch group.member_epoch": 8, "offset fetch group.member": 8, "join group.instance": 4,
    "join group.reason": 7, "joined member.instance": 4, "heartbeat.instance": 2, "leaving member.reason": 4,
    "left member": 2, "sync group.instance": 2, "versions asked.software": 2, "versions asked.software_version": 2,
    "init producer.producer_id": 2, "init producer.producer_epoch": 2, "ended transaction.producer_id": 4,
    "ended transaction.producer_epoch": 4, "transaction commit.generation": 2, "transaction commit.member": 2,
    "sasl answer.lifetime_ms": 0,
    "find coordinator.key_type": 0,  # all of them look for groups
    "join group.rebalance_timeout_ms": 0,  # members wait for the session timeout: readers use it
    "coordinator of key": 3, "offset fetch group": 7, "fetched offset group": 7, "find coordinator key": 3,
    "live broker endpoint": 0, "fetched offset of group": 7, "leaving member": 2, "add partitions of": 3,
    "add partition of": 3, "added partitions of": 3, "added partition of": 3,
    "fetch.replica_state_id": 14,
}  # fmt: skip


def versions_of(struct: Struct, path: str, versions: set[int]) -> set[int]:
    """The versions in which a path exists."""
    name, _, rest = path.partition(".")
    found = set[int]()
    for item in struct.fields:
        if item.name == name:
            mine = versions & set(item.versions)
            found |= versions_of(item.struct, rest, mine) if rest and item.struct else mine
    return found


def sources() -> Iterator[tuple[str, set[int], set[int]]]:
    """Each kind, and column of a kind, with the versions that have it, and those of the message."""
    messages = load_messages()
    for kind in KINDS[:BATCH]:
        message = messages[kind.api_key, kind.direction]
        versions = set(message.versions)

        def having(of: tuple[str, ...], message: MessageLayout = message, versions: set[int] = versions) -> set[int]:
            return set[int]().union(*(versions_of(message.body, path, versions) for path in of))

        if kind.element:
            yield kind.name, having(paths(kind.element)), versions
        columns = {**kind.numbers, **kind.texts} | ({"error": kind.error} if kind.error else {})
        for column, path in (columns | ({"length": kind.length} if kind.length else {})).items():
            yield f"{kind.name}.{column}", having(kind.fields(path)), versions


def test_each_fact_has_a_source_in_every_version() -> None:
    found = {name: (has, versions) for name, has, versions in sources()}
    missing = {name: versions - has for name, (has, versions) in found.items() if versions - has}
    # An array's columns need not be where the array is not.
    for name in list(missing):
        outer = name.partition(".")[0]
        if outer != name and outer in missing:
            missing[name] -= missing[outer]
    for first, *others in TOGETHER:
        missing[first] -= set[int]().union(*(found[name][0] for name in others))
    gaps = {name: gap for name, gap in missing.items() if gap}
    assert {name: max(gap) for name, gap in gaps.items()} == NOT_YET
    assert all(max(gap) < min(found[name][0]) for name, gap in gaps.items())


#: Roles that hold only where the protocol has them: they began with some version.
BEGAN = {"throttle_time_ms", "error_message", "software_name", "software_version", "broker_id"}
#: Roles that another one replaces: topics have a name or an id.
EITHER = {"topic_name": "topic_id", "topic_id": "topic_name"}
#: (API, direction, role): why some versions have none.
WITHOUT = {
    (0, 0, "transactional_id"): "no transactions before version 3",
    (0, 1, "record_message"): "no errors of single records before version 8",
    (2, 0, "wait_ms"): "no timeout before version 10",
    (8, 0, "member_id"): "version 0 has no members", (28, 0, "member_id"): "no members before version 3",
    (9, 0, "member_id"): "no members before version 9",
    (9, 1, "group_id"): "before version 8 the group of the request",
    (10, 1, "entity_name"): "before version 4 the key of the request",
    (13, 1, "member_id"): "before version 3 the member of the request",
    (24, 1, "transactional_id"): "before version 4 the id of the request",
    (57, 1, "entity_name"): "version 2 has no results",
}  # fmt: skip


def roles_of(message: MessageLayout) -> dict[str, set[int]]:
    found = defaultdict[str, set[int]](set)

    def walk(struct: Struct, prefix: str, versions: set[int]) -> None:
        for item in struct.fields:
            mine = versions & set(item.versions)
            role = role_of(message, prefix + item.name, item, struct)
            if role:
                found[ROLE_NAMES[role]] |= mine
            if item.struct is not None:
                walk(item.struct, f"{prefix}{item.name}.", mine)

    walk(message.body, "", set(message.versions))
    return found


def test_each_role_has_a_source_in_every_version() -> None:
    missing = set()
    for (api_key, direction), message in load_messages().items():
        found = roles_of(message)
        for role, versions in found.items():
            covered = versions | found.get(EITHER.get(role, ""), set())
            if covered != set(message.versions) and role not in BEGAN:
                missing.add((api_key, direction, role))
    assert missing == WITHOUT.keys()
    assert roles_of(load_messages()[10, REQUEST])["coordinator_key"] == set(range(7))
