"""Error codes that say more than that a request failed: something is broken, or is set up wrongly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafkatap.dissector.kafka.error_codes import error_codes


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


#: What is broken or set up wrongly, by the label of its line. A retry does not mend it, whatever Kafka calls retriable.
_LABELS = {
    "failing": (
        "OFFSET_OUT_OF_RANGE", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "MESSAGE_TOO_LARGE",
        "INVALID_TIMESTAMP", "CORRUPT_MESSAGE", "INCONSISTENT_GROUP_PROTOCOL", "INVALID_RECORD",
        "UNSUPPORTED_COMPRESSION_TYPE", "OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_ID_MAPPING",
        "INVALID_RECORD_STATE",
    ),
    "disk failed": ("KAFKA_STORAGE_ERROR",),
    "fenced": ("FENCED_INSTANCE_ID", "UNRELEASED_INSTANCE_ID", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"),
    "denied": (
        "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "DELEGATION_TOKEN_AUTHORIZATION_FAILED",
    ),
}  # fmt: skip
_LABEL_OF = {name: label for label, names in _LABELS.items() for name in names}
_OF_FENCED = frozenset((
    "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_TXN_STATE", "INVALID_PRODUCER_ID_MAPPING",
    "CONCURRENT_TRANSACTIONS", "TRANSACTION_ABORTABLE", "OUT_OF_ORDER_SEQUENCE_NUMBER",
))  # fmt: skip
_FOLLOWS = {
    "PRODUCER_FENCED": _OF_FENCED,
    "INVALID_PRODUCER_EPOCH": _OF_FENCED,
    "KAFKA_STORAGE_ERROR": frozenset((
        "LEADER_NOT_AVAILABLE", "NOT_LEADER_OR_FOLLOWER", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH",
        "REPLICA_NOT_AVAILABLE", "OFFSET_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PARTITION",
    )),
}  # fmt: skip
#: Error codes that follow from a broker that is gone or comes back: its leaders, coordinators, replicas and members.
#: LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT, BROKER_NOT_AVAILABLE, REPLICA_NOT_AVAILABLE,
#: STALE_CONTROLLER_EPOCH (the broker was the controller), NETWORK_EXCEPTION, COORDINATOR_LOAD_IN_PROGRESS,
#: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND,
#: ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, NOT_CONTROLLER, FETCH_SESSION_ID_NOT_FOUND,
#: INVALID_FETCH_SESSION_EPOCH, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, STALE_BROKER_EPOCH, INELIGIBLE_REPLICA,
#: DUPLICATE_BROKER_REGISTRATION, BROKER_ID_NOT_REGISTERED.
OF_CHANGES = (5, 6, 7, 8, 9, 11, 13, 14, 15, 16, 19, 20, 22, 25, 27, 41, 70, 71, 74, 75, 77, 101, 102, 107)
#: By name of the code.
MEANINGS: Mapping[str, Meaning] = {
    each.name: Meaning(_LABEL_OF[each.name], each.text, _FOLLOWS.get(each.name, frozenset()))
    for each in error_codes().values()
    if each.name in _LABEL_OF
}
