"""`Session`: one TLS connection, without I/O. Records in, plain bytes out, and facts.

It is called once for each record, in the order in which they were sent. The usual record, application data with a known
key, takes the first lines of `open`; all else is below.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

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
from kafkatap.reports.tls_names import NO_ERRORS, TLS_1_2, TLS_1_3

from .certificates import read_certificate
from .facts import TlsFacts
from .handshake import (
    CERTIFICATE,
    CERTIFICATE_REQUEST,
    ENCRYPTED_EXTENSIONS,
    END_OF_EARLY_DATA,
    FINISHED,
    KEY_UPDATE,
    NEW_SESSION_TICKET,
    SERVER_HELLO_DONE,
    ClientHello,
    Messages,
    ServerHello,
    cut_client_random,
    first_certificate,
    read_client_hello,
    read_encrypted_extensions,
    read_server_hello,
    read_ticket,
)
from .ja4 import ja4
from .key_log import KeyLog
from .protection import APPLICATION, HANDSHAKE, IGNORED, Protection12, Protection13, cipher_state
from .record_header import ALERT, APPLICATION_DATA, CHANGE_CIPHER_SPEC, CLIENT_HELLO, SERVER_HELLO
from .record_header import HANDSHAKE as HANDSHAKE_RECORD
from .secrets import Secrets, TrafficSecret
from .suites import FAILED, SUITES, SUITES_13, Suite
from .trials import find_secret

if TYPE_CHECKING:
    from .ciphers import RecordCipher

#: Session ids and tickets of a connection that are noted.
_MOST_ISSUED = 8
#: Records of which a run may be wrong when it counts those before a connection continues.
_SLACK = 64

#: What `Session.open` returns: kind, length, at, skipped.
#: kind: the content type inside (23 for data), or -1: it could not be decrypted. length: of the plain bytes in `out`.
#: at: the offset of their ciphertext in the record. skipped: how many records of this direction are missing right
#: before this one, those included that could not be decrypted; -1 if records are missing and their number is unknown.
Opened = tuple[int, int, int, int]


class Session:
    """One TLS connection. Without a key log it only reads what is visible. `ends`: the name of its ends
    (`name_of_ends`)."""

    __slots__ = (
        "_hello", "_key_log", "_key_log_version", "_messages", "_protection_12", "_protection_13",
        "_saw_server_hello_done", "_scratch", "_secrets", "_server_hello", "ciphers", "ends", "facts",
    )  # fmt: skip

    def __init__(self, key_log: KeyLog | None = None, ends: bytes = b"") -> None:
        self.ends = ends
        self.facts = TlsFacts(decryption=D_NO_KEY_LOG if key_log is None else D_NO_HANDSHAKE)
        self._key_log = key_log
        self._key_log_version = -1
        self._secrets: Secrets | None = None
        self._hello: ClientHello | None = None
        self._server_hello: ServerHello | None = None
        self._messages = (Messages(), Messages())
        self._protection_12 = Protection12()
        self._protection_13: Protection13 | None = None
        #: Those in use, by direction.
        self.ciphers: list[RecordCipher | None] = self._protection_12.ciphers
        self._saw_server_hello_done = False
        self._scratch = memoryview(b"")

    # ---------------------------------------------------------------- records

    def open(self, direction: int, record: memoryview, out: memoryview) -> Opened:
        """Decrypt one whole record with its header. `out` needs as many bytes as the record."""
        cipher = self.ciphers[direction]
        if cipher is not None and record[0] == APPLICATION_DATA:
            length = cipher.open(record, out)
            if length >= 0:
                if self.facts.decryption != D_DECRYPTED:
                    self.facts.decryption = D_DECRYPTED
                return APPLICATION_DATA, length, cipher.at, 0
            if length != FAILED:
                return self.inside(direction, cipher, out, 0)
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

    def read_cut(self, direction: int, record: memoryview) -> None:
        """Read the beginning of a record of the handshake in the clear, of which bytes are missing: of a ClientHello
        the random says whose the secrets are."""
        facts = self.facts
        found = cut_client_random(bytes(record[5:]))
        if found and not facts.client_random and facts.client in (-1, direction):
            facts.client = direction
            self._identify(found)

    def lost(self, direction: int) -> None:
        """Records of this direction are missing before the next one."""
        self._messages[direction].lose()
        self._protection_12.is_lost[direction] = True
        if self._protection_13 is not None:
            self._protection_13.is_lost[direction] = True

    def plain_length(self, direction: int, record_length: int) -> int:
        """The length of the data in a record of this length, header included; -1 if that is unknown."""
        cipher = self.ciphers[direction]
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
        self._begin_13((cipher.suite,), False).begin_in_middle(direction, cipher, generation)
        for messages in self._messages:
            messages.lose()
        return True

    def traffic_secrets(self) -> list[TrafficSecret]:
        """Those of its client random, if that is known, or of its ends."""
        found = self._look_up()
        if found is None and self._key_log is not None and self.ends:
            found = self._key_log.secrets(self.ends)
        known = () if found is None else ((False, found.client_traffic), (True, found.server_traffic))
        random = self.facts.client_random or self.ends
        return [TrafficSecret(random, by_server, secret) for by_server, secret in known if secret]

    @property
    def is_by_ends(self) -> bool:
        """Whether its secrets are those of its ends, which another connection may have had at another time."""
        return self._secrets is not None and self._secrets.client_random == self.ends != b""

    def has_secrets(self) -> bool:
        """Whether the key log has secrets of this connection now, by its client random or its session id.

        If the key log grows, those of the data must be among them: others are written before.
        """
        facts, key_log = self.facts, self._key_log
        found = self._look_up()
        if found is not None:
            has_data = found.master or (found.client_traffic and found.server_traffic)
            return bool(has_data) or key_log is None or not key_log.is_growing
        return key_log is not None and bool(key_log.master_of_session(facts.session_id, facts.client_random))

    # ---------------------------------------------------------------- splits

    @classmethod
    def continued(cls, facts: TlsFacts, key_log: KeyLog | None, records: Sequence[int], ends: bytes = b"") -> Session:
        """A session whose handshake another run has read. `records`: with application data so far, by direction, about.
        The first records that open show their numbers."""
        session = cls(key_log, ends)
        facts.decryption = session.facts.decryption
        facts.handshake_done = True
        session.facts = facts
        suite = SUITES.get(facts.suite)
        if key_log is None:
            return session
        session._identify(facts.client_random)
        if suite is None or facts.version not in (TLS_1_2, TLS_1_3):
            facts.decryption = D_UNSUPPORTED
            return session
        protection: Protection12 | Protection13 = session._protection_12
        if facts.version == TLS_1_3:
            protection = session._begin_13((suite,), False)
            for direction in range(2):
                protection.enter(direction, APPLICATION, facts.generations[direction])
        else:
            session._prepare_12()
            for direction in range(2):
                session._protection_12.change(direction)
        facts.decryption = D_NO_KEY if None in protection.ciphers else D_DECRYPTED
        protection.search()
        for direction, cipher in enumerate(protection.ciphers):
            if cipher is not None and not facts.generations[direction]:
                cipher.number = max(0, records[direction] - _SLACK)
        return session

    def handshake_state(self) -> list[Any]:
        """What the rest of a handshake depends on, without secrets: equal for sessions that read it alike."""
        return [
            astuple(self.facts),
            self._hello,
            self._server_hello,
            self._saw_server_hello_done,
            [astuple(messages) for messages in self._messages],
            self._protection_12.state(),
            None if self._protection_13 is None else self._protection_13.state(),
        ]

    def records_state(self) -> list[Any]:
        """What records behind the handshake depend on, without secrets: equal for sessions that read them alike."""
        in_use = self._protection_13
        state: list[Any] = [[messages.held, messages.skip] for messages in self._messages]
        state += [cipher_state(cipher) for cipher in self.ciphers]
        state.append((in_use or self._protection_12).is_lost)
        return state if in_use is None else [*state, in_use.stages, in_use.generations]

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
            return self.inside(direction, cipher, out, skipped)
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
            return self._begin_13(suites, hello.has_early_data)
        on = self._protection_12
        if on.ciphers[direction] is None:
            self._prepare_12()
            if on.is_on[direction]:  # records passed before the secret came
                on.is_lost[direction] = True
        return on

    def _begin_13(self, suites: tuple[Suite, ...], is_early: bool) -> Protection13:
        self._protection_13 = protection = Protection13(suites, self.facts, self._look_up, is_early)
        self.ciphers = protection.ciphers
        return protection

    def inside(self, direction: int, cipher: RecordCipher, out: memoryview, skipped: int) -> Opened:
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
            self._resume()
        self._prepare_12()
        self._protection_12.change(direction)
        self._messages[direction].held = b""

    def _read_alert(self, direction: int, plain: bytes) -> None:
        facts = self.facts
        if len(plain) != 2 or facts.alert >= 0:
            return
        level, description = plain
        is_13 = facts.version == TLS_1_3
        if level != 2 and not (is_13 and description not in NO_ERRORS):
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
            self._issue(facts.session_id)
        elif kind == FINISHED:
            if is_client:
                facts.handshake_done = True
            if protection is not None:
                protection.enter(direction, APPLICATION)
        elif protection is None:
            if kind == NEW_SESSION_TICKET and not is_client and facts.version != TLS_1_3:
                self._issue(read_ticket(body))
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
        facts.offered_version = hello.version
        facts.ja4 = facts.ja4 or ja4(hello)
        facts.server_name = hello.server_name or facts.server_name
        facts.alpn_offered = ",".join(hello.alpn) or facts.alpn_offered
        facts.has_early_data = facts.has_early_data or hello.has_early_data
        self._identify(hello.client_random)

    def _identify(self, client_random: bytes) -> None:
        """Whose the secrets are."""
        facts = self.facts
        facts.client_random = client_random
        self._key_log_version = -1
        if self._key_log is not None and self.ends:
            self._key_log.locate(client_random, self.ends)
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
        if hello.version != TLS_1_3:
            facts.server_random, facts.session_id = hello.server_random, hello.session
            facts.encrypt_then_mac = hello.encrypt_then_mac
        facts.alpn = hello.alpn or facts.alpn
        if facts.client < 0:
            facts.client = 1 - direction
        if not hello.is_retry:
            if hello.version == TLS_1_3:
                if hello.has_psk:
                    facts.session = TLS_EARLY_DATA if facts.has_early_data else TLS_RESUMED
            elif self._hello is not None and hello.session and hello.session == self._hello.session:
                self._resume()
        if self._key_log is not None:
            self._choose(hello)

    def _issue(self, name: bytes) -> None:
        """Note a session id or ticket with which this session of TLS 1.2 may be resumed."""
        facts = self.facts
        if name and len(facts.issued) < _MOST_ISSUED:
            facts.issued.append(name)
            if self._key_log is not None:
                self._key_log.issue(name, facts.client_random)

    def _resume(self) -> None:
        """A session of TLS 1.2 is resumed: the master secret is that of its full handshake."""
        facts, hello = self.facts, self._hello
        facts.session = TLS_RESUMED
        if hello is None:
            return
        facts.resumes = [name for name in (hello.ticket, hello.session) if name]
        if self._key_log is not None and self._key_log.resume(facts.client_random, facts.resumes):
            self._key_log_version = -1

    def _choose(self, hello: ServerHello) -> None:
        """Prepare for the version and suite that the server chose."""
        facts = self.facts
        suite = SUITES.get(hello.suite)
        is_13 = hello.version == TLS_1_3
        if suite is None or hello.version not in (TLS_1_2, TLS_1_3) or (hello.suite >> 8 == 0x13) != is_13:
            facts.decryption = D_UNSUPPORTED
        elif not is_13:
            self._protection_13 = None
            self.ciphers = self._protection_12.ciphers
            self._prepare_12()
        else:
            is_early = facts.has_early_data and not hello.is_retry
            protection = self._protection_13 or self._begin_13((suite,), is_early)
            protection.choose(suite)
            if hello.is_retry:
                protection.reject_early()

    def _prepare_12(self) -> None:
        """Make the ciphers of the latest hellos once, if the key log has their secret."""
        facts, key_log = self.facts, self._key_log
        is_12 = facts.version == TLS_1_2 and facts.suite in SUITES
        if key_log is None or not is_12 or not facts.client_random:
            return
        secrets = self._look_up()
        master = secrets.master if secrets is not None else b""
        master = master or key_log.master_of_session(facts.session_id, facts.client_random)
        if master:
            self._protection_12.prepare(facts, master)

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
