"""The messages that cost the most for their bytes: each array of each message, filled with its smallest elements.

A `WorstMessage` names one array of one message. All other fields are as small as they can be, and error codes are not
zero, since each one of these makes a row. `write_worst` writes a capture with one such message: a few kB of .zst. A few
small exchanges come first, so that the connection is known as Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafkatap.dissector.layouts.catalog import load_messages
from kafkatap.dissector.layouts.schema import REQUEST, RESPONSE, Field, MessageLayout, Struct
from tests.support.captures import pcap_bytes, write_capture
from tests.support.messages import Repeated, emptiest_element, emptiest_value, encode_message
from tests.support.tcp import encode

from .kafkatalk import API_VERSIONS, KafkaTalk, body

#: A failed exchange, in any API.
ERROR_CODE = 3
SEGMENT = 60_000
#: The bytes of a frame beside its body, at most: size field, header, counts as varints.
_BESIDE = 40


@dataclass(frozen=True, slots=True)
class WorstMessage:
    """A message with one array of very many elements. `path`: the fields that lead to the array."""

    layout: MessageLayout
    version: int
    path: tuple[Field, ...]

    @property
    def name(self) -> str:
        direction = "request" if self.layout.direction == REQUEST else "response"
        return f"{self.layout.name} v{self.version} {direction} {'.'.join(field.name for field in self.path)}"

    @property
    def element_bytes(self) -> int:
        """The bytes of one element."""
        return (len(self._body(2000)) - len(self._body(1000))) // 1000

    def body(self, size: int) -> bytes:
        """The message for a frame of at most `size` bytes, from the header's tag section on."""
        return self._body((size - len(self._body(0)) - _BESIDE) // self.element_bytes)

    def _body(self, count: int) -> bytes:
        value = _value(self.layout.body, self.version, self.path, count)
        return encode_message(self.layout, self.version, value)


def worst_messages() -> Iterator[WorstMessage]:
    """Every array of every message, by API, direction and version."""
    for _, layout in sorted(load_messages().items()):
        for version in layout.versions:
            for path in _arrays(layout.body, version):
                yield WorstMessage(layout, version, path)


def worst_arrays() -> list[WorstMessage]:
    """Every array once: in the version with the smallest elements, the latest of these."""
    found: dict[tuple[int, int, tuple[str, ...]], tuple[int, WorstMessage]] = {}
    for worst in worst_messages():
        key = worst.layout.api_key, worst.layout.direction, tuple(field.name for field in worst.path)
        size = worst.element_bytes
        if key not in found or size <= found[key][0]:
            found[key] = size, worst
    return [worst for _, worst in found.values()]


def named_worst(name: str) -> WorstMessage:
    """The one of this name."""
    return next(worst for worst in worst_messages() if worst.name == name)


def _arrays(struct: Struct, version: int) -> Iterator[tuple[Field, ...]]:
    """The paths of all arrays in a struct."""
    for item in struct.fields:
        if version not in item.versions:
            continue
        if item.is_array:
            yield (item,)
        if item.struct is not None:
            for path in _arrays(item.struct, version):
                yield (item, *path)


def _value(struct: Struct, version: int, path: tuple[Field, ...], count: int) -> dict[str, Any]:
    """The values of a struct in which the array at `path` has so many elements."""
    value = emptiest_value(struct, version)
    for item in struct.fields:
        if item.name in value and item.role == "error_code" and not item.is_array:
            value[item.name] = ERROR_CODE
    if not path:
        return value
    item, *rest = path
    if item.struct is not None:
        inner: Any = _value(item.struct, version, tuple(rest), count)
    else:
        inner = ERROR_CODE if item.role == "error_code" else emptiest_element(item)
    value[item.name] = inner if not item.is_array else [inner] if rest else Repeated(inner, count)
    return value


def write_worst(path: Path, worst: WorstMessage, size: int, copies: int = 1) -> Path:
    """Write a capture of one connection with the message, in a frame of at most `size` bytes, `copies` times."""
    talk = KafkaTalk(mss=SEGMENT, acks=False)
    talk.tcp.open()
    for number in range(3):
        talk.exchange(API_VERSIONS, 0, number)
    layout, version = worst.layout, worst.version
    others = 1 - layout.direction
    bodies = {layout.direction: worst.body(size)}
    bodies[others] = body(layout.api_key, version, others) if (layout.api_key, others) in load_messages() else b""
    for number in range(3, 3 + copies):
        asked = talk.request_raw(layout.api_key, version, number, bodies[REQUEST])
        talk.respond_raw(asked, bodies[RESPONSE])
    return write_capture(path, pcap_bytes(encode(talk.segments)))


#: Commands that read a capture, and the memory that a few kB may take of each, MiB.
COMMANDS = {
    "report": 500,
    "report --sections all": 800,
    "show": 500,
    "show --tree": 500,
    "records": 500,
    "extract": 500,
    "extract --anonymize": 500,
}


def arguments_of(command: str, capture: Path, copy: Path) -> list[str]:
    """The arguments of a command that reads a capture. `copy`: what `extract` writes."""
    output = ["-o", str(copy)] if command.startswith("extract") else []
    return [*command.split(), *output, str(capture)]
