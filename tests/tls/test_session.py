"""Sessions over records of real TLS ends."""

from __future__ import annotations

import ssl

import pytest

from kafkatap.engine.tls.suites import SUITES
from kafkatap.reports.connection_words import D_DECRYPTED, TLS_FULL, TLS_RESUMED

from .talk import END, ends, see, talk


def _suites() -> list[tuple[str, int]]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("ALL:@SECLEVEL=0:!aNULL:!PSK:!SRP:!DSS")
    found = [(c["name"], c["id"] & 0xFFFF) for c in context.get_ciphers()]
    return [(name, number) for name, number in found if number in SUITES]


TLS_12 = [(name, number) for name, number in _suites() if number >> 8 != 0x13]


#: Only suites with CBC can encrypt then MAC.
WAYS = [(name, number, way) for name, number in TLS_12 for way in ((True, False) if SUITES[number].mac else (True,))]


@pytest.mark.parametrize(("name", "number", "encrypt_then_mac"), WAYS)
def test_suites_of_tls_1_2(name: str, number: int, encrypt_then_mac: bool) -> None:
    both = ends(0x0303, name, "ec" if "ECDSA" in name else "rsa")
    if not encrypt_then_mac:
        both.client.options |= 0x80000  # SSL_OP_NO_ENCRYPT_THEN_MAC
    said = talk(both)
    assert said.suite == name
    seen = see(said.records, said.key_log)
    assert seen.plain == said.plain
    facts = seen.session.facts
    assert (facts.version, facts.suite, facts.decryption) == (0x0303, number, D_DECRYPTED)
    assert facts.handshake_done
    assert facts.session == TLS_FULL
    assert all(kind != -1 for kind, *_ in seen.opened)


def test_tls_1_3() -> None:
    said = talk(ends(0x0304))
    seen = see(said.records, said.key_log)
    assert seen.plain == said.plain
    facts = seen.session.facts
    assert (facts.version, facts.suite, facts.decryption) == (0x0304, 0x1302, D_DECRYPTED)
    assert facts.server_certificate == "broker.example"
    assert facts.server_certificate_end == int(END.timestamp()) * 10**9
    assert facts.server_name == "sni.example"
    assert facts.handshake_done
    assert all(kind != -1 for kind, *_ in seen.opened)
    assert facts.session == TLS_FULL


@pytest.mark.parametrize("version", [0x0303, 0x0304])
def test_resumption(version: int) -> None:
    both = ends(version)
    first = talk(both)
    second = talk(both, session=first.session)
    assert second.reused
    seen = see(second.records, second.key_log)
    assert seen.plain == second.plain
    assert seen.session.facts.session == TLS_RESUMED
    assert seen.session.facts.handshake_done
