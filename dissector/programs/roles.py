"""What fields mean (roles), as numbers that kernels compare. Constants alone, so that they cost nothing to import."""

from __future__ import annotations

#: What a field means, by number (`Programs.roles`); names in ROLE_NAMES.
ROLE_NAMES = (
    "none", "error_code", "throttle_time_ms", "topic_name", "topic_id", "partition", "group_id", "transactional_id",
    "resource_name", "entity_name", "broker_id", "acks", "max_wait_ms", "min_bytes", "software_name",
    "software_version", "sasl_mechanism", "api_key", "max_version", "records", "base_offset", "high_watermark",
    "offset_other", "member_id", "error_message", "wait_ms", "coordinator_key", "record_message",
)  # fmt: skip
(
    R_NONE, R_ERROR_CODE, R_THROTTLE_TIME_MS, R_TOPIC_NAME, R_TOPIC_ID, R_PARTITION, R_GROUP_ID, R_TRANSACTIONAL_ID,
    R_RESOURCE_NAME, R_ENTITY_NAME, R_BROKER_ID, R_ACKS, R_MAX_WAIT_MS, R_MIN_BYTES, R_SOFTWARE_NAME,
    R_SOFTWARE_VERSION, R_SASL_MECHANISM, R_API_KEY, R_MAX_VERSION, R_RECORDS, R_BASE_OFFSET, R_HIGH_WATERMARK,
    R_OFFSET_OTHER, R_MEMBER_ID, R_ERROR_MESSAGE, R_WAIT_MS, R_COORDINATOR_KEY, R_RECORD_MESSAGE,
) = range(len(ROLE_NAMES))  # fmt: skip

#: Roles in the RECORDS profile alone: what says which records of a Fetch response a consumer drops.
R_FETCH_OFFSET, R_ISOLATION_LEVEL, R_ABORTED, R_ABORTED_PRODUCER, R_ABORTED_FIRST = range(
    len(ROLE_NAMES), len(ROLE_NAMES) + 5
)

_REQUEST, _RESPONSE = 0, 1
#: Messages with topic ids beside their names, by (api_key, direction): the first such version, and the path of the
#: topics. Metadata, CreateTopics, DeleteTopics, DescribeTopicPartitions; of controllers LeaderAndIsr, UpdateMetadata.
TOPIC_NAMES = {
    (3, _RESPONSE): (10, "Topics."), (19, _RESPONSE): (7, "Topics."), (20, _RESPONSE): (6, "Responses."),
    (75, _RESPONSE): (0, "Topics."), (4, _REQUEST): (5, "TopicStates."), (6, _REQUEST): (7, "TopicStates."),
}  # fmt: skip
NAMING_REQUESTS = tuple(key for key, direction in TOPIC_NAMES if direction == _REQUEST)
NAMING_RESPONSES = tuple(key for key, direction in TOPIC_NAMES if direction == _RESPONSE)
