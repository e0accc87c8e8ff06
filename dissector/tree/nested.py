"""What lies in byte fields: which layout, told by the field and by what stands beside it, and its nodes.

The layouts are data/*.kmsg. Bytes are taken for one only where it reads them to their very end (or says, by a version
that is newer than the layout, that more may follow); else they stay bytes, with a note.

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
#: Layouts in which the version stands as a field of so many bytes; before the others it is an int16 of its own.
_VERSION_INSIDE = {
    "LeaderChangeMessage": 2, "SnapshotHeaderRecord": 2, "SnapshotFooterRecord": 2, "KRaftVersionRecord": 2,
    "VotersRecord": 2, "StreamsSubscriptionInfo": 4, "StreamsAssignmentInfo": 4,
}  # fmt: skip
#: A version so far above the newest known one is none: the bytes are something else.
_NEWER = 16
#: Layouts of which only the beginning is known.
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
    """Bytes as the layout of this name ("EndTxnMarker"): a NESTED node whose offsets count from their start; None where
    it does not read them to the end. KeyError for a layout that is not known."""
    found = decode_layout(LayoutContext(), name, raw, 0, len(raw))
    return None if found is None else Node(name, "bytes", 0, len(raw), n.NESTED, None, found.children, found.text)


class LayoutContext(TreeContext):
    """Decodes byte fields that hold a layout of messages/nested. It has no names, and reads no frames in messages."""

    def __init__(self) -> None:
        self._bytes, self._array = b"", as_array(b"")

    def array_of(self, data: bytes) -> Array:
        """The bytes as an array for kernels, copied once for all layouts that lie in them."""
        if data is not self._bytes:
            self._bytes, self._array = data, as_array(data)
        return self._array

    def nested(self, walk: TreeWalk, field: FieldPlan, at: int, end: int) -> Nested | None:
        hook = HOOKS.get((walk.owner, field.path))
        return None if hook is None else hook(self, walk, at, end)

    def inner_frame(self, data: bytes, at: int, end: int, direction: int) -> Nested | None:
        """The request or response inside of an Envelope, at data[at:end]."""
        return None


def decode_layout(
    context: LayoutContext, name: str, data: bytes, at: int, end: int, protocol: str = ""
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
#: What a walk has seen of the group's protocol, handed down to the user data.
_PROTOCOL = "protocol"


@dataclass(frozen=True, slots=True)
class _Group:
    """A member's metadata or assignment; the paths of the strings that tell of what kind it is."""

    part: int  # 0: what a member says of itself, 1: what it is given
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
    """What may be said of the metrics in a PushTelemetry request: codec and names."""
    from .telemetry import describe_metrics  # here: it is rare, and brings the codecs

    return describe_metrics(walk.numbers.get("CompressionType", 0), raw)


def _metrics(context: LayoutContext, walk: TreeWalk, at: int, end: int) -> Nested | None:
    return Nested(describe_pushed(walk, walk.data[at:end]))


def _address(context: LayoutContext, walk: TreeWalk, at: int, end: int) -> Nested | None:
    raw = walk.data[at:end]
    return Nested(str(ipaddress.ip_address(raw))) if len(raw) in (4, 16) else None


#: By the message's (api_key, direction), or the layout's name, and the path of the field.
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
#: Messages whose strings tell what is nested in them.
REMEMBERING = frozenset(owner for owner, _ in HOOKS if isinstance(owner, tuple) and owner[0] != 58)
