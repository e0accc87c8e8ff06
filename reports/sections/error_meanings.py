"""What error codes mean that say more than that a request failed: something is broken, or is set up wrongly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Meaning(NamedTuple):
    """`label`: of the line. `text`: what the code says, in a part of a sentence; `{broker}`: who sent it. `follows`:
    codes that come to the same topics from then on."""

    label: str
    text: str
    follows: frozenset[str] = frozenset()

    @property
    def is_of_broker(self) -> bool:
        """Whether the line is on the broker that sent it."""
        return "{broker}" in self.text


#: By name of the code. Clients cannot mend these by a retry, whatever Kafka calls retriable. Source: Kafka's error
#: codes, and where the broker returns them.
MEANINGS: Mapping[str, Meaning] = {
    "OFFSET_OUT_OF_RANGE": Meaning(
        "failing",
        "it asked for offsets that the log does not have (any more): auto.offset.reset says which records it skips or "
        "reads again",
    ),
    "KAFKA_STORAGE_ERROR": Meaning(
        "disk failed",
        "a log directory of {broker} failed (full, or defective), and its partitions are offline there",
        frozenset((
            "LEADER_NOT_AVAILABLE", "NOT_LEADER_OR_FOLLOWER", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH",
            "REPLICA_NOT_AVAILABLE", "OFFSET_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PARTITION",
        )),
    ),
    "FENCED_INSTANCE_ID": Meaning("fenced", "two members have the same group.instance.id, and expel each other"),
    "UNRELEASED_INSTANCE_ID": Meaning("fenced", "two members have the same group.instance.id"),
    "PRODUCER_FENCED": Meaning(
        "fenced", "another producer began with the same transactional.id, or transaction.timeout.ms was over"
    ),
    "INVALID_PRODUCER_EPOCH": Meaning(
        "fenced", "another producer began with the same transactional.id, or transaction.timeout.ms was over"
    ),
    "NOT_ENOUGH_REPLICAS": Meaning(
        "failing", "fewer replicas are in sync than min.insync.replicas, so nothing is written with acks=all"
    ),
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": Meaning(
        "failing", "fewer replicas are in sync than min.insync.replicas: the records are written, and sent again"
    ),
    "MESSAGE_TOO_LARGE": Meaning(
        "failing", "a batch is larger than max.message.bytes of the topic, or message.max.bytes of the broker"
    ),
    "INVALID_TIMESTAMP": Meaning(
        "failing",
        "timestamps of records are further from the broker's clock than message.timestamp.after.max.ms or "
        "message.timestamp.before.max.ms of the topic: the clock of the client's host is wrong, or old data is sent "
        "again",
    ),
    "CORRUPT_MESSAGE": Meaning("failing", "the broker found batches damaged, or without the key of a compacted topic"),
    "INCONSISTENT_GROUP_PROTOCOL": Meaning(
        "failing", "the members of the group have no partition.assignment.strategy in common"
    ),
}  # fmt: skip
