"""TLS connections that continue in another run of the layer: what it has to know, and states to compare.

A run may begin in the middle of a connection whose handshake another run has read. `Negotiated` says what the records
are protected with, but no secrets. The numbers of records are found by the first records that open; counts of records
say about where they are. `layer_states` are equal for connections of which two runs read all later records alike.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kafkatap.reports.connection_words import D_DECRYPTED

from .estimates import TURN_NONE, TURN_RESPONSE
from .facts import Negotiated, TlsFacts
from .layer import TlsLayer
from .record_tables import DECRYPTED, HOLDING, LINK_COUNTED, LINK_MIDDLE, LINK_PLAIN
from .tracked import BEGAN_ELSEWHERE, Tracked

Array = np.ndarray[Any, Any]
#: How a connection continues: it is no TLS; its chunks pass; plain bytes do; secrets are tried first.
IS_PLAIN, PASSES, IS_DECRYPTED, UNDECIDED = range(4)
#: Fields of a direction that say where its next record begins.
_PLACE = ("mode", "have", "need", "header", "missing", "before")
#: Fields of a turn, once its request has begun, and once its response has.
_REQUEST = ("requests", "writes", "request_last", "request_bytes", "request_records")
_RESPONSE = ("response_first", "response_last", "response_bytes", "response_records", "groups", "responses")


def hand_overs(layer: TlsLayer, connections: Array) -> Iterator[tuple[bytes | None, int, int]]:
    """For each connection what another run has to know of it, as of `resume_connection`: `given` and both `records`."""
    for connection in connections.tolist():
        tracked = layer.tracked.get(connection)
        if tracked is None:
            yield None, 0, 0
            continue
        known: Negotiated = tracked.facts
        known.turns = layer.turns(tracked)
        if not known.is_chosen:
            known = Negotiated(layer.client(tracked), turns=known.turns)
        first, second = layer.records(tracked)
        yield known.pack(), first, second


def resume_connection(layer: TlsLayer, connection: int, given: bytes | None, records: Sequence[int]) -> int:
    """Continue a connection from the next chunk on, whose START chunk says OPENING_RESUMED.

    Return how it continues: IS_PLAIN, PASSES, IS_DECRYPTED or UNDECIDED. `given`: as of `hand_overs`; None if it is not
    TLS. `records`: with application data so far, by direction, about.
    """
    if given is None:
        layer.begin_link(connection, LINK_COUNTED)
        return IS_PLAIN
    facts = TlsFacts.unpack(given)
    if not facts.client_random and layer.key_log is not None:
        layer.begin_link(connection, LINK_MIDDLE)
        return UNDECIDED
    from .session import Session

    session = Session.continued(facts, layer.key_log, records, layer.name_of_ends(connection))
    client = facts.client
    if not facts.client_random:
        facts.client = -1
    tracked = Tracked(connection, -1, session, False, 0)
    tracked.handshake_ns = BEGAN_ELSEWHERE
    tracked.base = [records[0], records[1]]
    tracked.has_secrets = is_decrypted = facts.decryption == D_DECRYPTED
    if is_decrypted:
        tracked.mode = DECRYPTED
    elif layer.key_log is not None:
        tracked.reason = facts.decryption
    layer.resume(tracked, client)
    return IS_DECRYPTED if is_decrypted else PASSES


def layer_states(layer: TlsLayer, connections: Array, are_plain: Array) -> Iterator[bytes]:
    """The state of each connection. `are_plain`: whether it is known to carry something else, so that it never will be
    TLS."""
    for connection, is_plain in zip(connections.tolist(), are_plain.tolist(), strict=True):
        link, tracked = layer.link(connection), layer.tracked.get(connection)
        if tracked is not None and tracked.slot >= 0:
            yield _state(layer, tracked)
        elif link is None or is_plain or link["state"] == LINK_PLAIN:
            yield b""
        elif link["state"] == LINK_COUNTED:
            yield bytes(int(link["headers"]))
        else:
            yield bytes([int(link["state"]), int(link["tries"]), int(link["headers"])])


def _state(layer: TlsLayer, tracked: Tracked) -> bytes:
    if tracked.mode == HOLDING:
        return os.urandom(16)  # what waits is in no state
    is_decrypted = tracked.mode == DECRYPTED
    session, facts = tracked.session, tracked.facts
    state: list[Any] = [tracked.mode, facts.client, facts.version, facts.suite, facts.client_random]
    for flow in layer.flows(tracked):
        places = [int(flow[name]) for name in _PLACE]
        state.append(places if is_decrypted or flow["have"] else places[:2])
        state.append(0 if is_decrypted else int(flow["was_full"]))
    if is_decrypted:
        state += [tracked.pending, tracked.pending_failed if any(tracked.pending) else None, session.records_state()]
    else:
        link = layer.link(tracked.connection)
        assert link is not None
        state += [int(link["headers"]), _turn_state(layer, tracked)]
        if not facts.handshake_done and facts.client_random:
            state.append(session.handshake_state())
        if tracked.outline is not None:
            state += tracked.outline.state()
    return json.dumps(state, default=bytes.hex).encode()


def _turn_state(layer: TlsLayer, tracked: Tracked) -> list[Any]:
    """What later estimates depend on."""
    link, track = layer.link(tracked.connection), layer.track(tracked)
    if link is None or link["client"] < 0:
        return []  # nobody knows which end requests, so there are none
    names = ["last_record", "waiting", "phase"]
    if track["phase"] != TURN_NONE:
        names += _REQUEST
    if track["phase"] == TURN_RESPONSE:
        names += _RESPONSE
    return [layer.turns(tracked), *(int(track[name]) for name in names)]
