"""A message as one JSON object. docs/show.schema.json is its schema, docs/json.md describes its use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkatap.dissector.dtypes import NO_INT32
from kafkatap.dissector.kafka.error_codes import error_name
from kafkatap.dissector.time_parts import DURATIONS
from kafkatap.dissector.tree.summary import NamedPlace
from kafkatap.reports.batch import uuid_text
from kafkatap.reports.units import iso

from ..selected_messages.message import Message
from .tree_json import tree_json
from .viewing import LONGEST_TEXT, MessageViewer


def message_json(message: Message, topics: Mapping[bytes, str], viewer: MessageViewer | None = None) -> dict[str, Any]:
    """A message as a dict; with a `viewer` its header and body as well. Texts are as on the wire; bytes that are not
    UTF-8 become U+FFFD."""
    facts = message.facts
    packet_first, packet_last = message.packets
    found: dict[str, Any] = {  # keys are texts: many programs read numbers beyond 2^53 as floats
        "time": iso(message.time),
        "direction": "response" if message.is_response else "request",
        "exchange": str(message.column("key")),
        "connection": str(message.column("connection")),
        "client": message.client,
        "broker": message.broker,
        "client_id": None if message.client_id is None else message.client_id.decode("utf-8", "replace"),
        "api_key": None if message.api_key < 0 else message.api_key,
        "api_name": None if message.api_key < 0 else message.api,
        "api_version": None if message.api_key < 0 else message.column("api_version"),
        "correlation_id": None if message.token else message.column("correlation_id"),
        "bytes": message.size,
        "packet_first": packet_first,
        "packet_last": packet_last,
        "outcome": "token" if message.token else message.outcome or None,
        "status": message.status,
        "problem": message.problem,
        "problem_at": message.problem_at,
        "errors": [{"code": c, "name": error_name(c), "count": k} for c, k in sorted(facts.errors.items())],
        "topics": [_topic(place, topics) for place in facts.places if place.is_topic],
    }
    if message.tls_version is not None:
        found["tls_version"] = message.tls_version
    if facts.records is not None:
        found["records"] = {"count": message.records, "bytes": sum(length for _, length in facts.records)}
    if message.is_response and message.outcome == "answered":
        found.update((name, message.column(name)) for name in DURATIONS)
        found["long_poll"] = bool(message.column("long_poll"))
        throttle = message.column("throttle_time_ms")
        found["throttle_time_ms"] = None if throttle == NO_INT32 else throttle
    return found if viewer is None else found | tree_json(viewer.view(message))


def _topic(place: NamedPlace, topics: Mapping[bytes, str]) -> dict[str, Any]:
    name = None if place.name is None else place.name[:LONGEST_TEXT].decode("utf-8", "replace")
    if not name and place.topic_id is not None:
        name = topics.get(place.topic_id)
    return {"topic": name, "topic_id": uuid_text(place.topic_id), "partitions": place.partitions}
