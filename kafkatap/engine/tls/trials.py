"""The secret of a connection whose handshake was not captured: secrets of a key log are tried on one of its records.

With AES-GCM, one computation shows whether a secret fits, whatever the record's number. With other ciphers, numbers are
tried. Both are bounded, for a connection and for all connections of a run.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from kafkatap.reports.tls_names import TLS_1_3

from .key_schedule import hash_length, next_generation, traffic_keys
from .protection import FORWARD_IN_MIDDLE
from .secrets import TrafficSecret, Trials
from .suites import FAILED, GCM, SUITES_13, Suite

if TYPE_CHECKING:
    from .ciphers import RecordCipher

    Found = tuple[TrafficSecret, RecordCipher, int]

#: Secrets that are tried for a connection.
MOST_CANDIDATES = 4_096
#: Key updates that may have been before the record.
_UPDATES = 2
#: What trials of numbers may cost for a connection, in bytes that are decrypted. One costs at least _LEAST.
_COST, _LEAST = 256 << 20, 1_024


def find_secret(record: memoryview, candidates: Iterable[TrafficSecret], trials: Trials) -> Found | None:
    """The secret of a record, its cipher, whose number is that of the record, and how many key updates were before."""
    if len(record) < 22 or record[0] != 23:
        return None
    chosen = list(islice(candidates, MOST_CANDIDATES))
    out = memoryview(bytearray(len(record)))
    for generation in range(_UPDATES + 1):
        found = _computed(record, chosen, generation, out, trials)
        if found is not None:
            return found
    return _tried(record, chosen, out, trials)


def _computed(
    record: memoryview, candidates: list[TrafficSecret], generation: int, out: memoryview, trials: Trials
) -> Found | None:
    for candidate in candidates:
        suite = next((s for s in SUITES_13 if s.kind == GCM and hash_length(s) == len(candidate.secret)), None)
        if suite is None or trials.computations <= 0:
            continue
        trials.computations -= 1
        cipher = _find(record, candidate, suite, generation, out, 1)
        if cipher is not None:
            return candidate, cipher, generation
    return None


def _tried(record: memoryview, candidates: list[TrafficSecret], out: memoryview, trials: Trials) -> Found | None:
    """Try numbers, the same for each candidate: as many as the bound allows."""
    kinds = [(c, s) for c in candidates for s in SUITES_13 if s.kind != GCM and hash_length(s) == len(c.secret)]
    if not kinds:
        return None
    each = len(record) + _LEAST
    count = min(FORWARD_IN_MIDDLE, min(_COST, trials.bytes) // each // len(kinds))
    for candidate, suite in kinds if count else ():
        trials.bytes -= count * each
        cipher = _find(record, candidate, suite, 0, out, count)
        if cipher is not None:
            return candidate, cipher, 0
    return None


def _find(
    record: memoryview, candidate: TrafficSecret, suite: Suite, generation: int, out: memoryview, count: int
) -> RecordCipher | None:
    from .ciphers import make_cipher  # imported late: see there

    keys = traffic_keys(suite, next_generation(suite, candidate.secret, generation))
    cipher = make_cipher(TLS_1_3, suite, keys)
    if cipher.find(record, out, count) == FAILED:
        return None
    cipher.number -= 1
    return cipher
