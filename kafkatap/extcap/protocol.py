"""What Wireshark reads from an extcap program: sentences on its interfaces, their link types and options, and packets.

A sentence is a word and values in braces (extcap(4)). A value cannot contain braces, so those are replaced.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from collections.abc import Callable, Iterable, Iterator

from kafkatap.reassembly.link_types import RAW

#: Wireshark's name of an interface is this and the name of the network interface.
PREFIX = "kafkatap-"
#: libpcap's numbers of link types, with names.
_LINK_TYPES = {False: (1, "EN10MB", "Ethernet"), True: (12, "RAW", "Raw IP")}

#: The options in Wireshark's dialog: option, type, label, default, tip, and values to choose from.
_OPTIONS: tuple[tuple[str, str, str, str, str, tuple[tuple[str, str], ...]], ...] = (
    ("--filter", "string", "Exchanges that match", "",
     "A filter expression of kafkatap, such as: topic == orders and latency > 50ms. Empty: all Kafka connections whole",
     ()),
    ("--exchanges", "selector", "Exchanges", "all", "Packets of other exchanges are left out",
     (("all", "All"), ("failed", "Failed ones"), ("slow", "Slow ones"), ("failed-or-slow", "Failed or slow ones"))),
    ("--slow", "string", "Slow from", "1s", "Exchanges that take longer are slow, unless they are long polls", ()),
    ("--comments", "selector", "Packet comments", "all", "What kafkatap found, as comments of packets",
     (("all", "On all exchanges"), ("failed-or-slow", "On failed or slow ones"), ("none", "None"))),
    ("--port", "string", "Port of brokers", "", "A hint: Kafka is found on any port without it", ()),
    ("--keylog", "fileselect", "Key log", "", "Decrypt TLS with the secrets that clients or brokers write to this file",
     ()),
    ("--snap-length", "unsigned", "Bytes of each packet", "262144", "Packets are cut once they were decoded", ()),
    ("--ring-size", "string", "Memory for packets", "64m", "Packets wait there until they are known to be Kafka", ()),
)  # fmt: skip
#: Errors of a pipe whose reader left.
_LEFT = (errno.EPIPE, errno.ECONNRESET)


def interface_of(value: str) -> str:
    """The network interface of a name in Wireshark. ValueError for another program's name."""
    if not value.startswith(PREFIX) or len(value) == len(PREFIX):
        raise ValueError(f"no interface of kafkatap is called {value!r}: their names begin with {PREFIX}")
    return value[len(PREFIX) :]


def list_interfaces(names: Iterable[str], version: str) -> Iterator[str]:
    """The program and its interfaces, for network interfaces with these names."""
    yield _sentence("extcap", version=version, display="kafkatap: Kafka from packet captures")
    for name in names:
        where = "all interfaces" if name == "any" else name
        yield _sentence("interface", value=PREFIX + name, display=f"Kafka exchanges on {where}")


def list_link_types(link_type: int) -> Iterator[str]:
    """The link type of an interface."""
    number, name, display = _LINK_TYPES[link_type == RAW]
    yield _sentence("dlt", number=str(number), name=name, display=display)


def list_options() -> Iterator[str]:
    """The options of an interface, for Wireshark's dialog."""
    for number, (option, kind, label, default, tip, values) in enumerate(_OPTIONS):
        given = {"default": default} if default and not values else {}
        yield _sentence("arg", number=str(number), call=option, display=label, type=kind, tooltip=tip, **given)
        for value, display in values:
            chosen = {"default": "true"} if value == default else {}
            yield _sentence("value", arg=str(number), value=value, display=display, **chosen)


def _sentence(word: str, **values: str) -> str:
    return f"{word} " + "".join(f"{{{name}={value.translate(_NO_BRACES)}}}" for name, value in values.items())


_NO_BRACES = str.maketrans("{}\n", "() ")


class PacketPipe:
    """The pipe to Wireshark: a named pipe, or a file, which is created with mode 0600 if there is none. Opening waits
    until the pipe has a reader or `stop` returns True: then the reader left. OSError if the path cannot be opened."""

    def __init__(self, path: str, stop: Callable[[], bool]) -> None:
        self._file = -1
        self.is_left = False
        self._is_pipe = os.path.exists(path) and stat.S_ISFIFO(os.stat(path).st_mode)
        while self._file < 0 and not self.is_left:
            try:
                kind = os.O_NONBLOCK if self._is_pipe else os.O_CREAT | os.O_TRUNC
                self._file = os.open(path, os.O_WRONLY | os.O_CLOEXEC | kind, 0o600)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                self.is_left = stop()
                time.sleep(0.02)
        if self._file >= 0:
            os.set_blocking(self._file, True)

    def write(self, data: bytes) -> None:
        """Write all bytes, however long the reader takes. Once the reader left, nothing is written."""
        left = memoryview(data)
        try:
            while left and not self.is_left:
                left = left[os.write(self._file, left) :]
        except OSError as error:
            if error.errno not in _LEFT:
                raise
            self.is_left = True

    def has_reader(self) -> bool:
        """Whether somebody still reads: false as soon as Wireshark closes its end, also if nothing is written."""
        if not self.is_left and self._is_pipe:
            poll = select.poll()
            poll.register(self._file, 0)
            self.is_left = any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
        return not self.is_left

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
