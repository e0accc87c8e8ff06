"""Which software probably made a ClientHello, by its JA4. The table is filled from recordings (samples/tls)."""

from __future__ import annotations

from typing import NamedTuple

#: Whether extensions and signature algorithms are those of the recordings, too, or the cipher suites alone.
LIKELY, PERHAPS = "likely", "perhaps"
_GO, _JAVA, _PYTHON, _NODE, _RUST = "Go", "Java", "Python", "Node.js", "Rust (rustls)"
#: librdkafka, and any other program that takes OpenSSL's suites as they are.
_OPENSSL = "OpenSSL client"
#: By the hash of the cipher suites: the software, and its hashes of extensions and signature algorithms.
_SUITES = {
    "f57a46bbacb6": (_GO, ("ab7e3b40a677", "fb48f8b98a29", "3b244d8fbcc8")),
    "a8cf61a50a39": (_GO, ("c60f93f0ffe7",)),
    "db35923f8641": (_JAVA, ("7c76daad20ec",)),
    "0ca14b6c4d46": (_JAVA, ("1f7ae294493e",)),
    "85036bcba153": (_PYTHON, ("d41ae481755e",)),
    "d68b136fe8d9": (_PYTHON, ("e7e480e5a997",)),
    "a33745022dd6": (_NODE, ("1f22a2ca17c4",)),
    "61a7ad8aa9b6": (_RUST, ("3fcd1a44f3e3", "d4929ced8316")),
    "1d37bd780c83": (_OPENSSL, ("8e6e362c5eac",)),
    "e8f1e7e78f70": (_OPENSSL, ("1f22a2ca17c4", "87f12a3f655c", "c9e58cc61e36", "dbd39dd1d406")),
    "16476d049b0b": (_OPENSSL, ("78f1d400d464",)),  # TLS 1.3 alone: Python's list is the same
}


class Probable(NamedTuple):
    """`sure`: LIKELY or PERHAPS."""

    software: str
    sure: str

    @property
    def in_words(self) -> str:
        """`probably Java`, `perhaps Java`."""
        return f"{'probably' if self.sure == LIKELY else self.sure} {self.software}"


def ja4_pattern(ja4: str) -> str:
    """`*_db35923f8641_7c76daad20ec`: a JA4 without its first part, which is another one if a client connects to an
    address and not to a name."""
    return f"*_{ja4.partition('_')[2]}"


def probable_software(ja4: str) -> Probable | None:
    """What probably made a ClientHello, by its JA4 or the pattern of it; None if no recording has such a one."""
    _, _, rest = ja4.partition("_")
    suites, _, extensions = rest.partition("_")
    found = _SUITES.get(suites)
    if found is None:
        return None
    software, known = found
    return Probable(software, LIKELY if extensions in known else PERHAPS)
