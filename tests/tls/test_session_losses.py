"""Sessions when records are missing, keys change, and secrets are incomplete."""

from __future__ import annotations

import random

import pytest

from kafkatap.engine.tls import protection
from kafkatap.engine.tls.key_log import KeyLog
from kafkatap.engine.tls.session import Session
from kafkatap.reports.connection_words import D_DECRYPTED, D_NO_KEY, D_WRONG_KEY, TLS_EARLY_DATA, TLS_FULL, TLS_RESUMED

from .crafted import SUITES_13, Crafted12, Crafted13
from .talk import CLIENT, SERVER, Seen, see, see_continued

ALL_13 = pytest.mark.parametrize("suite", SUITES_13, ids=hex)
ALL_12 = pytest.mark.parametrize("suite", [0xC02F, 0xCCA8, 0xC027], ids=hex)


def read_with_losses(crafted: Crafted13 | Crafted12, lost: set[int]) -> Seen:
    """Read all records but these."""
    session = Session(crafted.key_log)
    whole = Seen(session, (bytearray(), bytearray()), [])
    for number, (direction, record) in enumerate(crafted.records):
        if number in lost:
            session.lost(direction)
            continue
        seen = see([(direction, record)], None, session)
        whole.opened += seen.opened
        for each in range(2):
            whole.plain[each].extend(seen.plain[each])
    return whole


@ALL_13
def test_suites_of_tls_1_3(suite: int) -> None:
    crafted = Crafted13(suite)
    crafted.hello()
    crafted.chat(5)
    crafted.send(CLIENT, b"padded", padding=100)
    crafted.send(SERVER, b"")
    crafted.send(SERVER, b"\x01\x00", 21)
    seen = see(crafted.records, crafted.key_log)
    assert seen.plain == crafted.plain
    assert all(opened[0] != -1 for opened in seen.opened)
    facts = seen.session.facts
    assert (facts.suite, facts.alpn, facts.alpn_offered, facts.server_name) == (suite, "h2", "h2", "abc")
    assert facts.decryption == D_DECRYPTED
    assert facts.alert == -1


@ALL_13
def test_lost_data_of_tls_1_3(suite: int) -> None:
    crafted = Crafted13(suite)
    crafted.hello()
    first = len(crafted.records)
    crafted.chat(30)
    for lost in ({first}, {first + 4, first + 6, first + 8}, set(range(first + 10, first + 40))):
        seen = read_with_losses(crafted, lost)
        kinds = [opened[0] for opened in seen.opened]
        assert -1 not in kinds
        skipped = sum(opened[3] for opened in seen.opened if opened[3] > 0)
        assert skipped == len(lost)
    # A loss that nobody noticed.
    del crafted.records[first + 5]
    seen = see(crafted.records, crafted.key_log)
    failed = [opened[0] for opened in seen.opened].count(-1)
    assert failed == (0 if suite in (0x1301, 0x1302) else 1)


@ALL_13
@pytest.mark.parametrize("number", range(1, 7))
def test_lost_handshake_records_of_tls_1_3(suite: int, number: int) -> None:
    """Any record of the handshake may be missing but the ClientHello."""
    crafted = Crafted13(suite)
    crafted.hello()
    assert len(crafted.records) == 7
    crafted.chat(3)
    seen = read_with_losses(crafted, {number})
    assert seen.session.facts.suite == suite
    assert seen.plain == crafted.plain
    assert -1 not in [opened[0] for opened in seen.opened]
    seen = read_with_losses(crafted, set(range(number, 7)))
    assert seen.plain == crafted.plain


@ALL_13
def test_key_updates(suite: int) -> None:
    crafted = Crafted13(suite)
    crafted.hello()
    crafted.chat(2)
    updates = []
    for direction in (CLIENT, SERVER, CLIENT):
        updates.append(len(crafted.records))
        crafted.update(direction)
        crafted.chat(2)
    seen = see(crafted.records, crafted.key_log)
    assert seen.plain == crafted.plain
    lossy = read_with_losses(crafted, set(updates))
    assert lossy.plain == crafted.plain
    assert sum(opened[3] == -1 for opened in lossy.opened) == 3
    # The records behind the update are missing too.
    lossy = read_with_losses(crafted, {updates[0], updates[0] + 1})
    assert -1 not in [opened[0] for opened in lossy.opened]


@ALL_13
def test_application_secrets_alone(suite: int) -> None:
    crafted = Crafted13(suite, labels="TRAFFIC_SECRET_0")
    crafted.hello()
    crafted.chat(3)
    seen = see(crafted.records, crafted.key_log)
    assert seen.plain == crafted.plain
    assert [opened[0] for opened in seen.opened].count(-1) == 3
    assert seen.session.facts.decryption == D_DECRYPTED


def test_handshake_secrets_alone() -> None:
    crafted = Crafted13(labels="HANDSHAKE")
    crafted.hello()
    crafted.chat(3)
    seen = see(crafted.records, crafted.key_log)
    assert seen.session.facts.alpn == "h2"
    assert seen.plain == (bytearray(), bytearray())
    assert seen.session.facts.decryption == D_NO_KEY


def test_secrets_that_come_late() -> None:
    crafted = Crafted13()
    crafted.hello()
    crafted.chat(3)
    log = KeyLog()
    session = Session(log)
    see(crafted.records[:-3], log, session)
    assert session.facts.decryption == D_NO_KEY
    log.add(crafted.keys)
    assert session.has_secrets()
    seen = see(crafted.records[-3:], log, session)
    assert all(opened[0] == 23 for opened in seen.opened)


@pytest.mark.parametrize("suite", [0xC02F, 0xCCA8, 0xC027], ids=hex)
def test_secrets_that_come_late_in_tls_1_2(suite: int) -> None:
    crafted = Crafted12(suite, first_nonce=77)
    crafted.hello()
    crafted.chat(3)
    log = KeyLog()
    session = Session(log)
    see(crafted.records[:-3], log, session)
    log.add(crafted.keys)
    seen = see(crafted.records[-3:], log, session)
    assert all(opened[0] == 23 for opened in seen.opened)


@ALL_13
def test_early_data(suite: int) -> None:
    crafted = Crafted13(suite, is_early=True)
    crafted.hello(early=[b"early", b"bird"])
    crafted.chat(2)
    seen = see(crafted.records, crafted.key_log)
    assert seen.plain == crafted.plain
    assert seen.plain[CLIENT].startswith(b"earlybird")
    assert seen.session.facts.session == TLS_EARLY_DATA
    assert -1 not in [opened[0] for opened in seen.opened]


def test_rejected_early_data() -> None:
    crafted = Crafted13(is_early=True)
    crafted.hello(early=[b"early", b"bird"], accepted=False)
    crafted.chat(2)
    late = crafted.records.pop(2)
    crafted.records.insert(6, late)  # still on its way when the server rejects it
    seen = see(crafted.records, crafted.key_log)
    assert seen.session.facts.session == TLS_RESUMED
    assert -1 not in [opened[0] for opened in seen.opened]
    assert b"bird" not in seen.plain[CLIENT]


def test_early_data_without_their_secret() -> None:
    crafted = Crafted13(is_early=True)
    crafted.hello(early=[b"early", b"bird"])
    crafted.chat(2)
    crafted.keys = b"".join(line for line in crafted.keys.splitlines(True) if b"EARLY" not in line)
    seen = see(crafted.records, crafted.key_log)
    assert seen.plain[SERVER] == crafted.plain[SERVER]
    assert seen.plain[CLIENT] == crafted.plain[CLIENT][9:]


@pytest.mark.parametrize("is_early", [False, True])
def test_hello_retry_request(is_early: bool) -> None:
    crafted = Crafted13(is_early=is_early)
    crafted.hello(retry=True, early=[b"early"] if is_early else None, accepted=False)
    crafted.chat(2)
    seen = see(crafted.records, crafted.key_log)
    assert bytes(seen.plain[CLIENT]).endswith(bytes(crafted.plain[CLIENT][5 * is_early :]))
    assert seen.plain[SERVER] == crafted.plain[SERVER]
    assert -1 not in [opened[0] for opened in seen.opened]


@ALL_13
def test_the_middle_of_a_connection(suite: int) -> None:
    crafted = Crafted13(suite)
    crafted.hello()
    crafted.chat(200)
    other = Crafted13(suite, seed=2)
    log = crafted.key_log
    log.add(other.keys)
    for start in (len(crafted.records) - 9, len(crafted.records) - 8):
        session = Session(log)
        direction, record = crafted.records[start]
        assert session.try_secrets(direction, memoryview(record), log.traffic_secrets())
        assert session.facts.client == CLIENT
        seen = see(crafted.records[start:], log, session)
        assert all(opened[0] == 23 for opened in seen.opened)
        assert session.facts.client_random == crafted.client_random
        log = crafted.key_log


def test_the_middle_of_a_connection_behind_key_updates() -> None:
    crafted = Crafted13(0x1302)
    crafted.hello()
    for direction in (CLIENT, SERVER, SERVER):
        crafted.update(direction)
    crafted.chat(50)
    start = len(crafted.records) - 9
    log = crafted.key_log
    session = Session(log)
    direction, record = crafted.records[start]
    assert session.try_secrets(direction, memoryview(record), log.traffic_secrets())
    assert all(opened[0] == 23 for opened in see(crafted.records[start:], log, session).opened)


def test_secrets_of_others() -> None:
    crafted, other = Crafted13(), Crafted13(seed=2)
    crafted.hello()
    crafted.chat(2)
    direction, record = crafted.records[-1]
    log = other.key_log
    assert not Session(log).try_secrets(direction, memoryview(record), log.traffic_secrets())
    log.trials.computations = log.trials.bytes = 0
    log.add(crafted.keys)
    assert not Session(log).try_secrets(direction, memoryview(record), log.traffic_secrets())
    wrong = KeyLog()
    wrong.add(other.keys.replace(other.client_random.hex().encode(), crafted.client_random.hex().encode()))
    seen = see(crafted.records, wrong)
    assert seen.session.facts.decryption == D_WRONG_KEY
    assert seen.plain == (bytearray(), bytearray())


@ALL_12
@pytest.mark.parametrize("first_nonce", [0, 2**64 - 20, 12345])
def test_lost_data_of_tls_1_2(suite: int, first_nonce: int) -> None:
    crafted = Crafted12(suite, first_nonce=first_nonce)
    crafted.hello()
    first = len(crafted.records)
    crafted.chat(30)
    seen = see(crafted.records, crafted.key_log)
    assert seen.plain == crafted.plain
    assert seen.session.facts.session == TLS_FULL or suite  # the session id is the client's
    for lost in ({first}, {first + 4, first + 6, first + 8}, set(range(first + 10, first + 40))):
        seen = read_with_losses(crafted, lost)
        assert -1 not in [opened[0] for opened in seen.opened]
        assert sum(opened[3] for opened in seen.opened if opened[3] > 0) == len(lost)


@ALL_12
@pytest.mark.parametrize("number", range(2, 7))
def test_lost_handshake_records_of_tls_1_2(suite: int, number: int) -> None:
    """Any record of the handshake may be missing but the hellos."""
    crafted = Crafted12(suite)
    crafted.hello()
    crafted.chat(3)
    seen = read_with_losses(crafted, {number})
    assert seen.plain == crafted.plain
    seen = read_with_losses(crafted, {3, 4})
    assert seen.plain == crafted.plain


@ALL_12
def test_renegotiation(suite: int) -> None:
    crafted = Crafted12(suite)
    crafted.hello()
    crafted.chat(3)
    crafted.hello()
    crafted.chat(3)
    seen = see(crafted.records, crafted.key_log)
    assert seen.plain == crafted.plain
    crafted.keys = crafted.keys.splitlines(True)[0]
    seen = see(crafted.records, crafted.key_log)
    assert crafted.plain[0].startswith(seen.plain[0])
    assert seen.plain[0]


@pytest.mark.parametrize("suite", [*SUITES_13, 0xC02F, 0xCCA8, 0xC027], ids=hex)
def test_bad_tags(suite: int) -> None:
    crafted = Crafted13(suite) if suite in SUITES_13 else Crafted12(suite)
    crafted.hello()
    first = len(crafted.records)
    crafted.chat(5)
    direction, record = crafted.records[first + 2]
    crafted.records[first + 2] = direction, record[:-1] + bytes((record[-1] ^ 1,))
    seen = see(crafted.records, crafted.key_log)
    assert [opened[0] for opened in seen.opened].count(-1) == 1
    assert [opened[3] for opened in seen.opened if opened[3]] == [1]
    # Bytes that are no record of the connection cost nothing.
    crafted.records.insert(first + 5, (direction, record[:5] + bytes(len(record) - 5)))
    crafted.records.insert(first + 7, (direction, record))
    seen = see(crafted.records, crafted.key_log)
    assert [opened[0] for opened in seen.opened].count(-1) == 3


@pytest.mark.parametrize("seed", range(10))
def test_random_losses(seed: int) -> None:
    chance = random.Random(seed)
    suite = chance.choice((*SUITES_13, 0xC02F, 0xCCA8, 0xC027))
    crafted = Crafted13(suite, seed) if suite in SUITES_13 else Crafted12(suite, seed)
    crafted.hello()
    first = len(crafted.records)
    crafted.chat(100)
    lost = {n for n in range(first, len(crafted.records)) if chance.random() < 0.2}
    seen = read_with_losses(crafted, lost)
    assert -1 not in [opened[0] for opened in seen.opened]
    kept = [r for n, r in enumerate(crafted.records) if n not in lost]
    assert len(kept) == len(seen.opened)


@pytest.mark.parametrize("suite", [*SUITES_13, 0xC02F, 0xCCA8, 0xC027], ids=hex)
def test_another_session_continues(suite: int) -> None:
    """It reads no handshake, and finds the numbers of the next records."""
    crafted = Crafted13(suite) if suite in SUITES_13 else Crafted12(suite)
    crafted.hello()
    crafted.chat(100)
    if isinstance(crafted, Crafted13):
        crafted.update(SERVER)
    crafted.chat(20)
    for at in (len(crafted.records) - 100, len(crafted.records) - 9):
        seen = see_continued(crafted.records, at, crafted.key_log)
        assert seen.plain == crafted.plain
        assert seen.session.facts.decryption == D_DECRYPTED
        assert seen.session.facts.client_random


@pytest.mark.parametrize("first_nonce", [0, 12_345, 2**64 - 3_000])
def test_long_losses_of_aes_gcm_in_tls_1_2(first_nonce: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """More records are lost than numbers are tried: a record tells its number, whatever its sender began with."""
    monkeypatch.setattr(protection, "FORWARD", 8)
    crafted = Crafted12(0xC02F, first_nonce=first_nonce)
    crafted.hello()
    first = len(crafted.records)
    crafted.chat(6_000)
    lost = set(range(first + 4, len(crafted.records) - 4))
    seen = read_with_losses(crafted, lost)
    assert -1 not in [opened[0] for opened in seen.opened]
    assert sum(opened[3] for opened in seen.opened if opened[3] > 0) == len(lost)
