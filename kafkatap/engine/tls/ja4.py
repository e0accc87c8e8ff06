"""JA4, a fingerprint of what a client offers in its ClientHello: the public method of FoxIO (BSD licence).

    t13d1516h2_8daaf6152771_e5627efa2ab1

TLS over TCP, the highest version, `d` with a server name and `i` without, how many cipher suites and extensions, the
first and last character of the first ALPN protocol; a hash of the sorted suites; one of the sorted extensions, without
those of the server name and ALPN, and of the signature algorithms in their order. GREASE (RFC 8701) does not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256

from kafkatap.reports.tls_names import TLS_1_2, TLS_1_3

from .handshake import ALPN, SERVER_NAME, ClientHello

_VERSIONS = {TLS_1_3: "13", TLS_1_2: "12", 0x0302: "11", 0x0301: "10", 0x0300: "s3", 0x0002: "s2"}


def ja4(hello: ClientHello) -> str:
    """The fingerprint of a ClientHello over TCP."""
    return _ja4(
        hello.version, SERVER_NAME in hello.extensions, hello.suites, hello.extensions, hello.alpn[:1],
        hello.signature_algorithms,
    )  # fmt: skip


@lru_cache(1_024)
def _ja4(
    version: int, has_name: bool, suites: tuple[int, ...], extensions: tuple[int, ...], alpn: tuple[str, ...],
    algorithms: tuple[int, ...],
) -> str:  # fmt: skip
    offered, given = _without_grease(suites), _without_grease(extensions)
    head = f"t{_VERSIONS.get(version, '00')}{'d' if has_name else 'i'}{_count(offered)}{_count(given)}{_ends(alpn)}"
    hashed = _text(sorted(number for number in given if number not in (SERVER_NAME, ALPN)))
    if algorithms and hashed:
        hashed += "_" + _text(_without_grease(algorithms))
    return f"{head}_{_hash(_text(sorted(offered)))}_{_hash(hashed)}"


def _without_grease(numbers: Iterable[int]) -> list[int]:
    return [number for number in numbers if number & 0x0F0F != 0x0A0A or number >> 8 != number & 0xFF]


def _count(numbers: list[int]) -> str:
    return f"{min(len(numbers), 99):02}"


def _ends(alpn: tuple[str, ...]) -> str:
    """The first and last character of the first protocol; of its hexadecimal form if one is no letter or digit."""
    if not alpn or not alpn[0]:
        return "00"
    name = alpn[0]
    if not all(end.isascii() and end.isalnum() for end in (name[0], name[-1])):
        name = name.encode().hex()
    return name[0] + name[-1]


def _text(numbers: Iterable[int]) -> str:
    return ",".join(f"{number:04x}" for number in numbers)


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:12] if text else "0" * 12
