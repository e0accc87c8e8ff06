"""kio's parsers, generated from Kafka's definitions by others, read our random messages as the same values."""

from __future__ import annotations

import dataclasses
import datetime
import re
import uuid
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader

from kafkatap.dissector.dtypes import OK
from kafkatap.dissector.layouts.catalog import load_messages
from kafkatap.dissector.layouts.schema import REQUEST, RESPONSE, Struct
from tests.support.reference import decode_message

from ..support.messages import Taste, generate_message

SEEDS = range(4)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
#: Kafka 4.4 renamed these fields. kio has the names of 4.3; some messages had the newer name before.
OLDER_NAMES = {
    "GenerationIdOrMemberEpoch": "GenerationId",
    "generation_id_or_member_epoch": "generation_id",
    "AcceptableRecoveryLagLegacy": "AcceptableRecoveryLag",
}
LOADERS = {REQUEST: load_request_schema, RESPONSE: load_response_schema}


def test_kio_knows_302_pairs() -> None:
    assert sum(len(schema_name_map[name]) for name in api_key_map.values()) == 302


@pytest.mark.parametrize("api_key", list(api_key_map), ids=api_key_map.get)
def test_kio_reads_what_we_write(api_key: int) -> None:
    messages = load_messages()
    for version in schema_name_map[api_key_map[api_key]]:
        for direction, load in LOADERS.items():
            message = messages[api_key, direction]
            read = entity_reader(load(api_key, version))
            for seed in SEEDS:
                where = (message.name, direction, version, seed)
                data, value = generate_message(message, version, seed, Taste(tame=True, unknown_tags=False))
                ours = decode_message(message, version, data, strict=True)
                assert (ours.status, ours.value) == (OK, value), where
                body = data[1:] if message.has_header_tags(version) else data
                entity, size = read(body, 0)
                assert size == len(body), where
                compare(message.body, version, value, entity, f"{where}")


def compare(struct: Struct, version: int, value: dict[str, Any], entity: Any, where: str) -> None:
    """`value` (ours) against kio's object: the same fields in the same order, and every value that was sent."""
    fields = [field for field in struct.fields if version in field.versions]
    names = [field.name for field in dataclasses.fields(entity)]
    assert [plain(field.name) for field in fields] == [plain(name) for name in names], where
    for field, name in zip(fields, names, strict=True):
        if field.name not in value:
            assert version in field.tagged, where
            continue
        ours, theirs = value[field.name], getattr(entity, name)
        path = f"{where}.{field.name}"
        if field.is_array and ours is not None:
            assert len(ours) == len(theirs), path
            pairs = list(zip(ours, theirs, strict=True))
        else:
            pairs = [(ours, theirs)]
        for mine, other in pairs:
            if field.struct is not None and mine is not None:
                compare(field.struct, version, mine, other, path)
            else:
                assert mine == converted(other, mine), path


def plain(name: str) -> str:
    """A field's name without case and underscores, as in Kafka 4.3; kio leaves the unit of a duration out."""
    return re.sub(r"(ms|_)$", "", OLDER_NAMES.get(name, name).replace("_", "").lower())


def converted(other: Any, mine: Any) -> Any:
    """kio's value as our types: durations and times in milliseconds, a uuid as bytes (kio's None is the zero one)."""
    if isinstance(other, datetime.timedelta):
        return round(other / datetime.timedelta(milliseconds=1))
    if isinstance(other, datetime.datetime):
        return round((other - EPOCH) / datetime.timedelta(milliseconds=1))
    if isinstance(other, uuid.UUID):
        return other.bytes
    if other is None and mine == bytes(16):
        return mine
    return other
