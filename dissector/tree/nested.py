"""Layouts in byte fields, and their nodes. The field and the fields beside it determine the layout.

The layouts are messages/nested/*.kmsg. A layout is accepted only if it decodes the bytes to their end; a version newer
than the layout may have more bytes. Otherwise the bytes stay bytes, with a note.

Groups: KIP-429, KIP-415 (Connect); Envelope: KIP-590; control records: KIP-98, KIP-595, KIP-630, KIP-853.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from ..dtypes import OK, TRAILING_BYTES
from ..layouts.notation import parse_data
from ..layouts.schema import REQUEST, RESPONSE, MessageLayout
from ..programs.compiler import compile_programs
from ..programs.profiles import EVERYTHING
from ..programs.program import Programs
from ..programs.tape import Array, BodyReader, as_array
from . import node as n
from .node import Node
from .plans import FieldPlan, MessagePlan, make_plan
from .treewalk import Nested, TreeContext, TreeWalk

DATA_FOLDER = Path(__file__).parent.parent / "messages" / "nested"
#: Layouts whose version is a field of so many bytes. Before the others the version is an int16 of its own.
_VERSION_INSIDE = {
    "LeaderChangeMessage": 2, "SnapshotHeaderRecord": 2, "SnapshotFooterRecord": 2, "KRaftVersionRecord": 2,
    "VotersRecord": 2, "StreamsSubscriptionInfo": 4, "StreamsAssignmentInfo": 4,
}  # fmt: skip
#: Bytes with a version so far above the newest known one have another layout.
_NEWER = 16
#: Layouts that describe only the beginning of their bytes.
_BEGINNINGS = ("StreamsSubscriptionInfo", "StreamsAssignmentInfo")
#: The value of a control record by the type in its key.
CONTROL_VALUES = {
    0: "EndTxnMarker", 1: "EndTxnMarker", 2: "LeaderChangeMessage", 3: "SnapshotHeaderRecord",
    4: "SnapshotFooterRecord", 5: "KRaftVersionRecord", 6: "VotersRecord",
}  # fmt: skip
CONTROL_KEY = "ControlRecordTypeSchema"
#: Assignors of Kafka Connect, and of Kafka Streams, by the name of the group's protocol.
_CONNECT = ("default", "compatible", "sessioned")
_STREAMS = "stream"


@cache
def load_layouts() -> dict[str, MessageLayout]:
    """Every layout by its name; `api_key` numbers them."""
    paths = sorted(DATA_FOLDER.glob("*.kmsg"))
    layouts = [layout for path in paths for layout in parse_data(path.read_text(encoding="utf-8"), path.name)]
    return {layout.name: replace(layout, api_key=number) for number, layout in enumerate(layouts)}


@cache
def _programs() -> Programs:
    return compile_programs({(m.api_key, m.direction): m for m in load_layouts().values()}, EVERYTHING)


@cache
def _reader() -> BodyReader:
    return BodyReader(_programs())


@cache
def _plan(name: str, version: int) -> MessagePlan:
    return make_plan(load_layouts()[name], version, _programs().fields)


def decode_nested(name: str, raw: bytes) -> Node | None:
    """Decode bytes by the layout of this name ("EndTxnMarker"): a NESTED node with offsets from their start.

    None if the layout does not decode them to their end. KeyError for an unknown layout.
    """
    found = decode_layout(LayoutContext(), name, raw, 0, len(raw))
    return None if found is None else Node(name, "bytes", 0, len(raw), n.NESTED, None, found.children, found.text)


class LayoutContext(TreeContext):
    """Decodes byte fields that hold a layout of messages/nested. It has no names, and reads no frames in messages."""

    def __init__(self) -> None:
        self.forget_array()

    def forget_array(self) -> None:
        """Drop what `array_of` keeps."""
        self._bytes: bytes | memoryview = b""
        self._array: Array = as_array(b"")

    def array_of(self, data: bytes | memoryview) -> Array:
        """The bytes as an array for kernels, copied at most once for all layouts that lie in them."""
        if data is not self._bytes:
            self._bytes, self._array = data, as_array(data)
        return self._array

    def nested(self, walk: TreeWalk, field: FieldPlan, at: int, end: int) -> Nested | None:
        hook = HOOKS.get((walk.owner, field.path))
        return None if hook is None else hook(self, walk, at, end)

    def inner_frame(self, data: bytes | memoryview, at: int, end: int, direction: int) -> Nested | None:
        """The request or response inside of an Envelope, at data[at:end]."""
        return None


def decode_layout(
    context: LayoutContext, name: str, data: bytes | memoryview, at: int, end: int, protocol: str = ""
) -> Nested | None:
    """Decode data[at:end] by the layout of this name, or return None if it does not fit. Offsets are those of `data`.

    `protocol`: the group's, for layouts inside of this one.
    """
    layout = load_layouts()[name]
    width = _VERSION_INSIDE.get(name, 2)
    if end - at < width:
        return None
    version = int.from_bytes(data[at : at + width], "big", signed=True)
    if not layout.versions.low <= version <= layout.versions.high + _NEWER:
        return None
    used = min(version, layout.versions.high)
    first = at if name in _VERSION_INSIDE else at + width
    plan = _plan(name, used)
    program = _programs().find(layout.api_key, used, layout.direction)
    body = _reader().read(context.array_of(data), program, first, end, end)
    open_ended = version > used or name in _BEGINNINGS
    if body.status != OK and not (body.status == TRAILING_BYTES and open_ended):
        return None
    walk = TreeWalk(data, body, context, name, plan.careful)
    walk.seen[_PROTOCOL] = protocol
    children = walk.struct(plan.body)
    if first > at:
        children = (Node("Version", "int16", at, width, n.VALUE, version), *children)
    if walk.at < end:
        children = (*children, Node("undecoded bytes", "bytes", walk.at, end - walk.at, n.RAW, end - walk.at))
    return Nested(f"{name} v{version}", children)


Hook = Callable[[LayoutContext, TreeWalk, int, int], Nested | None]
#: The group's protocol among the strings of a walk; nested walks inherit it.
_PROTOCOL = "protocol"


@dataclass(frozen=True, slots=True)
class _Group:
    """A member's metadata or assignment, and the paths of the strings that determine its kind."""

    part: int  # 0: metadata, 1: assignment
    kind: str
    protocol: str

    def __call__(self, context: LayoutContext, walk: TreeWalk, at: int, end: int) -> Nested | None:
        if at == end:
            return None
        kind, protocol = walk.seen.get(self.kind, ""), walk.seen.get(self.protocol, "")
        if kind == "connect" or (not kind and protocol in _CONNECT):
            name = ("ConnectProtocolMetadata", "ConnectProtocolAssignment")[self.part]
        elif kind in ("", "consumer"):
            name = ("ConsumerProtocolSubscription", "ConsumerProtocolAssignment")[self.part]
        else:
            return None
        return decode_layout(context, name, walk.data, at, end, protocol) or Nested(f"not readable as {name}")


def _user_data(name: str) -> Hook:
    def find(context: LayoutContext, walk: TreeWalk, at: int, end: int) -> Nested | None:
        if walk.seen.get(_PROTOCOL) != _STREAMS:
            return None
        return decode_layout(context, name, walk.data, at, end)

    return find


def _always(name: str) -> Hook:
    def find(context: LayoutContext, walk: TreeWalk, at: int, end: int) -> Nested | None:
        if at == end:
            return None
        return decode_layout(context, name, walk.data, at, end) or Nested(f"not readable as {name}")

    return find


def _inner_frame(direction: int) -> Hook:
    def find(context: LayoutContext, walk: TreeWalk, at: int, end: int) -> Nested | None:
        return context.inner_frame(walk.data, at, end, direction)

    return find


def describe_pushed(walk: TreeWalk, raw: bytes) -> str:
    """The codec and the names of the metrics in a PushTelemetry request."""
    from .telemetry import describe_metrics  # rarely needed, and imports the codecs

    return describe_metrics(walk.numbers.get("CompressionType", 0), raw)


def _metrics(context: LayoutContext, walk: TreeWalk, at: int, end: int) -> Nested | None:
    return Nested(describe_pushed(walk, bytes(walk.data[at:end])))


def _address(context: LayoutContext, walk: TreeWalk, at: int, end: int) -> Nested | None:
    raw = bytes(walk.data[at:end])
    return Nested(str(ipaddress.ip_address(raw))) if len(raw) in (4, 16) else None


#: Hooks by (owner, path of the field). The owner is the (api_key, direction) of a message, or the name of a layout.
HOOKS: dict[tuple[tuple[int, int] | str, str], Hook] = {
    ((11, REQUEST), "Protocols.Metadata"): _Group(0, "ProtocolType", "Protocols.Name"),
    ((11, RESPONSE), "Members.Metadata"): _Group(0, "ProtocolType", "ProtocolName"),
    ((14, REQUEST), "Assignments.Assignment"): _Group(1, "ProtocolType", "ProtocolName"),
    ((14, RESPONSE), "Assignment"): _Group(1, "ProtocolType", "ProtocolName"),
    ((15, RESPONSE), "Groups.Members.MemberMetadata"): _Group(0, "Groups.ProtocolType", "Groups.ProtocolData"),
    ((15, RESPONSE), "Groups.Members.MemberAssignment"): _Group(1, "Groups.ProtocolType", "Groups.ProtocolData"),
    ((58, REQUEST), "RequestData"): _inner_frame(REQUEST),
    ((58, RESPONSE), "ResponseData"): _inner_frame(RESPONSE),
    ((58, REQUEST), "RequestPrincipal"): _always("DefaultPrincipalData"),
    ((58, REQUEST), "ClientHostAddress"): _address,
    ((72, REQUEST), "Metrics"): _metrics,
    ("ConsumerProtocolSubscription", "UserData"): _user_data("StreamsSubscriptionInfo"),
    ("ConsumerProtocolAssignment", "UserData"): _user_data("StreamsAssignmentInfo"),
    ("ConnectProtocolMetadata", "Allocation"): _always("ConnectProtocolAssignment"),
}
#: Messages whose strings determine the layouts nested in them.
REMEMBERING = frozenset(owner for owner, _ in HOOKS if isinstance(owner, tuple) and owner[0] != 58)
