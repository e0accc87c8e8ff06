"""How much of a run's traffic is TLS, how much of it was decrypted, and why the rest was not: one sentence for all.

The report, the first lines, the doctor and the page take their words from here, so that they never disagree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kafkatap.kernels.arrays import distinct_values

from . import units
from .batch import Array, Context
from .connection_words import (
    D_CUT,
    D_DECRYPTED,
    D_FAILED_HANDSHAKE,
    D_LATE_KEY,
    D_NO_HANDSHAKE,
    D_NO_KEY,
    D_NO_KEY_LOG,
    D_NOT_TLS,
    D_UNSUPPORTED,
    D_WRONG_KEY,
    NOT_DECRYPTED,
    WERE_DECRYPTED,
)
from .counting.connection_counts import TLS_KEY, TLS_VALUES, connection_totals

#: Shares of the payload below this are not mentioned.
NAMED_SHARE = 0.005
#: From this share on, most of what happened is not known.
MUCH = 0.5
#: Why traffic was not decrypted, in words.
WHY = {
    D_NO_KEY_LOG: "no key log was given",
    D_NO_KEY: "the key log has no secret for it",
    D_NO_HANDSHAKE: "the handshake was not captured",
    D_CUT: "bytes of its handshake were not captured",
    D_UNSUPPORTED: "its cipher suite or version is not supported",
    D_WRONG_KEY: "the secret in the key log does not decrypt it",
    D_FAILED_HANDSHAKE: "the handshake failed",
    D_LATE_KEY: "the key came too late",
    D_DECRYPTED: "records were lost or could not be decrypted",
}
_HELP = {
    D_NO_KEY_LOG: "--keylog FILE decrypts it with the secrets of clients or brokers; `kafkatap keys --pid PID -o FILE` "
    "takes those of open connections out of a running JVM",
    D_NO_KEY: "key logs of the other clients, or of the brokers, would decrypt more",
    D_NO_HANDSHAKE: "a capture that begins before its connections can be decrypted",
    D_CUT: "whole packets are needed (tcpdump -s 0)",
    D_WRONG_KEY: "the key log must be of the same sessions as the capture",
}
PAGE = "docs/tls.md"


class Encryption(NamedTuple):
    """`encrypted`, `decrypted`: shares of the TCP payload that are TLS, and were not or were decrypted: 0 to 1.
    `connections`: TLS connections by decryption (D_...), and `bytes` their payload that was not decrypted."""

    encrypted: float
    decrypted: float
    connections: Mapping[int, int]
    bytes: Mapping[int, int]

    @property
    def tls(self) -> float:
        """The share of the TCP payload that is TLS."""
        return min(self.encrypted + self.decrypted, 1.0)

    @property
    def decrypted_connections(self) -> int:
        """TLS connections that were decrypted, at least from some record on."""
        return sum(self.connections.get(decryption, 0) for decryption in WERE_DECRYPTED)

    @property
    def reasons(self) -> list[int]:
        """Why traffic was not decrypted: D_..., those with most bytes first."""
        found = [n for n in (*NOT_DECRYPTED, *WERE_DECRYPTED) if self.bytes.get(n, 0) > 0]
        return sorted(found, key=lambda n: (-self.bytes[n], n))

    def in_words(self) -> str:
        """`31 % of the payload is TLS: 22 % was decrypted; 9.0 % was not, as ...`; "" without TLS."""
        if not self.tls:
            return ""
        head = f"{units.share(self.tls)} of the payload is TLS"
        why = self.why()
        if not self.encrypted:
            return f"{head} and was decrypted"
        if not self.decrypted:
            return f"{head} and was not decrypted" + (f": {why}" if why else "")
        parts = f"{units.share(self.decrypted)} was decrypted; {units.share(self.encrypted)} was not"
        return f"{head}: {parts}" + (f", as {why}" if why else "")

    def why(self) -> str:
        """The reasons with their connections."""
        texts = []
        for reason in self.reasons:
            count = self.connections.get(reason, 0)
            whose = f"{count:,} connection{'' if count == 1 else 's'}"
            texts.append(f"{WHY[reason]} ({whose})")
        return _listed(texts)

    def help(self) -> str:
        """What would decrypt more, in a sentence; "" if nothing would."""
        found = [_HELP[reason] for reason in self.reasons if reason in _HELP]
        if not found:
            return ""
        text = "; ".join(found[:2])
        return f"{text[0].upper()}{text[1:]} ({PAGE})."

    def sentences(self) -> str:
        """What was not decrypted and why, and what would help; "" without TLS. The heading has the reasons, too, if
        something was decrypted."""
        words = self.in_words()
        if self.decrypted and self.encrypted:
            words = f"{units.share(self.encrypted)} of the payload is TLS and was not decrypted"
        return " ".join(filter(None, (f"{words}.", self.help()))) if words else ""


def is_mostly_encrypted(context: Context) -> bool:
    """Whether most of the payload was not decrypted."""
    return context.encrypted_share >= MUCH


def encryption_of(context: Context) -> Encryption:
    """What a run knows about its TLS traffic."""
    counted = connection_totals(context)
    keys, values = counted.tls.key_rows(), counted.tls.value_rows()
    decryption = keys[:, TLS_KEY.index("tls_decryption")]
    found = {name: values[:, i] for i, name in enumerate(TLS_VALUES)}
    connections = _sums(decryption, found["connections"])
    sizes = _sums(decryption, found["bytes"])
    left = {n: size for n, size in sizes.items() if n != D_DECRYPTED}
    if D_LATE_KEY in left:
        left[D_LATE_KEY] -= _sums(decryption, found["tls_decrypted_bytes"])[D_LATE_KEY]
    payload = {part: n for part, n in context.ledger.get("payload bytes", {}).items() if part != "total"}
    total = sum(payload.values()) - payload.get("duplicate", 0) or counted.total("bytes")
    if D_DECRYPTED in connections:
        left[D_DECRYPTED] = max(payload.get("encrypted", 0) - sum(left.values()), 0)
    read = sum(sizes.get(n, 0) - left.get(n, 0) for n in WERE_DECRYPTED)
    has_keys = connections.keys() - {D_NO_KEY_LOG, D_FAILED_HANDSHAKE}
    if has_keys and D_NO_KEY_LOG in connections:  # recognized in the middle, beside others with a key log
        for counts in (connections, left):
            counts[D_NO_HANDSHAKE] = counts.get(D_NO_HANDSHAKE, 0) + counts.pop(D_NO_KEY_LOG)
    decrypted = min(read / total, 1 - context.encrypted_share) if total else 0.0
    return Encryption(context.encrypted_share, max(decrypted, 0.0), connections, left)


def decrypted_share(context: Context) -> float:
    """The share of the TCP payload that is TLS and was decrypted: 0 to 1."""
    return encryption_of(context).decrypted


def _sums(decryption: Array, numbers: Array) -> dict[int, int]:
    """Numbers added up by decryption, without those that are no connections."""
    found = {int(n): int(numbers[decryption == n].sum()) for n in distinct_values(decryption).tolist()}
    return {n: total for n, total in found.items() if n != D_NOT_TLS}


def _listed(texts: Sequence[str]) -> str:
    """`a, b or c`."""
    return " or ".join(filter(None, (", ".join(texts[:-1]), *texts[-1:])))
