"""TLS connections that continue in another run of the layer: what it has to know, and states to compare.

A run may begin in the middle of a connection whose handshake another run has read. `HandOver` says what the records are
protected with: versions, suite and randoms, but no secrets. The numbers of records are found by the first records that
open; `records` says about where they are. `layer_states` are equal for connections of which two runs read all later
records alike.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kafkatap.reports.connection_words import D_DECRYPTED, D_NO_HANDSHAKE, D_NO_KEY, D_NO_KEY_LOG, D_UNSUPPORTED

from .estimates import FIRST_TURNS, PATTERN_TURNS, TURN_NONE, TURN_RESPONSE
from .record_tables import (
    DECRYPTED,
    EMIT_ALL,
    EMIT_NONE,
    FLOW,
    FLOW_SEARCH,
    HOLDING,
    LINK_MIDDLE,
    LINK_PLAIN,
    LINK_TRACKED,
    TRACK,
)
from .tracked import BEGAN_ELSEWHERE, Tracked

if TYPE_CHECKING:
    from .key_log import KeyLog
    from .layer import TlsLayer
    from .session import Session

Array = np.ndarray[Any, Any]
_TLS_1_2, _TLS_1_3 = 0x0303, 0x0304
#: Records of which a run may be wrong when it counts those before a connection continues.
SLACK = 64
#: How a connection continues: it is no TLS; its chunks pass; plain bytes do; secrets are tried first.
IS_PLAIN, PASSES, IS_DECRYPTED, UNDECIDED = range(4)
#: Fields of a direction that say where its next record begins.
_PLACE = ("mode", "have", "need", "header", "missing", "before")
#: Fields of a turn, once its request has begun, and once its response has.
_REQUEST = ("requests", "writes", "request_last", "request_bytes", "request_records")
_RESPONSE = ("response_first", "response_last", "response_bytes", "response_records", "groups", "responses")


class HandOver(NamedTuple):
    """What the handshake of a connection shows, as far as later records depend on it. `client`: its direction.
    `generations`: by direction, the key updates of TLS 1.3 so far. `server_random`, `session`, `encrypt_then_mac`: of
    TLS 1.2. `turns`: what estimates depend on, the fields `is_13`, `turns`, `pattern_turns` and `is_suspended`."""

    client: int
    version: int
    suite: int
    client_random: bytes
    generations: tuple[int, int] = (0, 0)
    server_random: bytes = b""
    session: bytes = b""
    encrypt_then_mac: bool = False
    turns: tuple[int, int, int, int] = (0, 0, 0, 0)

    def pack(self) -> bytes:
        """As bytes; `unpack` reads them."""
        values = [value.hex() if isinstance(value, bytes) else value for value in self]
        return json.dumps(values, separators=(",", ":")).encode()

    @classmethod
    def unpack(cls, packed: bytes) -> HandOver:
        client, version, suite, client_random, generations, server_random, session, etm, turns = json.loads(packed)
        random, other = bytes.fromhex(client_random), bytes.fromhex(server_random)
        return cls(
            client, version, suite, random, tuple(generations), other, bytes.fromhex(session), etm, tuple(turns)
        )  # fmt: skip


def hand_over_of(layer: TlsLayer, tracked: Tracked) -> bytes:
    """What another run has to know of a connection, packed. Without its hellos that is little."""
    session = tracked.session
    facts, protection = session.facts, session._protection_13
    known = HandOver(facts.client, facts.version, facts.suite, facts.client_random, turns=quiet_turns(layer, tracked))
    client = int(layer._links["links"]["client"][tracked.connection]) if facts.client < 0 else facts.client
    unknown = HandOver(client, 0, 0, b"", turns=known.turns).pack()
    if not known.suite or not known.client_random or facts.client < 0:
        return unknown
    if facts.version == _TLS_1_3:
        if protection is not None and tracked.mode == DECRYPTED:
            first, second = protection.generations
            known = known._replace(generations=(first, second))
        return known.pack()
    if tracked.given:
        return HandOver.unpack(tracked.given)._replace(turns=known.turns).pack()
    chosen = session._server_hello
    if chosen is None or facts.version != _TLS_1_2:
        return unknown
    return known._replace(
        server_random=chosen.server_random, session=chosen.session, encrypt_then_mac=chosen.encrypt_then_mac
    ).pack()


def quiet_turns(layer: TlsLayer, tracked: Tracked) -> tuple[int, int, int, int]:
    """What later estimates of a connection depend on when it is quiet."""
    if tracked.slot < 0:
        return tracked.quiet_turns
    track = layer._slots["tracks"][tracked.slot]
    turns = min(int(track["turns"]), FIRST_TURNS + 1)
    is_13, pattern = int(track["is_13"]), min(int(track["pattern_turns"]), PATTERN_TURNS)
    return is_13, turns if is_13 else 0, pattern, int(track["is_suspended"])


def _continued(given: HandOver, key_log: KeyLog | None, records: Sequence[int]) -> Session:
    """A session whose handshake is over. `records`: with application data so far, by direction, about."""
    from .protection import APPLICATION, FORWARD_IN_MIDDLE, Origin, Protection13
    from .session import Session
    from .suites import SUITES

    session = Session(key_log)
    facts = session.facts
    facts.client = given.client if given.client_random else -1
    facts.version, facts.suite = given.version, given.suite
    facts.client_random, facts.server_random = given.client_random, given.server_random
    facts.handshake_done = True
    suite = SUITES.get(given.suite)
    if key_log is None:
        facts.decryption = D_NO_KEY_LOG
        return session
    if suite is None or given.version not in (_TLS_1_2, _TLS_1_3):
        facts.decryption = D_UNSUPPORTED
        return session
    facts.decryption = D_NO_HANDSHAKE
    protection: Any = session._protection_12
    if given.version == _TLS_1_3:
        session._protection_13 = protection = Protection13((suite,), given.client, session._look_up, False)
        session._ciphers = protection.ciphers
        for direction in range(2):
            protection.enter(direction, APPLICATION, given.generations[direction])
    else:
        origin = Origin(given.suite, given.client_random, given.server_random, given.session, given.encrypt_then_mac)
        master = session._master_of(origin)
        if master:
            protection.prepare(origin, given.client, master)
        for direction in range(2):
            protection.change(direction)
    is_known = all(cipher is not None for cipher in protection.ciphers)
    facts.decryption = D_DECRYPTED if is_known else D_NO_KEY
    for direction, cipher in enumerate(protection.ciphers):
        protection.is_lost[direction] = True
        protection.forward[direction] = FORWARD_IN_MIDDLE
        if cipher is not None and not given.generations[direction]:
            cipher.number = max(0, records[direction] - SLACK)
    return session


def resume_connection(layer: TlsLayer, connection: int, given: bytes | None, records: Sequence[int]) -> int:
    """Continue a connection from the next chunk on, whose START chunk says OPENING_RESUMED.

    Return how it continues: IS_PLAIN, PASSES, IS_DECRYPTED or UNDECIDED. `given`: as of `hand_over_of`; None if it is
    not TLS. `records`: with application data so far, by direction, about.
    """
    if layer._links.reserve(connection + 1):
        layer._kernel = None
    link = layer._links["links"][connection : connection + 1]
    link["slot"], link["tries"], link["client"] = -1, 0, -1
    if given is None:
        link["state"] = LINK_PLAIN
        return IS_PLAIN
    known = HandOver.unpack(given)
    if not known.client_random and layer.key_log is not None:
        link["state"] = LINK_MIDDLE
        return UNDECIDED
    session = _continued(known, layer.key_log, records)
    is_decrypted = session.facts.decryption == D_DECRYPTED
    slot = _take_slot(layer)
    link["slot"], link["state"], link["client"] = slot, LINK_TRACKED, known.client
    track = layer._slots["tracks"][slot : slot + 1]
    track[:] = np.zeros(1, TRACK)
    track["connection"], track["last_record"] = connection, 1
    track["is_13"], track["turns"], track["pattern_turns"], track["is_suspended"] = known.turns
    flows = layer._slots["flows"][2 * slot : 2 * slot + 2]
    flows[:] = np.zeros(2, FLOW)
    flows["row"], flows["mode"], flows["emit"] = -1, FLOW_SEARCH, EMIT_ALL if is_decrypted else EMIT_NONE
    tracked = Tracked(connection, slot, session, False, 0)
    tracked.handshake_ns = BEGAN_ELSEWHERE
    tracked.given, tracked.base = given, [records[0], records[1]]
    tracked.has_secrets = is_decrypted
    if is_decrypted:
        tracked.mode = DECRYPTED
    else:
        tracked.reason = session.facts.decryption if layer.key_log is not None else 0
    layer.add_resumed(tracked)
    return IS_DECRYPTED if is_decrypted else PASSES


def _take_slot(layer: TlsLayer) -> int:
    slots = layer._slots
    if not slots.free[0]:
        layer.grow_slots()
    left = int(slots.free[0])
    slots.free[0] = left - 1
    return int(slots.free[left])


def hand_overs(layer: TlsLayer, connections: Array) -> Iterator[tuple[bytes | None, int, int]]:
    """For each connection what another run has to know of it, as of `resume_connection`: `given` and both `records`."""
    for connection in connections.tolist():
        tracked = layer.tracked.get(connection)
        if tracked is None:
            yield None, 0, 0
            continue
        first, second = tracked.base
        if tracked.slot >= 0:
            flows = layer._slots["flows"][2 * tracked.slot : 2 * tracked.slot + 2]
            first, second = first + int(flows["records"][0]), second + int(flows["records"][1])
        yield hand_over_of(layer, tracked), first, second


def layer_states(layer: TlsLayer, connections: Array, are_plain: Array) -> Iterator[bytes]:
    """The state of each connection. `are_plain`: whether it is known to carry something else, so that it never will be
    TLS."""
    links = layer._links["links"]
    for connection, is_plain in zip(connections.tolist(), are_plain.tolist(), strict=True):
        link = links[connection] if connection < len(links) else None
        tracked = layer.tracked.get(connection)
        if tracked is not None and tracked.slot >= 0:
            yield _state(layer, tracked)
        elif link is None or is_plain or link["state"] == LINK_PLAIN:
            yield b""
        else:
            yield bytes([int(link["state"]), int(link["tries"])])


def _state(layer: TlsLayer, tracked: Tracked) -> bytes:
    if tracked.mode == HOLDING:
        return os.urandom(16)  # what waits is in no state
    flows = layer._slots["flows"][2 * tracked.slot : 2 * tracked.slot + 2]
    session, facts = tracked.session, tracked.facts
    state: list[Any] = [tracked.mode, facts.client, facts.version, facts.suite, facts.client_random.hex()]
    for flow in flows:
        places = [int(flow[name]) for name in _PLACE]
        state.append(places if tracked.mode == DECRYPTED or flow["have"] else places[:2])
        state.append(0 if tracked.mode == DECRYPTED else int(flow["was_full"]))
    if tracked.mode != DECRYPTED:
        state.append(_turn_state(layer, tracked))
    if tracked.mode == DECRYPTED:
        state += [tracked.pending, tracked.pending_failed if any(tracked.pending) else None]
        for direction, messages in enumerate(session._messages):
            cipher = session._ciphers[direction]
            state.append([messages.held.hex(), messages.skip])
            state.append(None if cipher is None else [cipher.suite.number, cipher.number, cipher.overhead])
        protection = session._protection_13 or session._protection_12
        state.append(protection.is_lost)
        if session._protection_13 is not None:
            state += [session._protection_13.stages, session._protection_13.generations]
    elif not facts.handshake_done and facts.client_random:
        state.append(session.state().hex())
    return json.dumps(state).encode()


def _turn_state(layer: TlsLayer, tracked: Tracked) -> list[Any]:
    """What later estimates depend on."""
    if layer._links["links"]["client"][tracked.connection] < 0:
        return []  # nobody knows which end requests, so there are none
    track = layer._slots["tracks"][tracked.slot]
    names = ["last_record", "waiting", "phase"]
    if track["phase"] != TURN_NONE:
        names += _REQUEST
    if track["phase"] == TURN_RESPONSE:
        names += _RESPONSE
    return [quiet_turns(layer, tracked), *(int(track[name]) for name in names)]


def discount(layer: TlsLayer) -> None:
    """Set the counts of all connections to 0: another run has them."""
    for tracked in layer.tracked.values():
        if tracked.slot >= 0:
            flows = layer._slots["flows"][2 * tracked.slot : 2 * tracked.slot + 2]
            tracked.base = [base + int(count) for base, count in zip(tracked.base, flows["records"], strict=True)]
            for name in ("records", "lost", "bytes"):
                flows[name] = 0
        tracked.counts = (0, 0, 0)
        tracked.failed = tracked.lost = tracked.estimated = 0
        tracked.read_bytes = tracked.plain_bytes = tracked.decrypted_bytes = 0
        tracked.handshake_ns = BEGAN_ELSEWHERE
