"""TLS by this machine's OpenSSL (libssl.so.3), with what Python's ssl module does not offer.

Both ends of connections with a chosen suite, group, fragment length or padding; sessions, early data, key updates and
renegotiation; the secrets as lines of a key log. For samples and tests only. `missing()` says why it cannot be used.

    context = Context(server=True, certificates=[path], secrets=lines.append, suites="TLS_AES_128_GCM_SHA256")
    end = context.accept(socket)
"""

from __future__ import annotations

import ctypes
import ctypes.util
import re
import socket
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

TLS_1_0, TLS_1_1, TLS_1_2, TLS_1_3 = 0x0301, 0x0302, 0x0303, 0x0304
#: Options of a context (openssl/ssl.h).
NO_EXTENDED_MASTER_SECRET, NO_TICKET = 1 << 0, 1 << 14
NO_ENCRYPT_THEN_MAC, ALLOW_CLIENT_RENEGOTIATION = 1 << 19, 1 << 8
_ERROR_WANT_READ, _ERROR_ZERO_RETURN = 2, 6
_MODE_AUTO_RETRY = 4
_MIN_VERSION, _MAX_VERSION, _CLEAR_MODE, _GROUPS, _HOST_NAME, _FRAGMENT, _AUTOMATIC_DH = 123, 124, 78, 92, 55, 52, 118

_SECRET = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)
_CHOOSE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_ubyte), ctypes.c_void_p,
    ctypes.c_uint, ctypes.c_void_p,
)  # fmt: skip


class TlsError(OSError):
    """OpenSSL refused something; the text is its own."""

    @property
    def alert(self) -> int | None:
        """The number of the alert that the other end sent, if that is the reason."""
        found = re.search(r"error:0A([0-9A-F]{6}):", str(self))
        number = int(found[1], 16) - 1000 if found else -1
        return number if 0 <= number < 256 else None


def missing() -> str:
    """Why OpenSSL cannot be used here, as a sentence; "" if it can."""
    return "" if _library() is not None else "needs OpenSSL 3 (libssl.so.3)"


@cache
def _library() -> Any:
    try:
        library = ctypes.CDLL(ctypes.util.find_library("ssl") or "libssl.so.3")
        library.OPENSSL_init_ssl  # noqa: B018
        library.SSL_CTX_set_block_padding  # noqa: B018
    except (OSError, AttributeError):
        return None
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    for name in ("TLS_client_method", "TLS_server_method", "SSL_CTX_new", "SSL_new", "SSL_get1_session"):
        getattr(library, name).restype = pointer
    for name in ("SSL_get_version", "SSL_CIPHER_standard_name"):
        getattr(library, name).restype = ctypes.c_char_p
    library.SSL_get_current_cipher.restype = pointer
    library.SSL_CTX_set_options.restype = ctypes.c_uint64
    library.SSL_CTX_set_options.argtypes = [pointer, ctypes.c_uint64]
    library.SSL_CTX_ctrl.argtypes = library.SSL_ctrl.argtypes = [pointer, ctypes.c_int, ctypes.c_long, pointer]
    library.SSL_CTX_ctrl.restype = library.SSL_ctrl.restype = ctypes.c_long
    for name in ("SSL_read_ex", "SSL_write_ex", "SSL_write_early_data", "SSL_read_early_data"):
        getattr(library, name).argtypes = [pointer, ctypes.c_char_p, size, ctypes.POINTER(size)]
    return library


def _error() -> str:
    crypto = ctypes.CDLL(ctypes.util.find_library("crypto") or "libcrypto.so.3")
    crypto.ERR_get_error.restype = ctypes.c_ulong
    text = ctypes.create_string_buffer(256)
    crypto.ERR_error_string_n(ctypes.c_ulong(crypto.ERR_get_error()), text, ctypes.c_size_t(256))
    while crypto.ERR_get_error():
        pass
    return text.value.decode()


class Context:
    """The settings of one end, for several connections.

    `certificates`: files with a key and a certificate each. `trusted`: the certificate of an authority; a server with
    it requires one of its clients. `secrets` gets a line of a key log for each secret. `ciphers` are those up to
    TLS 1.2, `suites` those of 1.3, `groups` of the key exchange, in OpenSSL's words. `protocols`: what a client offers
    by ALPN, and a server chooses the first of.
    """

    def __init__(
        self,
        *,
        server: bool,
        certificates: Sequence[Path] = (),
        trusted: Path | None = None,
        secrets: Callable[[str], object] | None = None,
        versions: tuple[int, int] = (TLS_1_2, TLS_1_3),
        ciphers: str = "",
        suites: str = "",
        groups: str = "",
        options: int = 0,
        fragment: int = 0,
        padding: int = 0,
        early_data: int = 0,
        protocols: Sequence[str] = (),
    ) -> None:
        self.library = _library()
        method = self.library.TLS_server_method() if server else self.library.TLS_client_method()
        self.handle = ctypes.c_void_p(self.library.SSL_CTX_new(ctypes.c_void_p(method)))
        self.is_server = server
        self._early_data = early_data
        self._set("SSL_CTX_ctrl", _CLEAR_MODE, _MODE_AUTO_RETRY, None, expected=None)
        self._set("SSL_CTX_ctrl", _MIN_VERSION, versions[0], None)
        self._set("SSL_CTX_ctrl", _MAX_VERSION, versions[1], None)
        self.library.SSL_CTX_set_options(self.handle, options)
        for path in certificates:
            self._set("SSL_CTX_use_certificate_chain_file", str(path).encode())
            self._set("SSL_CTX_use_PrivateKey_file", str(path).encode(), 1)
        if trusted is not None:
            self._set("SSL_CTX_load_verify_locations", str(trusted).encode(), None)
            self.library.SSL_CTX_set_verify(self.handle, 3 if server else 1, None)
        if ciphers:
            self._set("SSL_CTX_set_cipher_list", ciphers.encode())
        if suites:
            self._set("SSL_CTX_set_ciphersuites", suites.encode())
        if groups:
            self._set("SSL_CTX_ctrl", _GROUPS, 0, groups.encode())
        if fragment:
            self._set("SSL_CTX_ctrl", _FRAGMENT, fragment, None)
        if padding:
            self._set("SSL_CTX_set_block_padding", ctypes.c_size_t(padding))
        if server:
            self._set("SSL_CTX_set_session_id_context", b"kafka", 5)
            self._set("SSL_CTX_ctrl", _AUTOMATIC_DH, 1, None)
            self._set("SSL_CTX_set_max_early_data", ctypes.c_uint32(early_data))
        self._kept = [self._secret_writer(secrets), self._protocols(protocols)]

    def _set(self, name: str, *arguments: Any, expected: int | None = 1) -> None:
        result = getattr(self.library, name)(self.handle, *arguments)
        if expected is not None and result != expected:
            raise TlsError(f"{name}{arguments}: {_error()}")

    def _secret_writer(self, secrets: Callable[[str], object] | None) -> object:
        if secrets is None:
            return None
        written = secrets
        writer = _SECRET(lambda _, line: written(line.decode()))
        self.library.SSL_CTX_set_keylog_callback(self.handle, writer)
        return writer

    def _protocols(self, protocols: Sequence[str]) -> object:
        if not protocols:
            return None
        first = protocols[0].encode()
        if not self.is_server:
            words = b"".join(bytes([len(name)]) + name.encode() for name in protocols)
            self._set("SSL_CTX_set_alpn_protos", words, len(words), expected=0)
            return None
        kept = ctypes.create_string_buffer(first)

        def choose(_: object, out: Any, length: Any, *__: object) -> int:
            out[0], length[0] = ctypes.addressof(kept), len(first)
            return 0

        chooser = _CHOOSE(choose)
        self.library.SSL_CTX_set_alpn_select_cb(self.handle, chooser, None)
        return chooser, kept

    def accept(self, connected: socket.socket) -> End:
        """The server's end of a connection, after its handshake. Early data is in `End.early`."""
        end = End(self, connected)
        if self._early_data:
            end.read_early()
        end.handshake()
        return end

    def connect(
        self, connected: socket.socket, name: str = "", session: Session | None = None, early: bytes = b""
    ) -> End:
        """The client's end, after its handshake; it sends `early` before."""
        end = End(self, connected)
        if name:
            self.library.SSL_ctrl(end.handle, _HOST_NAME, 0, name.encode())
        if session is not None:
            self.library.SSL_set_session(end.handle, session)
        if early:
            end.call("SSL_write_early_data", early, len(early), ctypes.byref(ctypes.c_size_t()))
        end.handshake()
        return end


#: A session to be resumed (SSL_SESSION).
Session = ctypes.c_void_p


class End:
    """One end of a connection. The socket must block."""

    def __init__(self, context: Context, connected: socket.socket) -> None:
        self.library = context.library
        self.context = context
        self.socket = connected
        self.handle = ctypes.c_void_p(self.library.SSL_new(context.handle))
        self.library.SSL_set_fd(self.handle, connected.fileno())
        if context.is_server:
            self.library.SSL_set_accept_state(self.handle)
        else:
            self.library.SSL_set_connect_state(self.handle)
        self.early = b""

    def call(self, name: str, *arguments: Any) -> int:
        """Call a function that returns 1 if it succeeded."""
        result = int(getattr(self.library, name)(self.handle, *arguments))
        if result != 1:
            raise TlsError(f"{name}: {_error()}")
        return result

    def handshake(self) -> None:
        self.call("SSL_do_handshake")

    def read_early(self) -> None:
        buffer, length = ctypes.create_string_buffer(16384), ctypes.c_size_t()
        while True:
            result = self.library.SSL_read_early_data(self.handle, buffer, 16384, ctypes.byref(length))
            if result == 0:
                raise TlsError(f"SSL_read_early_data: {_error()}")
            self.early += buffer.raw[: length.value] if result == 1 else b""
            if result == 2:
                return

    def read(self, size: int = 16384) -> bytes | None:
        """Bytes, b"" at the end, None if a record had no data."""
        buffer, length = ctypes.create_string_buffer(size), ctypes.c_size_t()
        if self.library.SSL_read_ex(self.handle, buffer, size, ctypes.byref(length)) == 1:
            return buffer.raw[: length.value]
        reason = self.library.SSL_get_error(self.handle, 0)
        if reason == _ERROR_WANT_READ:
            return None
        text = _error()
        if reason != _ERROR_ZERO_RETURN and "unexpected eof" not in text and ":00000000:" not in text:
            raise TlsError(f"SSL_read_ex: {text}")
        return b""

    def read_exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = self.read(size - len(found))
            if part == b"":
                raise TlsError("the connection ended")
            found += part or b""
        return found

    def write(self, data: bytes) -> None:
        self.call("SSL_write_ex", data, len(data), ctypes.byref(ctypes.c_size_t()))

    def pending(self) -> int:
        return int(self.library.SSL_pending(self.handle))

    def update_key(self, both: bool) -> None:
        """Send a KeyUpdate with the next data; `both` requests one of the peer."""
        self.call("SSL_key_update", int(both))

    def renegotiate(self) -> None:
        self.call("SSL_renegotiate")
        self.handshake()

    @property
    def version(self) -> str:
        return str(self.library.SSL_get_version(self.handle).decode())

    @property
    def suite(self) -> str:
        cipher = ctypes.c_void_p(self.library.SSL_get_current_cipher(self.handle))
        return str(self.library.SSL_CIPHER_standard_name(cipher).decode())

    @property
    def is_resumed(self) -> bool:
        return bool(self.library.SSL_session_reused(self.handle))

    def session(self) -> Session:
        """The session, to be resumed by another connection. With TLS 1.3 it comes with the first data."""
        return ctypes.c_void_p(self.library.SSL_get1_session(self.handle))

    def close(self) -> None:
        self.library.SSL_shutdown(self.handle)
        self.library.SSL_free(self.handle)
        self.socket.close()
