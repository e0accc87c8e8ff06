"""Random messages of every (api, version, direction) decode to the values that they were made of.

The messages come from Kafka's own definitions alone (tests/support/definition_messages.py).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkatap import Analysis, analyze
from kafkatap.dissector.layouts import catalog
from tests.support.definition_messages import Exchange, Message, random_exchanges, read_definitions, write_exchanges
from tests.support.sweeps import seeds

Renamed = dict[tuple[int, str], dict[str, str]]

#: By release: names that a newer one gave to fields of the same bytes, by (api key, direction).
RENAMED: dict[str, Renamed] = {
    "3.9-trunk": {
        (28, "request"): {"GenerationId": "GenerationIdOrMemberEpoch"},
        (52, "request"): {
            "CandidateEpoch": "ReplicaEpoch", "CandidateId": "ReplicaId", "CandidateDirectoryId": "ReplicaDirectoryId",
        },
        (74, "response"): {"ClientMetricsResources": "ConfigResources", "Name": "ResourceName"},
    },
    "4.3.0": {
        (28, "request"): {"GenerationId": "GenerationIdOrMemberEpoch"},
        (88, "response"): {"AcceptableRecoveryLag": "AcceptableRecoveryLagLegacy"},
    },
    "4.4.0": {},
}  # fmt: skip
#: The API that got another layout since, as it was not stable: (release, api key).
RELAID = ("3.9-trunk", 87)


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    catalog.forget_names()


@pytest.mark.parametrize("seed", seeds(8, short=1))
@pytest.mark.parametrize("release", RENAMED)
def test_messages_decode_to_their_values(corpus: Path, tmp_path: Path, release: str, seed: int) -> None:
    """With the built-in definitions, and with those of the release, which have its names."""
    folder, capture = corpus / "kafka-messages" / release, tmp_path / "random.pcap"
    exchanges = write_exchanges(capture, list(random_exchanges(read_definitions(folder), seed)))
    own = {client: e for client, e in exchanges.items() if (release, e.api_key) != RELAID}
    assert_same(analyze(capture), own, RENAMED[release])
    assert_same(analyze(capture, definitions=folder), exchanges, {})


def assert_same(analysis: Analysis, exchanges: dict[str, Exchange], renamed: Renamed) -> None:
    """Assert that each exchange decodes to its values, under these names."""
    seen = Counter[str]()
    for found in analysis.messages(records=True, secrets=True):
        exchange, direction = exchanges.get(found["client"]), found["direction"]
        if exchange is None:
            continue
        message: Message = getattr(exchange, direction)
        found["errors"] = {each["code"]: each["count"] for each in found["errors"]}
        wanted = {
            "api_key": exchange.api_key, "api_version": exchange.version, "status": "ok", "header": message.header,
            "body": named(message.body, renamed.get((exchange.api_key, direction), {})),
            "errors": Counter(error_codes(message.body) if direction == "response" else ()),
        }  # fmt: skip
        assert text({name: plain(found[name]) for name in wanted}) == text(wanted), found["client"]
        seen[direction] += 1
    assert seen == {"request": len(exchanges), "response": len(exchanges)}


def error_codes(value: Any) -> Iterator[int]:
    """The error codes at any level of a body."""
    for name, item in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(item, (dict, list)) and name != "ResponseData":  # an Envelope's own codes
            yield from error_codes(item)
        elif str(name).endswith("ErrorCode") and item:
            yield item


def text(value: Any) -> str:
    """JSON that differs where types do."""
    return json.dumps(value, sort_keys=True, indent=1, allow_nan=False)


def plain(value: Any) -> Any:
    """JSON without names of values and without batches."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "batches" in value:
        return {"size": value["size"]}
    names = {f"{name}_name" for name in value}
    return {name: plain(item) for name, item in value.items() if name not in names}


def named(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, list):
        return [named(item, names) for item in value]
    return {names.get(k, k): named(v, names) for k, v in value.items()} if isinstance(value, dict) else value
