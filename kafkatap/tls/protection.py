"""The keys of a connection's records, and which of them are in use: `Protection13` and `Protection12`.

Usually the next record opens with the current key and the next number. If it does not, records were lost or their keys
are unknown: then `recover` searches for the number, and tries the keys that come later. What this may cost is bounded.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

from .ciphers import FAILED, GcmCipher13, RecordCipher, make_cipher
from .key_schedule import hash_length, key_block, next_generation, traffic_keys
from .secrets import Secrets
from .suites import SUITES, Suite

#: Stages of the keys of a direction in TLS 1.3.
EARLY, HANDSHAKE, APPLICATION = range(3)
#: So many record numbers are tried after a loss, and in a connection whose handshake was not captured, where they
#: cannot be computed.
FORWARD, FORWARD_IN_MIDDLE = 4_096, 65_536
#: So many key updates may be lost at once.
_UPDATES = 3
#: Bytes that may be decrypted in vain; a search that finds its record restores them. A trial costs at least _TRIAL.
_BUDGET, _TRIAL = 64 << 20, 2_048
#: Numbers that are tried when the budget is spent.
_FEW = 8
#: What `recover` returns for early data that the server rejects.
IGNORED = -3


class Protection:
    """What both versions share. `ciphers`: those in use, by direction. `is_lost`: records are missing, by direction."""

    def __init__(self) -> None:
        self.ciphers: list[RecordCipher | None] = [None, None]
        self.is_lost = [False, False]
        self.budget = _BUDGET
        self.forward = [FORWARD, FORWARD]

    def shared_state(self) -> list[Any]:
        return [self.is_lost, self.forward, self.budget, [_cipher_state(cipher) for cipher in self.ciphers]]

    def resume_shared(self, state: list[Any], ciphers: list[RecordCipher | None]) -> None:
        """Set what both versions share. `ciphers`: those in use, which are new."""
        self.is_lost, self.forward, self.budget, numbers = state
        self.ciphers[:] = [_resumed_cipher(*pair) for pair in zip(ciphers, numbers, strict=True)]

    def _open(self, cipher: RecordCipher, direction: int, record: memoryview, out: memoryview) -> int:
        """Open the next record, or a later one if records were lost."""
        found = cipher.open(record, out)
        if found != FAILED or not (self.is_lost[direction] or isinstance(cipher, GcmCipher13)):
            return found
        cost = len(record) + _TRIAL
        count = max(_FEW, min(self.forward[direction], self.budget // cost))
        found = cipher.find(record, out, count)
        if found != FAILED:
            self.budget = _BUDGET
            self.forward[direction] = FORWARD
        elif not isinstance(cipher, GcmCipher13):
            self.budget = max(0, self.budget - count * cost)
        return found

    def _recover_current(self, direction: int, record: memoryview, out: memoryview) -> tuple[int, int]:
        cipher = self.ciphers[direction]
        if cipher is None:
            return FAILED, 0
        expected = cipher.number
        found = self._open(cipher, direction, record, out)
        return found, cipher.number - 1 - expected

    def _fail(self, direction: int) -> tuple[int, int]:
        """A record failed: it is one of the connection that was damaged, or none. So the next record may have its
        number, or a later one."""
        self.is_lost[direction] |= self.ciphers[direction] is not None
        return FAILED, 0


def _cipher_state(cipher: RecordCipher | None) -> list[int]:
    return [] if cipher is None else [cipher.suite.number, cipher.number, cipher.overhead]


def _resumed_cipher(cipher: RecordCipher | None, state: list[int]) -> RecordCipher | None:
    """A new cipher with the number that it had; None if there was none, or its secret is gone."""
    if cipher is None or not state or cipher.suite.number != state[0]:
        return None
    _, cipher.number, cipher.overhead = state
    return cipher


class Protection13(Protection):
    """TLS 1.3. `suites`: the chosen one, or those that are possible. `secrets`: reads the key log."""

    def __init__(
        self, suites: tuple[Suite, ...], client: int, secrets: Callable[[], Secrets | None], is_early: bool
    ) -> None:
        super().__init__()
        self.suites = suites
        self.client = client
        self.stages = [HANDSHAKE, HANDSHAKE]
        self.generations = [0, 0]
        if is_early:
            self.stages[client] = EARLY
        self._secrets = secrets
        self._rejected: list[RecordCipher] = []
        self._made: dict[tuple[int, int, int], list[RecordCipher]] = {}

    def state(self) -> list[Any]:
        """What `resume` needs, without secrets, as lists and numbers."""
        suites = [suite.number for suite in self.suites]
        rejected = [_cipher_state(cipher) for cipher in self._rejected]
        return [suites, self.stages, self.generations, rejected, self.shared_state()]

    def resume(self, state: list[Any]) -> None:
        """Continue where `state` was."""
        suites, self.stages, self.generations, rejected, shared = state
        self.suites = tuple(SUITES[number] for number in suites)
        early = ((self._make(self.client, EARLY, 0, SUITES[each[0]]), each) for each in rejected)
        self._rejected = [cipher for cipher in itertools.starmap(_resumed_cipher, early) if cipher is not None]
        ciphers: list[RecordCipher | None] = []
        for direction, number in enumerate(shared[3]):
            made = self._ciphers(direction, self.stages[direction], self.generations[direction])
            ciphers.append(next((c for c in made if number and c.suite.number == number[0]), None))
        self.resume_shared(shared, ciphers)

    def choose(self, suite: Suite) -> None:
        """The server chose this suite. What was opened with another one stays."""
        self.suites = (suite,)
        self._made.clear()
        for direction, stage in enumerate(self.stages):
            if stage == HANDSHAKE:
                self.enter(direction, stage)

    def begin_in_middle(self, direction: int, cipher: RecordCipher, generation: int) -> None:
        """Begin with this cipher in one direction. In the other one, numbers and generation are unknown."""
        for each in range(2):
            self.enter(each, APPLICATION, generation if each == direction else 0)
            self.is_lost[each] = True
            self.forward[each] = FORWARD_IN_MIDDLE
        self.ciphers[direction] = cipher

    def reject_early(self) -> None:
        """The server rejects early data. Those that are still to come are no data."""
        if self.stages[self.client] == EARLY:
            used = self.ciphers[self.client]
            self._rejected = self._ciphers(self.client, EARLY, 0) if used is None else [used]
            self.enter(self.client, HANDSHAKE)

    def enter(self, direction: int, stage: int, generation: int = 0) -> None:
        """Use the keys of a stage from the next record on."""
        self._made.pop((direction, self.stages[direction], self.generations[direction]), None)
        self.stages[direction] = stage
        self.generations[direction] = generation
        made = self._ciphers(direction, stage, generation)
        self.ciphers[direction] = made[0] if len(made) == 1 else None

    def recover(self, direction: int, record: memoryview, out: memoryview) -> tuple[int, int]:
        """Open a record that the current cipher did not open, if there is one. Returns the length, OTHER or FAILED, and
        how many records before it are missing, -1 if that is unknown."""
        found, skipped = self._recover_current(direction, record, out)
        if found != FAILED:
            self.is_lost[direction] = False
            return found, skipped
        for stage, generation in self._candidates(direction):
            for cipher in self._ciphers(direction, stage, generation):
                found = self._open(cipher, direction, record, out)
                if found != FAILED:
                    is_next = cipher.number == 1 and not self.is_lost[direction]
                    self._chosen(direction, stage, generation, cipher)
                    return found, 0 if is_next else -1
        if direction == self.client:
            for cipher in self._rejected:
                if cipher.open(record, out) != FAILED:
                    return IGNORED, 0
        return self._fail(direction)

    def _candidates(self, direction: int) -> list[tuple[int, int]]:
        """Stages and generations that the next record may have."""
        stage, generation = self.stages[direction], self.generations[direction]
        found = [(stage, generation)] if self.ciphers[direction] is None else []
        if stage == APPLICATION:
            updates = _UPDATES if self.is_lost[direction] else 1
            return found + [(APPLICATION, generation + 1 + update) for update in range(updates)]
        return found + [(later, 0) for later in range(stage + 1, APPLICATION + 1)]

    def _chosen(self, direction: int, stage: int, generation: int, cipher: RecordCipher) -> None:
        if len(self.suites) > 1:
            self.suites = (cipher.suite,)
            self._made.clear()
        self._made.pop((direction, self.stages[direction], self.generations[direction]), None)
        self.stages[direction], self.generations[direction] = stage, generation
        self.ciphers[direction] = cipher
        self.is_lost[direction] = False

    def _ciphers(self, direction: int, stage: int, generation: int) -> list[RecordCipher]:
        """The ciphers of a stage: one for each possible suite, none if the key log does not have the secret."""
        key = (direction, stage, generation)
        if key in self._made:
            return self._made[key]
        found = (self._make(direction, stage, generation, suite) for suite in self.suites)
        made = [cipher for cipher in found if cipher is not None]
        if made:
            self._made[key] = made
        return made

    def _make(self, direction: int, stage: int, generation: int, suite: Suite) -> RecordCipher | None:
        """A cipher, if the key log has a secret of the right length."""
        secret = self._secret(direction, stage)
        if len(secret) != hash_length(suite):
            return None
        return make_cipher(0x0304, suite, traffic_keys(suite, next_generation(suite, secret, generation)))

    def _secret(self, direction: int, stage: int) -> bytes:
        secrets = self._secrets()
        if secrets is None:
            return b""
        if direction != self.client:
            return (b"", secrets.server_handshake, secrets.server_traffic)[stage]
        return (secrets.client_early, secrets.client_handshake, secrets.client_traffic)[stage]


class Origin(NamedTuple):
    """The handshake from which keys of TLS 1.2 come."""

    suite: int
    client_random: bytes
    server_random: bytes
    session: bytes
    encrypt_then_mac: bool


class Protection12(Protection):
    """TLS 1.2. `is_on`: the direction is encrypted. `pending`: the ciphers of the latest handshake, by direction.
    `origins`: the handshakes of the ciphers in use."""

    def __init__(self) -> None:
        super().__init__()
        self.is_on = [False, False]
        self.pending: list[RecordCipher | None] = [None, None]
        self.origins: list[Origin | None] = [None, None]
        self._prepared: Origin | None = None

    def state(self) -> list[Any]:
        """What `resume` needs, without secrets, as lists and numbers."""
        origins = [None if origin is None else _packed(origin) for origin in (*self.origins, self._prepared)]
        pending = [_cipher_state(cipher) for cipher in self.pending]
        return [self.is_on, origins, pending, self.shared_state()]

    def resume(self, state: list[Any], client: int, master_of: Callable[[Origin], bytes]) -> None:
        """Continue where `state` was. `master_of`: the master secret of a handshake, or nothing."""
        self.is_on, origins, pending, shared = state
        *self.origins, self._prepared = (None if origin is None else _unpacked(origin) for origin in origins)
        ciphers = [_ciphers_12(origin, client, master_of) for origin in (*self.origins, self._prepared)]
        self.pending = [_resumed_cipher(ciphers[2][each], pending[each]) for each in range(2)]
        self.resume_shared(shared, [ciphers[each][each] for each in range(2)])

    def prepare(self, origin: Origin, client: int, master: bytes) -> bool:
        """Make the ciphers for both directions after their next ChangeCipherSpec, once for each handshake."""
        if origin == self._prepared:
            return False
        self._prepared = origin
        self.pending = _ciphers_12(origin, client, lambda _: master)
        return True

    def change(self, direction: int) -> None:
        """A ChangeCipherSpec: the next record has the new keys."""
        self.is_on[direction] = True
        self.is_lost[direction] = False
        self.ciphers[direction] = self.pending[direction]
        self.origins[direction] = self._prepared
        self.pending[direction] = None

    def recover(self, direction: int, record: memoryview, out: memoryview) -> tuple[int, int]:
        """As that of `Protection13`. The later keys are those of a ChangeCipherSpec that is missing."""
        found, skipped = self._recover_current(direction, record, out)
        if found == FAILED:
            pending = self.pending[direction]
            if pending is None:
                return self._fail(direction)
            found, skipped = self._open(pending, direction, record, out), -1
            if found == FAILED:
                return self._fail(direction)
            self.change(direction)
        self.is_lost[direction] = False
        return found, skipped


def _ciphers_12(origin: Origin | None, client: int, master_of: Callable[[Origin], bytes]) -> list[RecordCipher | None]:
    """The ciphers of a handshake, by direction."""
    made: list[RecordCipher | None] = [None, None]
    master = b"" if origin is None else master_of(origin)
    if origin is not None and master:
        suite = SUITES[origin.suite]
        for by_server, keys in enumerate(key_block(suite, master, origin.client_random, origin.server_random)):
            made[client ^ by_server] = make_cipher(0x0303, suite, keys, origin.encrypt_then_mac)
    return made


def _packed(origin: Origin) -> list[Any]:
    return [value.hex() if isinstance(value, bytes) else value for value in origin]


def _unpacked(state: list[Any]) -> Origin:
    suite, client_random, server_random, session, encrypt_then_mac = state
    randoms = bytes.fromhex(client_random), bytes.fromhex(server_random)
    return Origin(suite, *randoms, bytes.fromhex(session), encrypt_then_mac)
