"""Kinds of facts: which fields of which messages make a row.

A kind is one array of a message, or its top. Each element of the array makes one FACT row. `numbers` and `texts` name
the columns of the row by fields of the element. A row also has the topic, topic id, partition and error code of its
element, and the topic and partition of the elements around it.

A path may be a tuple: the paths of the same thing in different versions. Of an array of plain numbers, a column has the
first one.

A kind of `items` is an array of plain numbers or strings: each item makes a row, with the item in the column `item`.

A kind's number is its place in KINDS. Numbers are valid within one version of kafkatap only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple

#: Directions of messages, as in `layouts.schema`, which costs more to import.
REQUEST, RESPONSE = range(2)

#: Columns of a FACT row for numbers and for strings.
NUMBERS, TEXTS = 10, 4
#: Where a field's value goes: nowhere, to the numbers (TO_NUMBER + place) or texts of its element's row, or to another
#: column of it. TO_COUNT: the length of an array. TO_RECORDS: each record batch in the value makes a row. An element,
#: or an item of an array of plain values, has TO_ROW + the number of the kind whose row it begins.
TO_NOWHERE, TO_NUMBER, TO_TEXT = 0, 1, 1 + NUMBERS
TO_TOPIC, TO_TOPIC_ID, TO_PARTITION, TO_ERROR, TO_RECORDS, TO_COUNT, TO_ROW = 16, 17, 18, 19, 20, 21, 32


#: The path of a field or array, or its paths in different versions.
FieldPath = str | tuple[str, ...]


def paths(path: FieldPath) -> tuple[str, ...]:
    return (path,) if isinstance(path, str) else path


class FactKind(NamedTuple):
    """`element`: the path of the array, "" for the top of the message. `numbers`, `texts`: by column, a path from the
    element. `error`: the path of the error code, "" for none. `items`: the array has plain values ("number", "text").
    `length`: the path of an array of a kind without numbers. Its length is in the column `length` (-1: null).
    """

    name: str
    api_key: int
    direction: int
    element: FieldPath = ""
    numbers: Mapping[str, FieldPath] = {}
    texts: Mapping[str, str] = {}
    error: str = ""
    items: str = ""
    length: str = ""

    def fields(self, path: FieldPath) -> tuple[str, ...]:
        """The paths, from the top of the message, of a path from the element."""
        elements = paths(self.element)
        return tuple(f"{element}.{field}" if element else field for element in elements for field in paths(path))

    @property
    def columns(self) -> dict[str, str]:
        """The name of the FACT column of each column of the kind."""
        found = {name: f"v{i}" for i, name in enumerate(self.numbers)}
        found |= {name: f"s{i}" for i, name in enumerate(self.texts)}
        if self.items:
            found["item"] = "v0" if self.items == "number" else "s0"
        if self.length:
            found["length"] = "v0"
        return found


_SESSION = {"session_id": "SessionId", "session_epoch": "SessionEpoch"}
_PRODUCER = {"producer_id": "ProducerId", "producer_epoch": "ProducerEpoch"}
_MEMBER = {"group": "GroupId", "member": "MemberId"}
_COMMITS = {"offset": "CommittedOffset"}
_LEADER = {"leader": "Leader", "leader_epoch": "LeaderEpoch"}
_PARTITION_STATES = ("TopicStates.PartitionStates", "UngroupedPartitionStates")
_IN_SYNC = tuple(f"{path}.Isr" for path in _PARTITION_STATES)
_HEARTBEAT = {"member_epoch": "MemberEpoch"}
_HEARTBEAT_ANSWER = {**_HEARTBEAT, "interval_ms": "HeartbeatIntervalMs"}

#: The columns of rows that are made from headers of record batches, in the order of FACT's numbers. `attributes`: its
#: 16 bits, with the magic above them. Of message sets (magic 0 and 1) a row is a whole set, its sum.
BATCH_COLUMNS = (
    "bytes", "records", "attributes", "producer_id", "producer_epoch", "sequence", "crc", "first_timestamp",
    "max_timestamp", "base_offset",
)  # fmt: skip

#: All kinds. Those from `batch` on are not made from fields. Of record batches: `batch` is each, `batch sample` for
#: some of them. Of SASL tokens: `principal`, `sasl message` (of a client) and `sasl answer message`.
KINDS = (
    FactKind("produce", 0, REQUEST, numbers={"timeout_ms": "TimeoutMs"}, texts={"transactional_id": "TransactionalId"}),
    FactKind("produce partition", 0, REQUEST, "TopicData.PartitionData"),
    FactKind("produced partition", 0, RESPONSE, "Responses.PartitionResponses",
             {"base_offset": "BaseOffset", "log_append_ms": "LogAppendTimeMs", "log_start": "LogStartOffset"},
             error="ErrorCode"),
    FactKind("fetch", 1, REQUEST, numbers={
        **_SESSION, "max_bytes": "MaxBytes", "isolation_level": "IsolationLevel", "replica_id": "ReplicaId",
        "replica_state_id": "ReplicaState.ReplicaId"}, texts={"rack": "RackId"}),
    FactKind("fetch partition", 1, REQUEST, "Topics.Partitions",
             {"offset": "FetchOffset", "log_start": "LogStartOffset", "max_bytes": "PartitionMaxBytes"}),
    FactKind("forgotten partition", 1, REQUEST, "ForgottenTopicsData.Partitions", items="number"),
    FactKind("fetched", 1, RESPONSE, numbers={"session_id": "SessionId"}, error="ErrorCode"),
    FactKind("fetched partition", 1, RESPONSE, "Responses.Partitions",
             {"high_watermark": "HighWatermark", "stable_offset": "LastStableOffset", "log_start": "LogStartOffset",
              "preferred_replica": "PreferredReadReplica"}, error="ErrorCode"),
    FactKind("list offsets partition", 2, REQUEST, "Topics.Partitions", {"timestamp": "Timestamp"}),
    FactKind("listed partition", 2, RESPONSE, "Topics.Partitions",
             {"offset": ("Offset", "OldStyleOffsets"), "timestamp": "Timestamp"}, error="ErrorCode"),
    FactKind("metadata", 3, REQUEST, length="Topics"),
    FactKind("metadata topic", 3, REQUEST, "Topics"),
    FactKind("metadata broker", 3, RESPONSE, "Brokers", {"node": "NodeId", "port": "Port"},
             {"host": "Host", "rack": "Rack"}),
    FactKind("metadata partition", 3, RESPONSE, "Topics.Partitions",
             {"leader": "LeaderId", "leader_epoch": "LeaderEpoch"}, error="ErrorCode"),
    FactKind("in-sync replica", 3, RESPONSE, "Topics.Partitions.IsrNodes", items="number"),
    FactKind("replica", 3, RESPONSE, "Topics.Partitions.ReplicaNodes", items="number"),
    FactKind("leader state", 4, REQUEST, _PARTITION_STATES, {**_LEADER, "partition_epoch": "PartitionEpoch"}),
    FactKind("replica of leader state", 4, REQUEST, _IN_SYNC, items="number"),
    FactKind("live leader", 4, REQUEST, "LiveLeaders", {"node": "BrokerId", "port": "Port"}, {"host": "HostName"}),
    FactKind("updated partition", 6, REQUEST, _PARTITION_STATES, {**_LEADER, "partition_epoch": "ZkVersion"}),
    FactKind("replica of updated partition", 6, REQUEST, _IN_SYNC, items="number"),
    FactKind("live broker", 6, REQUEST, "LiveBrokers", {"node": "Id", "port": "V0Port"}, {"host": "V0Host"}),
    FactKind("live broker endpoint", 6, REQUEST, "LiveBrokers.Endpoints", {"port": "Port"}, {"host": "Host"}),
    FactKind("controlled shutdown", 7, REQUEST, numbers={"node": "BrokerId"}),
    FactKind("controlled shutdown answer", 7, RESPONSE, error="ErrorCode"),
    FactKind("commit", 8, REQUEST, numbers={"generation": "GenerationIdOrMemberEpoch"},
             texts={**_MEMBER, "instance": "GroupInstanceId"}),
    FactKind("commit partition", 8, REQUEST, "Topics.Partitions", _COMMITS),
    FactKind("committed partition", 8, RESPONSE, "Topics.Partitions", error="ErrorCode"),
    FactKind("offset fetch", 9, REQUEST, texts={"group": "GroupId"}),
    FactKind("offset fetch group", 9, REQUEST, "Groups", {"member_epoch": "MemberEpoch"}, _MEMBER),
    FactKind("fetched offsets", 9, RESPONSE, error="ErrorCode"),
    FactKind("fetched offset", 9, RESPONSE, "Topics.Partitions", _COMMITS, error="ErrorCode"),
    FactKind("fetched offset group", 9, RESPONSE, "Groups", texts={"group": "GroupId"}, error="ErrorCode"),
    FactKind("fetched offset of group", 9, RESPONSE, "Groups.Topics.Partitions", _COMMITS, error="ErrorCode"),
    FactKind("find coordinator", 10, REQUEST, numbers={"key_type": "KeyType"}, texts={"key": "Key"}),
    FactKind("find coordinator key", 10, REQUEST, "CoordinatorKeys", items="text"),
    FactKind("coordinator", 10, RESPONSE, numbers={"node": "NodeId", "port": "Port"}, texts={"host": "Host"},
             error="ErrorCode"),
    FactKind("coordinator of key", 10, RESPONSE, "Coordinators", {"node": "NodeId", "port": "Port"},
             {"key": "Key", "host": "Host"}, error="ErrorCode"),
    FactKind("join group", 11, REQUEST,
             numbers={"session_timeout_ms": "SessionTimeoutMs", "rebalance_timeout_ms": "RebalanceTimeoutMs"},
             texts={**_MEMBER, "instance": "GroupInstanceId", "reason": "Reason"}),
    FactKind("join protocol", 11, REQUEST, "Protocols", texts={"name": "Name", "metadata": "Metadata"}),
    FactKind("joined group", 11, RESPONSE, numbers={"generation": "GenerationId"},
             texts={"protocol": "ProtocolName", "leader": "Leader", "member": "MemberId"}, error="ErrorCode"),
    FactKind("joined member", 11, RESPONSE, "Members", texts={"member": "MemberId", "instance": "GroupInstanceId"}),
    FactKind("heartbeat", 12, REQUEST, numbers={"generation": "GenerationId"},
             texts={**_MEMBER, "instance": "GroupInstanceId"}),
    FactKind("heartbeat answer", 12, RESPONSE, error="ErrorCode"),
    FactKind("leave group", 13, REQUEST, texts=_MEMBER),
    FactKind("leaving member", 13, REQUEST, "Members",
             texts={"member": "MemberId", "instance": "GroupInstanceId", "reason": "Reason"}),
    FactKind("left group", 13, RESPONSE, error="ErrorCode"),
    FactKind("left member", 13, RESPONSE, "Members", texts={"member": "MemberId"}, error="ErrorCode"),
    FactKind("sync group", 14, REQUEST, numbers={"generation": "GenerationId"},
             texts={**_MEMBER, "instance": "GroupInstanceId"}),
    FactKind("sync assignment", 14, REQUEST, "Assignments", texts={"member": "MemberId", "assignment": "Assignment"}),
    FactKind("synced group", 14, RESPONSE, texts={"assignment": "Assignment"}, error="ErrorCode"),
    FactKind("sasl handshake", 17, REQUEST, texts={"mechanism": "Mechanism"}),
    FactKind("sasl handshake answer", 17, RESPONSE, error="ErrorCode"),
    FactKind("sasl mechanism", 17, RESPONSE, "Mechanisms", items="text"),
    FactKind("versions asked", 18, REQUEST,
             texts={"software": "ClientSoftwareName", "software_version": "ClientSoftwareVersion"}),
    FactKind("versions", 18, RESPONSE, error="ErrorCode"),
    FactKind("version range", 18, RESPONSE, "ApiKeys",
             {"api_key": "ApiKey", "min_version": "MinVersion", "max_version": "MaxVersion"}),
    FactKind("created topic", 19, RESPONSE, "Topics", {"code": "ErrorCode"}),
    FactKind("deleted topic", 20, RESPONSE, "Responses", {"code": "ErrorCode"}),
    FactKind("init producer", 22, REQUEST, numbers={"timeout_ms": "TransactionTimeoutMs", **_PRODUCER},
             texts={"transactional_id": "TransactionalId"}),
    FactKind("producer", 22, RESPONSE, numbers=_PRODUCER, error="ErrorCode"),
    FactKind("add partitions", 24, REQUEST,
             numbers={"producer_id": "V3AndBelowProducerId", "producer_epoch": "V3AndBelowProducerEpoch"},
             texts={"transactional_id": "V3AndBelowTransactionalId"}),
    FactKind("add partition", 24, REQUEST, "V3AndBelowTopics.Partitions", items="number"),
    FactKind("add partitions of", 24, REQUEST, "Transactions", {**_PRODUCER, "verify_only": "VerifyOnly"},
             {"transactional_id": "TransactionalId"}),
    FactKind("add partition of", 24, REQUEST, "Transactions.Topics.Partitions", items="number"),
    FactKind("added partitions", 24, RESPONSE, error="ErrorCode"),
    FactKind("added partition", 24, RESPONSE, "ResultsByTopicV3AndBelow.ResultsByPartition",
             error="PartitionErrorCode"),
    FactKind("added partitions of", 24, RESPONSE, "ResultsByTransaction",
             texts={"transactional_id": "TransactionalId"}),
    FactKind("added partition of", 24, RESPONSE, "ResultsByTransaction.TopicResults.ResultsByPartition",
             error="PartitionErrorCode"),
    FactKind("add offsets", 25, REQUEST, numbers=_PRODUCER,
             texts={"transactional_id": "TransactionalId", "group": "GroupId"}),
    FactKind("added offsets", 25, RESPONSE, error="ErrorCode"),
    FactKind("end transaction", 26, REQUEST, numbers={**_PRODUCER, "committed": "Committed"},
             texts={"transactional_id": "TransactionalId"}),
    FactKind("ended transaction", 26, RESPONSE, numbers=_PRODUCER, error="ErrorCode"),
    FactKind("marker", 27, REQUEST, "Markers", {**_PRODUCER, "committed": "TransactionResult",
                                               "coordinator_epoch": "CoordinatorEpoch"}),
    FactKind("marker partition", 27, REQUEST, "Markers.Topics.PartitionIndexes", items="number"),
    FactKind("written marker", 27, RESPONSE, "Markers.Topics.Partitions", error="ErrorCode"),
    FactKind("transaction commit", 28, REQUEST, numbers={**_PRODUCER, "generation": "GenerationIdOrMemberEpoch"},
             texts={"transactional_id": "TransactionalId", **_MEMBER}),
    FactKind("transaction commit partition", 28, REQUEST, "Topics.Partitions", _COMMITS),
    FactKind("sasl token", 36, REQUEST),
    FactKind("sasl answer", 36, RESPONSE, numbers={"lifetime_ms": "SessionLifetimeMs"},
             texts={"message": "ErrorMessage"}, error="ErrorCode"),
    FactKind("altered partition", 56, RESPONSE, "Topics.Partitions",
             {"leader": "LeaderId", "leader_epoch": "LeaderEpoch", "partition_epoch": "PartitionEpoch"},
             error="ErrorCode"),
    FactKind("replica of altered partition", 56, RESPONSE, "Topics.Partitions.Isr", items="number"),
    FactKind("described broker", 60, RESPONSE, "Brokers", {"node": "BrokerId", "port": "Port"}, {"host": "Host"}),
    FactKind("broker registration", 62, REQUEST, numbers={"node": "BrokerId"}),
    FactKind("broker registration answer", 62, RESPONSE, error="ErrorCode"),
    FactKind("broker listener", 62, REQUEST, "Listeners", {"port": "Port"}, {"host": "Host"}),
    FactKind("broker heartbeat", 63, REQUEST, numbers={"node": "BrokerId", "wants_shutdown": "WantShutDown"}),
    FactKind("broker heartbeat answer", 63, RESPONSE, numbers={"is_fenced": "IsFenced"}, error="ErrorCode"),
    FactKind("consumer heartbeat", 68, REQUEST, numbers={**_HEARTBEAT, "rebalance_timeout_ms": "RebalanceTimeoutMs"},
             texts={**_MEMBER, "instance": "InstanceId", "rack": "RackId"}),
    FactKind("consumer subscription", 68, REQUEST, "SubscribedTopicNames", items="text"),
    FactKind("consumer owned partition", 68, REQUEST, "TopicPartitions.Partitions", items="number"),
    FactKind("consumer heartbeat answer", 68, RESPONSE, numbers=_HEARTBEAT_ANSWER, texts={"member": "MemberId"},
             error="ErrorCode"),
    FactKind("consumer assigned topic", 68, RESPONSE, "Assignment.TopicPartitions"),
    FactKind("consumer assigned partition", 68, RESPONSE, "Assignment.TopicPartitions.Partitions", items="number"),
    FactKind("share heartbeat", 76, REQUEST, numbers=_HEARTBEAT, texts={**_MEMBER, "rack": "RackId"}),
    FactKind("share subscription", 76, REQUEST, "SubscribedTopicNames", items="text"),
    FactKind("share heartbeat answer", 76, RESPONSE, numbers=_HEARTBEAT_ANSWER, texts={"member": "MemberId"},
             error="ErrorCode"),
    FactKind("share assigned partition", 76, RESPONSE, "Assignment.TopicPartitions.Partitions", items="number"),
    FactKind("share fetch", 78, REQUEST, numbers={"session_epoch": "ShareSessionEpoch", "max_bytes": "MaxBytes"},
             texts=_MEMBER),
    FactKind("share fetch partition", 78, REQUEST, "Topics.Partitions"),
    FactKind("share forgotten partition", 78, REQUEST, "ForgottenTopicsData.Partitions", items="number"),
    FactKind("share fetched partition", 78, RESPONSE, "Responses.Partitions", error="ErrorCode"),
    FactKind("streams heartbeat", 88, REQUEST, numbers={**_HEARTBEAT, "shutdown": "ShutdownApplication"},
             texts={**_MEMBER, "instance": "InstanceId", "process": "ProcessId"}),
    FactKind("streams heartbeat answer", 88, RESPONSE, numbers=_HEARTBEAT_ANSWER, texts={"member": "MemberId"},
             error="ErrorCode"),
    FactKind("batch", 0, REQUEST),
    FactKind("fetched batch", 1, RESPONSE),
    FactKind("batch sample", -1, REQUEST),
    FactKind("principal", -1, REQUEST),
    FactKind("sasl message", -1, REQUEST),
    FactKind("sasl answer message", -1, REQUEST),
)  # fmt: skip
#: The number of each kind by its name.
NUMBER_OF = {kind.name: number for number, kind in enumerate(KINDS)}
BATCH, FETCHED_BATCH, BATCH_SAMPLE, PRINCIPAL, SASL_MESSAGE, SASL_ANSWER = (
    NUMBER_OF[name]
    for name in ("batch", "fetched batch", "batch sample", "principal", "sasl message", "sasl answer message")
)
#: Columns of the rows that are not made from fields. `principal`: the user name that a SASL token names. `message`: an
#: index of `facts.sasl_messages.MESSAGES`.
SPECIAL_COLUMNS = {
    BATCH: {name: f"v{i}" for i, name in enumerate(BATCH_COLUMNS)},
    FETCHED_BATCH: {name: f"v{i}" for i, name in enumerate(BATCH_COLUMNS)},
    BATCH_SAMPLE: {"bytes": "v0", "decompressed_bytes": "v1", "attributes": "v2", "is_damaged": "v3"},
    PRINCIPAL: {"principal": "s0", "mechanism": "s1"},
    SASL_MESSAGE: {"message": "v0"},
    SASL_ANSWER: {"message": "v0"},
}


@cache
def columns_of(number: int) -> Mapping[str, str]:
    """The FACT column of each column of a kind."""
    return SPECIAL_COLUMNS.get(number) or KINDS[number].columns


def rare_apis(kinds: Iterable[int]) -> frozenset[int]:
    """The keys of the APIs that have these kinds, without Produce and Fetch: they are most of the traffic."""
    return frozenset(KINDS[kind].api_key for kind in kinds) - {-1, 0, 1}
