"""What fields mean (roles), as numbers that kernels compare. Constants alone, so that they cost nothing to import."""

from __future__ import annotations

#: What a field means, by number (`Programs.roles`); names in ROLE_NAMES.
ROLE_NAMES = (
    "none", "error_code", "throttle_time_ms", "topic_name", "topic_id", "partition", "group_id", "transactional_id",
    "resource_name", "entity_name", "broker_id", "acks", "max_wait_ms", "min_bytes", "software_name",
    "software_version", "sasl_mechanism", "api_key", "max_version", "records", "base_offset", "high_watermark",
    "offset_other", "member_id", "error_message",
)  # fmt: skip
(
    R_NONE, R_ERROR_CODE, R_THROTTLE_TIME_MS, R_TOPIC_NAME, R_TOPIC_ID, R_PARTITION, R_GROUP_ID, R_TRANSACTIONAL_ID,
    R_RESOURCE_NAME, R_ENTITY_NAME, R_BROKER_ID, R_ACKS, R_MAX_WAIT_MS, R_MIN_BYTES, R_SOFTWARE_NAME,
    R_SOFTWARE_VERSION, R_SASL_MECHANISM, R_API_KEY, R_MAX_VERSION, R_RECORDS, R_BASE_OFFSET, R_HIGH_WATERMARK,
    R_OFFSET_OTHER, R_MEMBER_ID, R_ERROR_MESSAGE,
) = range(len(ROLE_NAMES))  # fmt: skip
