"""Profiles: which fields reach the tape. A report pays only for what it reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from ..layouts.catalog import built_in_names
from ..layouts.schema import REQUEST, RESPONSE
from .fact_kinds import (
    BATCH,
    KINDS,
    TO_COUNT,
    TO_ERROR,
    TO_NOWHERE,
    TO_NUMBER,
    TO_PARTITION,
    TO_RECORDS,
    TO_ROW,
    TO_TEXT,
    TO_TOPIC,
    TO_TOPIC_ID,
    FieldPath,
    paths,
)
from .fields import FETCH, JOIN_GROUP, K_COUNT, K_ELEMENT, K_VALUE, PRODUCE, SHARE_FETCH, FieldInfo
from .program import Programs
from .roles import (
    R_ABORTED,
    R_ABORTED_FIRST,
    R_ABORTED_PRODUCER,
    R_ACKS,
    R_API_KEY,
    R_BASE_OFFSET,
    R_COORDINATOR_KEY,
    R_ENTITY_NAME,
    R_ERROR_CODE,
    R_ERROR_MESSAGE,
    R_FETCH_OFFSET,
    R_GROUP_ID,
    R_HIGH_WATERMARK,
    R_ISOLATION_LEVEL,
    R_MAX_VERSION,
    R_MAX_WAIT_MS,
    R_MEMBER_ID,
    R_MIN_BYTES,
    R_OFFSET_OTHER,
    R_PARTITION,
    R_RECORD_MESSAGE,
    R_RECORDS,
    R_RESOURCE_NAME,
    R_SASL_MECHANISM,
    R_SOFTWARE_NAME,
    R_SOFTWARE_VERSION,
    R_THROTTLE_TIME_MS,
    R_TOPIC_ID,
    R_TOPIC_NAME,
    R_TRANSACTIONAL_ID,
    R_WAIT_MS,
    TOPIC_NAMES,
)


@dataclass(frozen=True, slots=True)
class Profile:
    """A selection of fields for the tape. `wanted` decides by field and version which fields have rows.

    An array element has a row, too, if anything inside of it is wanted. Without `zero_errors` an error code has a row
    only if it is not 0; an array with no other wanted field has no rows for its elements. With `head` a program ends
    behind the last wanted field of the body. `role`: the number of a field in place of its role.
    """

    name: str
    wanted: Callable[[FieldInfo, int], bool]
    zero_errors: bool = True
    head: bool = False
    role: Callable[[FieldInfo], int] | None = None


_ONE_OF_A_BODY = frozenset(
    (R_ACKS, R_MAX_WAIT_MS, R_WAIT_MS, R_MIN_BYTES, R_SOFTWARE_NAME, R_SOFTWARE_VERSION, R_SASL_MECHANISM,
     R_THROTTLE_TIME_MS, R_ERROR_CODE, R_API_KEY, R_MAX_VERSION)
)  # fmt: skip
_PLACES = frozenset(
    (R_TOPIC_NAME, R_TOPIC_ID, R_PARTITION, R_GROUP_ID, R_TRANSACTIONAL_ID, R_RESOURCE_NAME, R_ENTITY_NAME, R_RECORDS,
     R_BASE_OFFSET, R_HIGH_WATERMARK, R_OFFSET_OTHER, R_MEMBER_ID)
)  # fmt: skip
#: Requests that begin with the time for which a broker may hold them.
_WAITS = frozenset((PRODUCE, FETCH, SHARE_FETCH, JOIN_GROUP))
#: Kafka's messages with the records of topics: (api_key, direction).
CARRY_RECORDS = frozenset(((PRODUCE, REQUEST), (FETCH, RESPONSE), (SHARE_FETCH, RESPONSE)))
FETCH_REQUEST = FETCH, REQUEST


def _in_summary(field: FieldInfo, version: int) -> bool:
    if field.role in _ONE_OF_A_BODY:
        return True
    if field.role in (R_TOPIC_NAME, R_TOPIC_ID):
        first, path = TOPIC_NAMES.get((field.api_key, field.direction), (0, ""))
        return bool(path) and version >= first and field.path.startswith(path)
    if field.direction == REQUEST:
        # Results are made of a response when it turns out to hold errors: what its request named is needed then.
        top = field.element < 0 and field.type == "string"
        return top and field.role in (R_GROUP_ID, R_TRANSACTIONAL_ID, R_COORDINATOR_KEY) and field.api_key != PRODUCE
    return False


#: What a broker says of an error, in a response.
_MESSAGES = frozenset((R_ERROR_MESSAGE, R_RECORD_MESSAGE))


def _in_results(field: FieldInfo, version: int) -> bool:
    return _in_summary(field, version) or (field.role in _PLACES | _MESSAGES and field.kind == K_VALUE)


_LINE = _PLACES | {R_THROTTLE_TIME_MS, R_ERROR_CODE, R_ACKS}
#: Offsets of requests, which have no role: where a client reads, and what a group has read.
OFFSETS_OF_REQUESTS = frozenset(
    ((FETCH, REQUEST, "Topics.Partitions.FetchOffset"), (8, REQUEST, "Topics.Partitions.CommittedOffset"))
)


def _in_line(field: FieldInfo, version: int) -> bool:
    """The fields for one line of `show`: names, error codes, offsets, and the plain values at the top."""
    if field.kind != K_VALUE or field.type == "bytes":
        return False
    is_offset = (field.api_key, field.direction, field.path) in OFFSETS_OF_REQUESTS
    return field.role in _LINE or field.element < 0 or is_offset


#: Responses with the addresses of brokers, by api_key.
_NODES = {
    3: ("Brokers.NodeId", "Brokers.Host", "Brokers.Port"),
    60: ("Brokers.BrokerId", "Brokers.Host", "Brokers.Port"),
}
NODE_APIS = frozenset(_NODES)


def _in_nodes(field: FieldInfo, version: int) -> bool:
    return field.direction == RESPONSE and field.path in _NODES.get(field.api_key, ())


_DROPPED = {
    (FETCH, REQUEST, "IsolationLevel"): R_ISOLATION_LEVEL,
    (FETCH, REQUEST, "Topics.Partitions.FetchOffset"): R_FETCH_OFFSET,
    (FETCH, RESPONSE, "Responses.Partitions.AbortedTransactions#"): R_ABORTED,
    (FETCH, RESPONSE, "Responses.Partitions.AbortedTransactions.ProducerId"): R_ABORTED_PRODUCER,
    (FETCH, RESPONSE, "Responses.Partitions.AbortedTransactions.FirstOffset"): R_ABORTED_FIRST,
}


def _role_of_records(field: FieldInfo) -> int:
    return _DROPPED.get((field.api_key, field.direction, field.path), field.role)


def _in_records(field: FieldInfo, version: int) -> bool:
    if _role_of_records(field) != field.role:
        return True
    if (field.api_key, field.direction) == FETCH_REQUEST:
        return field.path.startswith("Topics.") and field.role in (R_TOPIC_NAME, R_TOPIC_ID, R_PARTITION)
    is_own = field.api_key in built_in_names() and (field.api_key, field.direction) not in CARRY_RECORDS
    if is_own or field.kind != K_VALUE:
        return False
    return field.role in (R_TOPIC_NAME, R_TOPIC_ID, R_PARTITION, R_RECORDS)


def with_records(programs: Programs) -> frozenset[tuple[int, int]]:
    """The messages whose records programs of the RECORDS profile find: (api_key, direction). Of the APIs that only
    definitions have, those with a `records` field."""
    if programs.definitions is None:
        return CARRY_RECORDS
    fields = (field for field in programs.fields if field.role == R_RECORDS and _in_records(field, 0))
    return CARRY_RECORDS | {(field.api_key, field.direction) for field in fields}


SUMMARY = Profile("summary", _in_summary, zero_errors=False)
RESULTS = Profile("results", _in_results)
LINE = Profile("line", _in_line, zero_errors=False)
NODES = Profile("nodes", _in_nodes)


def _in_head(field: FieldInfo, version: int) -> bool:
    if field.direction == RESPONSE:
        return field.role == R_THROTTLE_TIME_MS
    return field.role in (R_MAX_WAIT_MS, R_MIN_BYTES, R_WAIT_MS) and field.api_key in _WAITS


#: What matters for the other exchanges of the connection: the throttle time, and how long requests may wait.
HEAD = Profile("head", _in_head, head=True)
EVERYTHING = Profile("everything", lambda field, version: True)
#: No rows: only the status of a body.
NOTHING = Profile("nothing", lambda field, version: False)
#: The places of records, in the messages that carry them, and what says which of them consumers drop.
RECORDS = Profile("records", _in_records, role=_role_of_records)
_FACT_PLACES = {R_TOPIC_NAME: TO_TOPIC, R_TOPIC_ID: TO_TOPIC_ID, R_PARTITION: TO_PARTITION}
#: Messages whose records make rows.
_WITH_RECORDS = ((0, REQUEST), (1, RESPONSE), (78, RESPONSE))


@cache
def _declared() -> tuple[dict[tuple[int, int, str], int], frozenset[tuple[int, int, str]]]:
    """The number of each field that a kind of `fact_kinds` names, and the elements whose topic or partition a row
    needs."""
    numbers: dict[tuple[int, int, str], int] = {}
    around: set[tuple[int, int, str]] = set()
    for kind_number, kind in enumerate(KINDS[:BATCH]):
        message = kind.api_key, kind.direction
        places: list[tuple[FieldPath, int]] = [(path, TO_NUMBER + n) for n, path in enumerate(kind.numbers.values())]
        places += [(path, TO_TEXT + n) for n, path in enumerate(kind.texts.values())]
        places += [(kind.error, TO_ERROR)] if kind.error else []
        places += [(kind.length + "#", TO_COUNT)] if kind.length else []
        numbers |= {(*message, field): place for path, place in places for field in kind.fields(path)}
        for element in filter(None, paths(kind.element)):
            numbers[*message, element] = TO_ROW + kind_number
            parts = element.split(".")
            around.update((*message, ".".join(parts[: n + 1])) for n in range(len(parts)))
    return numbers, frozenset(around)


def _place_of(field: FieldInfo) -> int:
    """The number of a field in programs of the profile `facts`, which says where its value goes."""
    numbers, around = _declared()
    declared = numbers.get((field.api_key, field.direction, field.path))
    if declared is not None and field.kind in (K_VALUE, K_ELEMENT, K_COUNT):
        return declared
    if field.kind != K_VALUE:
        return TO_NOWHERE
    if field.role == R_RECORDS and (field.api_key, field.direction) in _WITH_RECORDS:
        return TO_RECORDS
    element = field.path.rpartition(".")[0]
    if field.role in _FACT_PLACES and (field.api_key, field.direction, element) in around and field.type != "records":
        return _FACT_PLACES[field.role]
    return TO_NOWHERE


#: The values that facts are made of (`fact_kinds`).
FACTS = Profile("facts", lambda f, version: f.kind in (K_VALUE, K_COUNT) and _place_of(f) != TO_NOWHERE, role=_place_of)
_ALL = (SUMMARY, RESULTS, HEAD, LINE, NODES, EVERYTHING, NOTHING, RECORDS, FACTS)
PROFILES = {profile.name: profile for profile in _ALL}
