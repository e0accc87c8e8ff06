"""Keys of the traces in RFC 8448, and of TLS 1.2 as `cryptography` derives them."""

from __future__ import annotations

import pytest

from kafkatap.engine.tls.ciphers import make_cipher
from kafkatap.engine.tls.key_schedule import next_generation, pseudorandom, traffic_keys
from kafkatap.engine.tls.suites import CBC, SUITES

from .crafted import prf

#: Secrets, keys and IVs of section 3.
TRACES = {
    "client handshake": (
        "b3eddb126e067f35a780b3abf45e2d8f3b1a950738f52e9600746a0e27a55a21",
        "dbfaa693d1762c5b666af5d950258d01",
        "5bd3c71b836e0b76bb73265f",
    ),
    "server handshake": (
        "b67b7d690cc16c4e75e54213cb2d37b4e9c912bcded9105d42befd59d391ad38",
        "3fce516009c21727d0f2e4e86ee403bc",
        "5d313eb2671276ee13000b30",
    ),
    "client application": (
        "9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5",
        "17422dda596ed5d9acd890e3c63f5051",
        "5b78923dee08579033e523d9",
    ),
    "server application": (
        "a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643",
        "9f02283b6c9c07efc26bb9f2ac92e356",
        "cf782b88dd83549aadf1e984",
    ),
}
RECORD = bytes.fromhex(
    "1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8a5b46b395bd54a9a20441e2b62974e1f5a6292a2"
    "977014bd1e3deae63aeebb21694915e4"
)


@pytest.mark.parametrize("name", TRACES)
def test_traffic_keys(name: str) -> None:
    secret, key, iv = map(bytes.fromhex, TRACES[name])
    found = traffic_keys(SUITES[0x1301], secret)
    assert (found.key, found.iv) == (key, iv)
    assert key.hex() not in repr(found)


def test_a_record() -> None:
    keys = traffic_keys(SUITES[0x1301], bytes.fromhex(TRACES["client application"][0]))
    out = memoryview(bytearray(100))
    for count in range(2):
        cipher = make_cipher(0x0304, SUITES[0x1301], keys)
        method = (cipher.open, lambda record, out, find=cipher.find: find(record, out, 1))[count]
        assert method(memoryview(RECORD), out) == 50
        assert out[:50] == bytes(range(50))
        assert cipher.number == 1


def test_next_generation() -> None:
    secret = bytes.fromhex(TRACES["client application"][0])
    suite = SUITES[0x1301]
    once = next_generation(suite, secret)
    assert next_generation(suite, once, 2) == next_generation(suite, secret, 3)
    assert next_generation(suite, secret, 0) == secret


@pytest.mark.parametrize("length", [0, 1, 32, 33, 104])
def test_the_prf_of_tls_1_2(length: int) -> None:
    secret, seed = bytes(range(48)), b"key expansion" + bytes(64)
    assert pseudorandom("sha256", secret, seed, length) == prf(secret, seed, length)[:length]


def test_suites() -> None:
    for number, suite in SUITES.items():
        assert suite.number == number
        assert suite.key_length in (16, 32)
        assert (suite.kind == CBC) == bool(suite.mac)
