"""Messages as JSON objects, one a line. docs/show.schema.json is their schema, docs/json.md describes their use.

Texts are as on the wire; bytes that are not UTF-8 become U+FFFD. What many messages share is written once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED, NO_INT32, OUTCOMES, STATUSES, TLS_VERSIONS
from kafkatap.dissector.kafka.error_codes import error_name
from kafkatap.dissector.layouts.catalog import api_name
from kafkatap.dissector.time_parts import DURATIONS
from kafkatap.dissector.tree.summary import Facts, NamedPlace
from kafkatap.reports.batch import uuid_text
from kafkatap.reports.units import SECOND, iso

from ..selected_messages import message as m
from ..selected_messages.message import Messages
from .lines import KeptTexts, each
from .tree_json import tree_json
from .viewing import LONGEST_TEXT, MessageViewer

Array = np.ndarray[Any, Any]
_DIRECTIONS = ("request", "response")
_ANSWER = "".join(f', "{name}": %d' for name in DURATIONS)
_text = json.dumps


class JsonMaker:
    """Makes the JSON of messages; with a `viewer` with header and body. `topics`: names by id; they may grow."""

    def __init__(self, topics: Mapping[bytes, str], viewer: MessageViewer | None = None) -> None:
        self._topics, self._viewer = topics, viewer
        self._facts = KeptTexts[str](topics)

    def lines(self, messages: Messages) -> list[str]:
        """The JSON of each message, in ASCII, without a line end."""
        heads, rows, objects = messages.heads, messages.rows, messages.objects
        bare = heads["token"].astype(bool)
        apis = zip(rows["api_key"].tolist(), rows["api_version"].tolist(), strict=True)
        columns = (
            self._times(heads["time"]), map(_DIRECTIONS.__getitem__, messages.are_responses.tolist()),
            rows["key"].tolist(), rows["connection"].tolist(), each(objects[:, m.CLIENT].tolist(), _text),
            each(objects[:, m.BROKER].tolist(), _text), each(objects[:, m.CLIENT_ID].tolist(), _client_id),
            each(list(apis), _api), _numbers(rows["correlation_id"], bare), messages.of_side("bytes").tolist(),
            messages.of_side("packet_first").tolist(), messages.of_side("packet_last").tolist(),
            each(np.where(bare, _TOKEN, heads["outcome"]).tolist(), _outcome),
            map(STATUSES.__getitem__, messages.of_side("status").tolist()),
            each(objects[:, m.PROBLEM].tolist(), _text),
            _numbers(problem_at := messages.of_side("problem_at"), problem_at == NO_INT32),
            self._facts.of(objects[:, m.FACTS].tolist(), self._text_of), self._ends(messages), self._trees(messages),
        )  # fmt: skip
        return [
            f'{{"time": "{time}", "direction": "{direction}", "exchange": "{exchange}", "connection": "{connection}", '
            f'"client": {client}, "broker": {broker}, "client_id": {client_id}, {api}, '
            f'"correlation_id": {correlation}, "bytes": {size}, "packet_first": {first}, "packet_last": {last}, '
            f'"outcome": {outcome}, "status": "{status}", "problem": {problem}, "problem_at": {at}, '
            f'{facts}{end}{tree}}}'
            for (
                time, direction, exchange, connection, client, broker, client_id, api, correlation, size, first, last,
                outcome, status, problem, at, facts, end, tree,
            ) in zip(*columns, strict=True)
        ]  # fmt: skip

    @staticmethod
    def _times(times: Array) -> list[str]:
        seconds = each((times // SECOND).tolist(), lambda second: iso(second * SECOND)[:-10])
        return [f"{second}{ns:09d}Z" for second, ns in zip(seconds, (times % SECOND).tolist(), strict=True)]

    def _text_of(self, facts: Facts) -> str:
        errors = [{"code": c, "name": error_name(c), "count": k} for c, k in sorted(facts.errors.items())]
        topics = [self._topic(place) for place in facts.places if place.is_topic]
        return f'"errors": {_text(errors)}, "topics": {_text(topics)}'

    def _topic(self, place: NamedPlace) -> dict[str, Any]:
        name = None if place.name is None else place.name[:LONGEST_TEXT].decode("utf-8", "replace")
        if not name and place.topic_id is not None:
            name = self._topics.get(place.topic_id)
        return {"topic": name, "topic_id": uuid_text(place.topic_id), "partitions": place.partitions}

    @staticmethod
    def _ends(messages: Messages) -> list[str]:
        """What only some messages have: `tls_version`, names of hosts, `records`, and the times of an answered
        exchange."""
        rows, numbers, found = messages.rows, messages.numbers, [""] * messages.total
        versions = rows["tls_version"]
        for place in np.flatnonzero(versions >= 0).tolist():
            found[place] = f', "tls_version": "{TLS_VERSIONS[versions[place]]}"'
        for name, host in (("client_host", m.CLIENT_HOST), ("broker_host", m.BROKER_HOST)):
            hosts = messages.objects[:, host].tolist()
            for place, text in enumerate(hosts if any(hosts) else ()):
                found[place] += f', "{name}": {_text(text)}' if text else ""
        places = np.flatnonzero(numbers["record_bytes"] >= 0)
        for place, (_, size, count, _) in zip(places.tolist(), numbers[places].tolist(), strict=True):
            found[place] += f', "records": {{"count": {count if count >= 0 else "null"}, "bytes": {size}}}'
        places = np.flatnonzero(messages.are_responses & (messages.heads["outcome"] == ANSWERED))
        durations = zip(*(rows[name][places].tolist() for name in DURATIONS), strict=True)
        polls, throttles = rows["long_poll"][places].tolist(), rows["throttle_time_ms"][places].tolist()
        for place, times, poll, throttle in zip(places.tolist(), durations, polls, throttles, strict=True):
            found[place] += (
                f'{_ANSWER % times}, "long_poll": {"true" if poll else "false"}, '
                f'"throttle_time_ms": {"null" if throttle == NO_INT32 else throttle}'
            )
        return found

    def _trees(self, messages: Messages) -> list[str]:
        """The parts of each message's tree, behind a comma."""
        if self._viewer is None:
            return [""] * messages.total
        return [f", {_text(tree_json(self._viewer.view(message)))[1:-1]}" for message in messages.each()]


#: The number of the outcome `token`.
_TOKEN = 255


def _outcome(number: int) -> str:
    if number == _TOKEN:
        return '"token"'
    return "null" if number == m.NOT_FINISHED else _text(OUTCOMES[number])


def _client_id(raw: bytes | None) -> str:
    return "null" if raw is None else _text(raw.decode("utf-8", "replace"))


def _api(key_and_version: tuple[int, int]) -> str:
    key, version = key_and_version
    known = (key, api_name(key), version) if key >= 0 else (None, None, None)
    return ", ".join(
        f'"api_{name}": {_text(value)}' for name, value in zip(("key", "name", "version"), known, strict=True)
    )


def _numbers(values: Array, are_null: Array) -> list[Any]:
    found: list[Any] = values.tolist()
    for place in np.flatnonzero(are_null).tolist():
        found[place] = "null"
    return found
