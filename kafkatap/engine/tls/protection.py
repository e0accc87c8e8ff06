"""The keys of a connection's records, and which of them are in use: `Protection13` and `Protection12`.

Usually the next record opens with the current key and the next number. If it does not, records were lost or their keys
are unknown: then `recover` searches for the number, and tries the keys that come later. What this may cost is bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkatap.reports.tls_names import TLS_1_2, TLS_1_3

from .facts import Negotiated
from .key_schedule import hash_length, key_block, next_generation, traffic_keys
from .secrets import Secrets
from .suites import FAILED, SUITES, Suite

if TYPE_CHECKING:
    from .ciphers import RecordCipher

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

    def state(self) -> list[Any]:
        """What later records depend on, without secrets."""
        return [self.is_lost, self.forward, self.budget, [cipher_state(cipher) for cipher in self.ciphers]]

    def search(self) -> None:
        """Nobody knows the numbers of the next records."""
        self.is_lost[:] = True, True
        self.forward[:] = FORWARD_IN_MIDDLE, FORWARD_IN_MIDDLE

    def _open(self, cipher: RecordCipher, direction: int, record: memoryview, out: memoryview) -> int:
        """Open the next record, or a later one if records were lost."""
        found = cipher.open(record, out)
        if found != FAILED or not (self.is_lost[direction] or cipher.computes_numbers):
            return found
        cost = len(record) + _TRIAL
        count = max(_FEW, min(self.forward[direction], self.budget // cost))
        found = cipher.find(record, out, count)
        if found != FAILED:
            self.budget = _BUDGET
            self.forward[direction] = FORWARD
        elif not cipher.computes_numbers:
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


def cipher_state(cipher: RecordCipher | None) -> list[int]:
    """What later records depend on, without secrets."""
    return [] if cipher is None else [cipher.suite.number, cipher.number, cipher.overhead]


class Protection13(Protection):
    """TLS 1.3. `suites`: the chosen one, or those that are possible. `facts`: they get the number of key updates.
    `secrets`: reads the key log."""

    def __init__(
        self, suites: tuple[Suite, ...], facts: Negotiated, secrets: Callable[[], Secrets | None], is_early: bool
    ) -> None:
        super().__init__()
        self.suites = suites
        self.client, self.generations = facts.client, facts.generations
        self.stages = [HANDSHAKE, HANDSHAKE]
        if is_early:
            self.stages[self.client] = EARLY
        self._secrets = secrets
        self._rejected: list[RecordCipher] = []
        self._made: dict[tuple[int, int, int], list[RecordCipher]] = {}
        #: By direction, the latest generation with application data, and its secret.
        self._latest = [(0, b""), (0, b"")]

    def state(self) -> list[Any]:
        """What later records depend on."""
        suites = [suite.number for suite in self.suites]
        rejected = [cipher_state(cipher) for cipher in self._rejected]
        return [*super().state(), suites, self.stages, self.generations, rejected]

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
        self.search()
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
        self._keep_secret(direction)
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
        self._keep_secret(direction)
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
        secret = self._secret_after(direction, stage, generation, suite)
        if not secret:
            return None
        from .ciphers import make_cipher  # imported late: see there

        return make_cipher(TLS_1_3, suite, traffic_keys(suite, secret))

    def _keep_secret(self, direction: int) -> None:
        """Keep the secret after the key updates so far, so that a later one needs no more than the updates between."""
        generation = self.generations[direction]
        if generation:
            secret = self._secret_after(direction, APPLICATION, generation, self.suites[0])
            self._latest[direction] = (generation, secret) if secret else (0, b"")

    def _secret_after(self, direction: int, stage: int, generation: int, suite: Suite) -> bytes:
        """The secret of a stage after so many key updates; empty if the key log has none of the right length."""
        known, secret = self._latest[direction]
        if not 0 < known <= generation:
            known, secret = 0, self._secret(direction, stage)
        return next_generation(suite, secret, generation - known) if len(secret) == hash_length(suite) else b""

    def _secret(self, direction: int, stage: int) -> bytes:
        secrets = self._secrets()
        if secrets is None:
            return b""
        if direction != self.client:
            return (b"", secrets.server_handshake, secrets.server_traffic)[stage]
        return (secrets.client_early, secrets.client_handshake, secrets.client_traffic)[stage]


class Protection12(Protection):
    """TLS 1.2. `is_on`: the direction is encrypted. `pending`: the ciphers of the latest handshake, by direction."""

    def __init__(self) -> None:
        super().__init__()
        self.is_on = [False, False]
        self.pending: list[RecordCipher | None] = [None, None]
        self._prepared: tuple[int, bytes, bytes, bool] | None = None  # the handshake of `pending`

    def state(self) -> list[Any]:
        """What later records depend on."""
        pending = [cipher_state(cipher) for cipher in self.pending]
        return [*super().state(), self.is_on, self._prepared, pending]

    def prepare(self, facts: Negotiated, master: bytes) -> None:
        """Make the ciphers for both directions after their next ChangeCipherSpec, once for each handshake."""
        handshake = facts.suite, facts.client_random, facts.server_random, facts.encrypt_then_mac
        if handshake == self._prepared:
            return
        self._prepared = handshake
        from .ciphers import make_cipher  # imported late: see there

        suite = SUITES[facts.suite]
        for by_server, keys in enumerate(key_block(suite, master, facts.client_random, facts.server_random)):
            self.pending[facts.client ^ by_server] = make_cipher(TLS_1_2, suite, keys, facts.encrypt_then_mac)

    def change(self, direction: int) -> None:
        """A ChangeCipherSpec: the next record has the new keys."""
        self.is_on[direction] = True
        self.is_lost[direction] = False
        self.ciphers[direction] = self.pending[direction]
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
