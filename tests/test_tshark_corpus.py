"""tshark, which reads Kafka by code of its own, shows the same values as kafkatap, wherever it knows the version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kafkatap import analyze
from kafkatap.dissector.dtypes import MALFORMED
from kafkatap.dissector.layouts.catalog import load_messages
from kafkatap.dissector.layouts.schema import Field, Struct
from tests.support.captures import read_bytes
from tests.support.reference import decode_message
from tests.support.wireshark import TSHARK, Framed, Place, Shown, read_framed, read_shown

pytestmark = pytest.mark.skipif(TSHARK is None, reason="needs tshark")

PRODUCE, FETCH, FIND_COORDINATOR, JOIN_GROUP, API_VERSIONS, ACLS = 0, 1, 10, 11, 18, (29, 30, 31)
#: Recordings whose clients and brokers speak versions that tshark 4.0 knows, and how many values at least are compared.
CAPTURES = {"diverse": 15_000, "apache-2.8": 400, "apache-0.10.2": 45_000, "apache-0.8.2": 30_000}

#: tshark's field (without "kafka.") and the names that its values have in Kafka's definitions.
NAMES = {
    "throttle_time": "ThrottleTimeMs",
    "member_id": "MemberId",
    "generation_id": "GenerationId GenerationIdOrMemberEpoch",
    "host": "Host HostName",
    "port": "Port",
    "leader_id": "LeaderId Leader",
    "isr_id": "IsrNodes Isr",
    "is_internal": "IsInternal",
    "isolation_level": "IsolationLevel",
    "min_bytes": "MinBytes",
    "max_bytes": "MaxBytes PartitionMaxBytes",
    "max_wait_time": "MaxWaitMs",
    "required_acks": "Acks",
    "fetch_session_id": "SessionId",
    "fetch_session_epoch": "SessionEpoch",
    "log_start_offset": "LogStartOffset",
    "last_stable_offset": "LastStableOffset",
    "transactional_id": "TransactionalId V3AndBelowTransactionalId",
    "transaction_timeout": "TransactionTimeoutMs",
    "producer_id": "ProducerId V3AndBelowProducerId",
    "producer_epoch": "ProducerEpoch V3AndBelowProducerEpoch",
    "session_timeout": "SessionTimeoutMs",
    "rebalance_timeout": "RebalanceTimeoutMs",
    "protocol_type": "ProtocolType",
    "rack": "Rack RackId",
    "cluster_id": "ClusterId",
    "error_message": "ErrorMessage",
    "client_software_name": "ClientSoftwareName",
    "client_software_version": "ClientSoftwareVersion",
    "sasl_mechanism": "Mechanism Mechanisms",
    "api_versions.api_key": "ApiKey",
    "api_versions.min_version": "MinVersion",
    "api_versions.max_version": "MaxVersion",
}
#: The same by what a field means.
ROLES = {"topic_name": "topic_name", "partition_id": "partition", "consumer_group": "group_id", "error": "error_code"}
#: What tshark shows under these names as well: fields of record batches, the host of an ACL under another name.
NOT_COMPARED = {
    ("producer_id", PRODUCE), ("producer_epoch", PRODUCE), ("transactional_id", FETCH), ("producer_id", FETCH),
    ("producer_epoch", FETCH), ("consumer_group", FIND_COORDINATOR), ("leader_id", JOIN_GROUP),
    *(("host", key) for key in ACLS),
}  # fmt: skip


def leaves(struct: Struct, value: dict[str, Any]) -> Iterator[tuple[Field, Any]]:
    """Every plain value of a message with its field, in the order of the wire."""
    for item in struct.fields:
        if item.name not in value:
            continue
        inner = value[item.name]
        for each in (inner or ()) if item.is_array else (inner,):
            if item.struct is None:
                yield item, each
            elif each is not None:
                yield from leaves(item.struct, each)


@cache
def shown_as(item: Field) -> str | None:
    """The name under which tshark shows a field."""
    for name, role in ROLES.items():
        if item.role == role and item.type != "uuid":
            return name
    return next((name for name, names in NAMES.items() if item.name in names.split()), None)


def as_shown(value: Any) -> str:
    if value is None:
        return "[ Null ]"
    return str(int(value)) if isinstance(value, bool) else str(value)


def is_read_well(shown: Shown, direction: int) -> bool:
    """Whether tshark knows the version and complains of nothing. In ApiVersions responses it complains of the versions
    that the broker offers, which says nothing of the message."""
    ends = "Dissected message does not end at the pdu length offset"
    if shown.api_key == API_VERSIONS and direction == 1:
        return shown.api_version < 3 and ends not in shown.remarks
    return not shown.remarks


def compare(shown: Shown, framed: Framed, direction: int, compared: Counter[str]) -> list[str]:
    """The differences between the two views of a message."""
    message = load_messages()[shown.api_key, direction]
    decoded = decode_message(message, shown.api_version, framed.body)
    if decoded.status == MALFORMED:
        return []  # some clients' mock brokers answer so; tshark shows what it finds beyond the end
    ours: dict[str, list[str]] = {}
    for item, value in leaves(message.body, decoded.value):
        name = shown_as(item)
        if name is not None:
            ours.setdefault(name, []).append(as_shown(value))
    differences = []
    for name in {*NAMES, *ROLES} & {*ours, *shown.values}:
        if (name, shown.api_key) in NOT_COMPARED:
            continue
        here, there = ours.get(name, []), shown.values.get(name, [])
        compared[name] += len(here)
        if Counter(here) != Counter(there):
            differences.append(
                f"{message.name} v{shown.api_version}/{direction} {name}: {here[:9]}, tshark {there[:9]}"
            )
    return differences


def answered_before(shown: Shown, place: Place, answers: dict[tuple[int, int], int]) -> bool:
    """Whether tshark gives a response to a request that an earlier packet answered: it pairs by correlation_id alone,
    and where a client uses one twice it takes the first request that had it."""
    packet, _, correlation_id = place
    return answers.get((int(shown.values["request_frame"][0]), correlation_id), packet) < packet


@pytest.mark.parametrize("name", CAPTURES)
def test_values_are_those_that_tshark_shows(corpus: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.pcap"
    path.write_bytes(read_bytes(next((corpus / "captures").glob(f"{name}.pcap*"))))
    rows = analyze(path).exchanges.to_pylist()
    framed = read_framed(path)
    shown = dict(read_shown(path, {row["broker_port"] for row in rows}))
    assert shown.keys() <= framed.keys()  # every message that tshark finds, in the same packet

    answers = {(row["request_packet_last"], row["correlation_id"]): row["response_packet_last"] or 0 for row in rows}
    clients = {(row["request_packet_last"], row["correlation_id"]): as_shown(row["client_id"]) for row in rows}
    compared: Counter[str] = Counter()
    differences = []
    for place, s in shown.items():
        packet, direction, correlation_id = place
        if direction == 0:
            assert s.values.get("client_id", ["[ Null ]"])[0] == clients[packet, correlation_id]
        if (s.api_key, s.api_version) != (framed[place].api_key, framed[place].api_version):
            assert direction == 1
            assert answered_before(s, place, answers), place
        elif is_read_well(s, direction):
            differences += compare(s, framed[place], direction, compared)
    assert not differences, "\n".join(differences[:20])
    assert compared.total() > CAPTURES[name]
