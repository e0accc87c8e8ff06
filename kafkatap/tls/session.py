"""`Session`: one TLS connection, without I/O. Records in, plain bytes out, and facts.

It is called once for each record, in the order in which they were sent. The usual record, application data with a known
key, takes the first lines of `open`; all else is below.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from kafkatap.dissector.framing.tls_records import ALERT, APPLICATION_DATA, CHANGE_CIPHER_SPEC
from kafkatap.dissector.framing.tls_records import HANDSHAKE as HANDSHAKE_RECORD
from kafkatap.reports.connection_words import (
    D_DECRYPTED,
    D_FAILED_HANDSHAKE,
    D_NO_HANDSHAKE,
    D_NO_KEY,
    D_NO_KEY_LOG,
    D_UNSUPPORTED,
    D_WRONG_KEY,
    TLS_EARLY_DATA,
    TLS_RESUMED,
)

from .certificates import read_certificate
from .ciphers import FAILED, RecordCipher
from .facts import TlsFacts, pack_facts, pack_hello, unpack_facts, unpacked
from .handshake import (
    CERTIFICATE,
    CERTIFICATE_REQUEST,
    CLIENT_HELLO,
    ENCRYPTED_EXTENSIONS,
    END_OF_EARLY_DATA,
    FINISHED,
    KEY_UPDATE,
    SERVER_HELLO,
    SERVER_HELLO_DONE,
    ClientHello,
    Messages,
    ServerHello,
    first_certificate,
    read_client_hello,
    read_encrypted_extensions,
    read_server_hello,
)
from .key_log import KeyLog
from .protection import APPLICATION, HANDSHAKE, IGNORED, Origin, Protection12, Protection13
from .secrets import Secrets, TrafficSecret
from .suites import SUITES, SUITES_13
from .trials import find_secret

TLS_1_2, TLS_1_3 = 0x0303, 0x0304
#: Alerts that are not fatal in TLS 1.3.
_CLOSE_NOTIFY, _USER_CANCELED = 0, 90

#: What `Session.open` returns: kind, length, at, skipped.
#: kind: the content type inside (23 for data), or -1: it could not be decrypted. length: of the plain bytes in `out`.
#: at: the offset of their ciphertext in the record. skipped: how many records of this direction are missing right
#: before this one, those included that could not be decrypted; -1 if records are missing and their number is unknown.
Opened = tuple[int, int, int, int]


class Session:
    """One TLS connection. Without a key log it only reads what is visible."""

    __slots__ = (
        "_ciphers", "_hello", "_key_log", "_key_log_version", "_messages", "_protection_12", "_protection_13",
        "_saw_server_hello_done", "_scratch", "_secrets", "_server_hello", "facts",
    )  # fmt: skip

    def __init__(self, key_log: KeyLog | None = None) -> None:
        self.facts = TlsFacts(decryption=D_NO_KEY_LOG if key_log is None else D_NO_HANDSHAKE)
        self._key_log = key_log
        self._key_log_version = -1
        self._secrets: Secrets | None = None
        self._hello: ClientHello | None = None
        self._server_hello: ServerHello | None = None
        self._messages = (Messages(), Messages())
        self._protection_12 = Protection12()
        self._protection_13: Protection13 | None = None
        self._ciphers: list[RecordCipher | None] = self._protection_12.ciphers
        self._saw_server_hello_done = False
        self._scratch = memoryview(b"")

    # ---------------------------------------------------------------- records

    def open(self, direction: int, record: memoryview, out: memoryview) -> Opened:
        """Decrypt one whole record with its header. `out` needs as many bytes as the record."""
        cipher = self._ciphers[direction]
        if cipher is not None and record[0] == APPLICATION_DATA:
            length = cipher.open(record, out)
            if length >= 0:
                if self.facts.decryption != D_DECRYPTED:
                    self.facts.decryption = D_DECRYPTED
                return APPLICATION_DATA, length, cipher.at, 0
            if length != FAILED:
                return self._inside(direction, cipher, out, 0)
        return self._open_unusual(direction, record, out)

    def use(self, key_log: KeyLog) -> None:
        """Take secrets from another key log."""
        self._key_log = key_log
        self._key_log_version = -1

    def read_handshake(self, direction: int, record: memoryview) -> None:
        """Read one whole record of which only the facts matter."""
        if self._key_log is None:
            if len(record) > 5:
                self._read_visible(direction, record)
            return
        if len(self._scratch) < len(record):
            self._scratch = memoryview(bytearray(len(record)))
        self.open(direction, record, self._scratch)

    def lost(self, direction: int) -> None:
        """Records of this direction are missing before the next one."""
        self._messages[direction].lose()
        self._protection_12.is_lost[direction] = True
        if self._protection_13 is not None:
            self._protection_13.is_lost[direction] = True

    def plain_length(self, direction: int, record_length: int) -> int:
        """The length of the data in a record of this length, header included; -1 if that is unknown."""
        cipher = self._ciphers[direction]
        if cipher is None or cipher.overhead < 0:
            return -1
        return max(0, record_length - cipher.overhead)

    def try_secrets(self, direction: int, record: memoryview, candidates: Iterable[TrafficSecret]) -> bool:
        """Find the secret of a record of TLS 1.3 whose handshake was not captured. `open` reads it then."""
        key_log = self._key_log
        found = None if key_log is None else find_secret(record, candidates, key_log.trials)
        if found is None:
            return False
        secret, cipher, generation = found
        facts = self.facts
        facts.client = 1 - direction if secret.is_server else direction
        facts.client_random = secret.client_random
        facts.version, facts.suite = TLS_1_3, cipher.suite.number
        self._look_up()
        protection = Protection13((cipher.suite,), facts.client, self._look_up, False)
        protection.begin_in_middle(direction, cipher, generation)
        self._protection_13, self._ciphers = protection, protection.ciphers
        for messages in self._messages:
            messages.lose()
        return True

    def has_secrets(self) -> bool:
        """Whether the key log has secrets of this connection now, by its client random or its session id.

        If the key log grows, those of the data must be among them: others are written before.
        """
        hello, key_log = self._server_hello, self._key_log
        found = self._look_up()
        if found is not None:
            has_data = found.master or (found.client_traffic and found.server_traffic)
            return bool(has_data) or key_log is None or not key_log.is_growing
        return (
            key_log is not None
            and hello is not None
            and bool(key_log.master_of_session(hello.session, self.facts.client_random))
        )

    # ---------------------------------------------------------------- splits

    def state(self) -> bytes:
        """What `resumed` needs to continue: no secrets, and equal for sessions that read all later records alike."""

        parts = [
            pack_facts(self.facts),
            [[m.held.hex(), m.skip, m.is_lost] for m in self._messages],
            None if self._hello is None else pack_hello(self._hello),
            None if self._server_hello is None else pack_hello(self._server_hello),
            self._saw_server_hello_done,
            self._protection_12.state(),
            None if self._protection_13 is None else self._protection_13.state(),
        ]
        return json.dumps(parts, separators=(",", ":")).encode()

    @classmethod
    def resumed(cls, state: bytes, key_log: KeyLog | None) -> Session:
        """A session that continues where `state` was."""

        session = cls(key_log)
        facts, messages, hello, server_hello, done, state_12, state_13 = json.loads(state)
        session.facts = facts = unpack_facts(facts)
        decryption = facts.decryption
        first, second = (Messages(bytes.fromhex(held), skip, is_lost) for held, skip, is_lost in messages)
        session._messages = first, second
        session._hello = None if hello is None else ClientHello(*unpacked(hello))
        session._server_hello = None if server_hello is None else ServerHello(*unpacked(server_hello))
        session._saw_server_hello_done = done
        session._look_up()
        facts.decryption = decryption
        session._protection_12.resume(state_12, facts.client, session._master_of)
        if state_13 is not None:
            session._protection_13 = Protection13((), facts.client, session._look_up, False)
            session._protection_13.resume(state_13)
            session._ciphers = session._protection_13.ciphers
        return session

    def _master_of(self, origin: Origin) -> bytes:
        """The master secret of a handshake of TLS 1.2."""
        if self._key_log is None:
            return b""
        secrets = self._key_log.secrets(origin.client_random)
        return (secrets.master if secrets else b"") or self._key_log.master_of_session(
            origin.session, origin.client_random
        )

    # ---------------------------------------------------------------- unusual records

    def _open_unusual(self, direction: int, record: memoryview, out: memoryview) -> Opened:
        if len(record) <= 5:
            return (record[0] if len(record) and record[0] != APPLICATION_DATA else -1), 0, 5, 0
        kind = record[0]
        if self._is_clear(direction, kind, len(record)):
            self._read_visible(direction, record)
            return kind, 0, 5, 0
        protection = self._protection(direction)
        found, skipped = protection.recover(direction, record, out)
        if found == IGNORED:
            return CHANGE_CIPHER_SPEC, 0, 5, 0
        cipher = protection.ciphers[direction]
        if found == FAILED or cipher is None:
            self._note_failure(direction, record, cipher)
            return -1, 0, 5, 0
        if self._protection_13 is not None and not self.facts.suite:
            self.facts.version, self.facts.suite = TLS_1_3, self._protection_13.suites[0].number
        if skipped:
            self._messages[direction].lose()
        if found < 0:
            return self._inside(direction, cipher, out, skipped)
        self.facts.decryption = D_DECRYPTED
        return APPLICATION_DATA, found, cipher.at, skipped

    def _is_clear(self, direction: int, kind: int, length: int) -> bool:
        """Whether a record is not encrypted."""
        if kind == APPLICATION_DATA:
            return False
        if self._protection_13 is not None or (kind == CHANGE_CIPHER_SPEC and length == 6):
            return True
        on = self._protection_12
        if on.is_on[direction]:
            return False
        # A ChangeCipherSpec may be among what is missing.
        return not (on.is_lost[direction] and on.pending[direction] is not None)

    def _protection(self, direction: int) -> Protection12 | Protection13:
        """What has the keys for a record that is encrypted."""
        if self._protection_13 is not None:
            return self._protection_13
        hello = self._hello
        if hello is not None and hello.version == TLS_1_3 and self._server_hello is None:
            # Early data, or the ServerHello is missing.
            suites = tuple(suite for suite in SUITES_13 if suite.number in hello.suites)
            is_early = hello.has_early_data
            self._protection_13 = Protection13(suites, self.facts.client, self._look_up, is_early)
            self._ciphers = self._protection_13.ciphers
            return self._protection_13
        on = self._protection_12
        if on.ciphers[direction] is None:
            self._prepare_12()
            if on.is_on[direction]:  # records passed before the secret came
                on.is_lost[direction] = True
        return on

    def _inside(self, direction: int, cipher: RecordCipher, out: memoryview, skipped: int) -> Opened:
        """A record that was decrypted and is no data."""
        kind, length = cipher.kind, cipher.length
        plain = bytes(out[:length])
        if kind == HANDSHAKE_RECORD:
            self._read_messages(direction, plain)
        elif kind == ALERT:
            self._read_alert(direction, plain)
        elif kind == CHANGE_CIPHER_SPEC and self._protection_13 is None:
            self._change_cipher(direction)
        return kind, length, cipher.at, skipped

    def _note_failure(self, direction: int, record: memoryview, cipher: RecordCipher | None) -> None:
        facts = self.facts
        if facts.decryption in (D_NO_HANDSHAKE, D_NO_KEY) and facts.client_random:
            facts.decryption = D_NO_KEY if cipher is None else D_WRONG_KEY
        self._note_encrypted(direction, record)

    def _note_encrypted(self, direction: int, record: memoryview) -> None:
        """A record that cannot be decrypted. The client's first one ends its handshake, as far as can be seen."""
        facts = self.facts
        if direction == facts.client and self._server_hello is not None and not self._server_hello.is_retry:
            is_13 = facts.version == TLS_1_3
            if record[0] == (APPLICATION_DATA if is_13 else HANDSHAKE_RECORD):
                facts.handshake_done = True

    def _read_visible(self, direction: int, record: memoryview) -> None:
        """Read a record that is in the clear, or skip it if it is encrypted."""
        kind = record[0]
        is_on = self._protection_12.is_on[direction]
        if kind == CHANGE_CIPHER_SPEC:
            if len(record) == 6 and self.facts.version != TLS_1_3:
                self._change_cipher(direction)
        elif is_on or kind == APPLICATION_DATA:
            self._note_encrypted(direction, record)
        elif kind == ALERT:
            self._read_alert(direction, bytes(record[5:]))
        elif kind == HANDSHAKE_RECORD:
            self._read_messages(direction, bytes(record[5:]))

    def _change_cipher(self, direction: int) -> None:
        """A ChangeCipherSpec. In TLS 1.3, one for compatibility may come before the ServerHello."""
        facts = self.facts
        if self._server_hello is None and not self._protection_12.is_lost[1 - direction]:
            return
        is_server = direction != facts.client
        if is_server and not self._saw_server_hello_done and not self._messages[direction].is_lost:
            facts.session = TLS_RESUMED
        self._prepare_12()
        self._protection_12.change(direction)
        self._messages[direction].held = b""

    def _read_alert(self, direction: int, plain: bytes) -> None:
        facts = self.facts
        if len(plain) != 2 or facts.alert >= 0:
            return
        level, description = plain
        is_13 = facts.version == TLS_1_3
        if level != 2 and not (is_13 and description not in (_CLOSE_NOTIFY, _USER_CANCELED)):
            return
        facts.alert, facts.alert_by = description, direction
        if facts.decryption != D_DECRYPTED:
            facts.decryption = D_FAILED_HANDSHAKE

    # ---------------------------------------------------------------- handshake

    def _read_messages(self, direction: int, plain: bytes) -> None:
        for kind, body in self._messages[direction].read(plain):
            self._read_message(direction, kind, body)

    def _read_message(self, direction: int, kind: int, body: bytes) -> None:
        facts = self.facts
        is_client = direction == facts.client
        protection = self._protection_13
        if kind == CLIENT_HELLO:
            self._read_client_hello(direction, body)
        elif kind == SERVER_HELLO and not is_client:
            self._read_server_hello(direction, body)
        elif kind == CERTIFICATE:
            self._read_certificate(is_client, body)
        elif kind == CERTIFICATE_REQUEST and not is_client:
            facts.asks_certificate = True
        elif kind == SERVER_HELLO_DONE and not is_client:
            self._saw_server_hello_done = True
        elif kind == FINISHED:
            if is_client:
                facts.handshake_done = True
            if protection is not None:
                protection.enter(direction, APPLICATION)
        elif protection is None:
            return
        elif kind == ENCRYPTED_EXTENSIONS and not is_client:
            self._read_encrypted_extensions(body, protection)
        elif kind == END_OF_EARLY_DATA and is_client:
            protection.enter(direction, HANDSHAKE)
        elif kind == KEY_UPDATE and protection.stages[direction] == APPLICATION:
            protection.enter(direction, APPLICATION, protection.generations[direction] + 1)

    def _read_client_hello(self, direction: int, body: bytes) -> None:
        facts = self.facts
        hello = read_client_hello(body)
        if hello is None or facts.client not in (-1, direction):
            return
        if self._protection_13 is not None and hello.client_random != facts.client_random:
            return  # only a HelloRetryRequest is answered by another one
        self._hello = hello
        self._saw_server_hello_done = False
        facts.client = direction
        facts.client_random = hello.client_random
        facts.offered_version = hello.version
        facts.server_name = hello.server_name or facts.server_name
        facts.alpn_offered = ",".join(hello.alpn) or facts.alpn_offered
        facts.has_early_data = facts.has_early_data or hello.has_early_data
        self._key_log_version = -1
        if self._look_up() is None and facts.decryption == D_NO_HANDSHAKE:
            facts.decryption = D_NO_KEY

    def _read_server_hello(self, direction: int, body: bytes) -> None:
        facts = self.facts
        hello = read_server_hello(body)
        chosen = self._server_hello
        if hello is None or (self._protection_13 is not None and chosen is not None and not chosen.is_retry):
            return
        self._server_hello = hello
        facts.version, facts.suite = hello.version, hello.suite
        facts.alpn = hello.alpn or facts.alpn
        if facts.client < 0:
            facts.client = 1 - direction
        if not hello.is_retry:
            facts.server_random = hello.server_random
            if hello.version == TLS_1_3:
                if hello.has_psk:
                    facts.session = TLS_EARLY_DATA if facts.has_early_data else TLS_RESUMED
            elif self._hello is not None and hello.session and hello.session == self._hello.session:
                facts.session = TLS_RESUMED
        if self._key_log is not None:
            self._choose(hello)

    def _choose(self, hello: ServerHello) -> None:
        """Prepare for the version and suite that the server chose."""
        facts = self.facts
        suite = SUITES.get(hello.suite)
        is_13 = hello.version == TLS_1_3
        if suite is None or hello.version not in (TLS_1_2, TLS_1_3) or (hello.suite >> 8 == 0x13) != is_13:
            facts.decryption = D_UNSUPPORTED
        elif not is_13:
            self._protection_13 = None
            self._ciphers = self._protection_12.ciphers
            self._prepare_12()
        else:
            if self._protection_13 is None:
                is_early = facts.has_early_data and not hello.is_retry
                self._protection_13 = Protection13((suite,), facts.client, self._look_up, is_early)
                self._ciphers = self._protection_13.ciphers
            self._protection_13.choose(suite)
            if hello.is_retry:
                self._protection_13.reject_early()

    def _prepare_12(self) -> bool:
        """Make the ciphers of the latest hellos once, if the key log has their secret."""
        hello, chosen = self._hello, self._server_hello
        if hello is None or chosen is None or self._key_log is None or chosen.version != TLS_1_2:
            return False
        suite = SUITES.get(chosen.suite)
        if suite is None:
            return False
        origin = Origin(
            suite.number, hello.client_random, chosen.server_random, chosen.session, chosen.encrypt_then_mac
        )
        self._look_up()
        master = self._master_of(origin)
        return bool(master) and self._protection_12.prepare(origin, self.facts.client, master)

    def _read_encrypted_extensions(self, body: bytes, protection: Protection13) -> None:
        facts = self.facts
        alpn, is_early = read_encrypted_extensions(body)
        facts.alpn = alpn or facts.alpn
        if facts.has_early_data and not is_early:
            protection.reject_early()
            if facts.session == TLS_EARLY_DATA:
                facts.session = TLS_RESUMED

    def _read_certificate(self, is_client: bool, body: bytes) -> None:
        encoded = first_certificate(body, self.facts.version == TLS_1_3)
        if not encoded:
            return
        found = read_certificate(encoded)
        if is_client:
            self.facts.client_certificate, self.facts.client_certificate_end = found.subject, found.end
        else:
            self.facts.server_certificate, self.facts.server_certificate_end = found.host, found.end

    def _look_up(self) -> Secrets | None:
        """The secrets of this connection, as far as the key log has them now."""
        key_log = self._key_log
        if key_log is not None and self._key_log_version != key_log.version and self.facts.client_random:
            self._key_log_version = key_log.version
            had_none, self._secrets = self._secrets is None, key_log.secrets(self.facts.client_random)
            if self._secrets is not None:
                key_log.take(self.facts.client_random)
                if had_none and self.facts.decryption == D_NO_KEY:
                    self.facts.decryption = D_NO_HANDSHAKE
        return self._secrets
