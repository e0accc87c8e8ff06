"""One frame as a tree: size, header, body, and the bytes that are malformed, missing or left over.

A view never raises, whatever the bytes are. Undecoded bytes become a node with a problem; the rest of the frame is
still decoded. The leaves and the own bytes of all nodes are the frame, each byte once (`node`).

>>> from kafkatap.dissector.tree.view import Viewer
>>> Viewer().view(bytes.fromhex("0000000c 0012 0000 00000001 0002 6d65")).name
'ApiVersions request v0'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..dtypes import MAX_FRAME, TRAILING_BYTES
from ..layouts.catalog import api_name, load_messages
from ..layouts.schema import REQUEST, RESPONSE, MessageLayout
from ..programs.loading import load_programs
from ..programs.program import Programs
from ..programs.tape import Array, BodyReader, as_array
from . import node as n
from .nested import REMEMBERING, LayoutContext, describe_pushed
from .node import Node, Run, as_nodes
from .plans import FieldPlan, MessagePlan, make_plan
from .sasl import describe_token, token_fields
from .treewalk import Nested, ReadRecords, TreeWalk

_API_VERSIONS, _UNSUPPORTED_VERSION = 18, 35
#: An Envelope in an Envelope is not what brokers send.
_DEEPEST = 2


@dataclass(frozen=True, slots=True)
class ClusterNames:
    """Names of a cluster's numbers: topics by id (16 bytes), broker addresses by node id."""

    topics: Mapping[bytes, str] = field(default_factory=dict)
    brokers: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EarlierFacts:
    """Facts from earlier messages of the connection: the SASL mechanism, and for the response to an Envelope the
    (key, version) of the request inside (`enveloped`). `is_cut`: the missing bytes of this message had not been sent
    when its connection or the capture ended."""

    mechanism: str | None = None
    enveloped: tuple[int, int] | None = None
    is_cut: bool = False


class Viewer(LayoutContext):
    """Makes trees. `programs` are those of the EVERYTHING profile for `messages`; by default the built-in ones.

    `secrets`: show the fields that `layouts.secrets` hides. `numbers` False: an array of integers has no nodes for its
    elements. `records(raw, offset, cut)` returns nodes for the bytes of
    a `records` field at `offset` of the frame; `cut` as in `batches.PART`. Without it only the heads of
    batches are shown. `max_frame`: the missing bytes of a larger frame were not read, rather than not captured.
    """

    def __init__(
        self,
        programs: Programs | None = None,
        messages: Mapping[tuple[int, int], MessageLayout] | None = None,
        names: ClusterNames | None = None,
        secrets: bool = False,
        records: ReadRecords | None = None,
        max_frame: int = MAX_FRAME,
    ) -> None:
        super().__init__()
        self.max_frame = max_frame
        self.names = names or ClusterNames()
        self.secrets = secrets
        self.records = records
        self._messages = messages
        self._programs = programs
        self._reader: BodyReader | None = None
        self._plans: dict[tuple[int, int, int], MessagePlan | None] = {}
        self._earlier = EarlierFacts()
        self._depth = 0

    def view(
        self,
        frame: bytes | memoryview,
        direction: int = REQUEST,
        api_key: int = -1,
        version: int = -1,
        earlier: EarlierFacts | None = None,
    ) -> Node:
        """The tree of a frame: its captured bytes, from the size field on.

        `api_key`, `version`: for a response those of its request, or -1 if the request is unknown.
        """
        self._earlier, self._depth = earlier or EarlierFacts(), 0
        sized, limit = _size(frame)
        found = _Frame(self, frame, self.array_of(frame), sized.end, len(frame), limit)
        found.children.append(sized)
        if limit >= 0:
            found.read(direction, api_key, version)
        found.rest()
        self.forget_array()
        kind = "request" if direction == REQUEST else "response"
        end = max(child.end for child in found.children)
        return Node(found.title or kind, kind, 0, end, n.STRUCT, None, tuple(found.children), found.text)

    @property
    def is_cut(self) -> bool:
        return self._earlier.is_cut

    def why_missing(self, size: int) -> str:
        """What did not happen to the missing bytes of a frame of this size: "sent", "read" or "captured"."""
        if self.is_cut:
            return "sent before the end"
        return "read" if size > self.max_frame else "captured"

    def view_token(self, frame: bytes, direction: int, mechanism: str | None = None) -> Node:
        """The tree of a frame that is a bare SASL token, after SaslHandshake v0."""
        sized, limit = _size(frame)
        found = _Frame(self, frame, as_array(b""), sized.end, len(frame), limit)
        found.children.append(sized)
        if limit >= 0:
            end = min(limit, len(frame))
            raw = frame[4:end]
            text = describe_token(raw, direction, mechanism)
            if self.secrets:
                fields = token_fields(raw, 4, direction, mechanism)
                kind, value = (n.NESTED, None) if fields else (n.VALUE, raw)
                found.children.append(Node("Token", "bytes", 4, len(raw), kind, value, fields, text))
            else:
                found.children.append(Node("Token", "bytes", 4, len(raw), n.HIDDEN, len(raw), (), text))
            found.at = end
        found.rest()
        end = max(child.end for child in found.children)
        return Node("SASL token", "token", 0, end, n.STRUCT, None, tuple(found.children))

    def inner_frame(self, data: bytes | memoryview, at: int, end: int, direction: int) -> Nested | None:
        """The frame inside of an Envelope, which has no size field, at data[at:end]."""
        if at == end:
            return None
        if self._depth >= _DEEPEST:
            return Nested("nested too deeply", secret=True)
        key, version = self._earlier.enveloped or (-1, -1)
        if direction == RESPONSE and key < 0:
            return Nested("the request inside was not seen", secret=True)
        self._depth += 1
        found = _Frame(self, data, self.array_of(data), at, end, end)
        found.read(direction, key, version)
        found.rest()
        self._depth -= 1
        return Nested(found.title, tuple(found.children))

    def plan(self, api_key: int, direction: int, version: int) -> MessagePlan | None:
        """The plan of a message; None for a message that the definitions do not have."""
        key = (api_key, direction, version)
        if key not in self._plans:
            message = self.message(api_key, direction)
            known = message is not None and version in message.versions
            self._plans[key] = make_plan(message, version, self.reader.programs.fields) if message and known else None
        return self._plans[key]

    def message(self, api_key: int, direction: int) -> MessageLayout | None:
        """The layout of one direction of an API, or None."""
        if self._messages is None:
            self._messages = load_messages()
        return self._messages.get((api_key, direction))

    @property
    def reader(self) -> BodyReader:
        if self._reader is None:
            self._reader = BodyReader(self._programs or load_programs("everything"))
        return self._reader

    # The answers of a `TreeContext`

    def topic(self, topic_id: bytes) -> str:
        return self.names.topics.get(topic_id, "")

    def broker(self, node_id: int) -> str:
        return self.names.brokers.get(node_id, "")

    def nested(self, walk: TreeWalk, field: FieldPlan, at: int, end: int) -> Nested | None:
        if field.name == "AuthBytes" and not isinstance(walk.owner, str):
            raw, mechanism = bytes(walk.data[at:end]), self._earlier.mechanism
            text = describe_token(raw, walk.owner[1], mechanism)
            return Nested(text, token_fields(raw, at, walk.owner[1], mechanism))
        return super().nested(walk, field, at, end)

    def secret_text(self, walk: TreeWalk, field: FieldPlan, raw: bytes) -> str:
        if isinstance(walk.owner, str):
            return ""
        if field.name == "AuthBytes":
            return describe_token(raw, walk.owner[1], self._earlier.mechanism)
        return describe_pushed(walk, raw) if field.name == "Metrics" else ""


def _size(frame: bytes | memoryview) -> tuple[Node, int]:
    """The node of the size field, and the end of the frame; -1 if the size is cut short or negative."""
    if len(frame) < 4:
        return Node("Size", "int32", 0, len(frame), n.RAW, len(frame), (), "", "cut short"), -1
    size = int.from_bytes(frame[:4], "big", signed=True)
    problem = "" if size >= 0 else "malformed: a negative size"
    return Node("Size", "int32", 0, 4, n.VALUE, size, (), "", problem), 4 + size if size >= 0 else -1


class _Frame:
    """Reads header and body of a frame in data[at:captured] that ends at `limit`, into `children`; never raises."""

    def __init__(
        self, viewer: Viewer, data: bytes | memoryview, buffer: Array, at: int, captured: int, limit: int
    ) -> None:
        self.viewer, self.data, self.buffer, self.at = viewer, data, buffer, at
        self.captured, self.limit = captured, limit
        self.children: list[Node] = []
        self.title = self.text = self.problem = ""
        self.header: list[Node] = []
        self.header_end = False
        self.trailing = False

    def read(self, direction: int, api_key: int, version: int) -> None:
        start = self.at
        if direction == REQUEST:
            api_key, version = self.number("ApiKey", 2), self.number("ApiVersion", 2)
            if self.header and not self.header_end:
                key = self.header[0]
                self.header[0] = Node(key.name, key.type, key.offset, 2, n.VALUE, key.value, (), api_name(api_key))
        correlation = self.number("CorrelationId", 4)
        del correlation
        if not self.header_end:
            kind = "request" if direction == REQUEST else "response"
            if api_key >= 0 or direction == REQUEST:
                self.title = f"{api_name(api_key)} {kind} v{version}"
            else:
                self.title = f"{kind} without its request"
        message = self.viewer.message(api_key, direction)
        if direction == REQUEST and not self.header_end and not (message and message.header_version(version) == 0):
            self.client_id()
        if self.header_end:
            self.children.append(Node("Header", "struct", start, self.at - start, n.STRUCT, None, tuple(self.header)))
            return
        self.body(start, direction, api_key, self.answered(direction, api_key, version), message)

    def answered(self, direction: int, api_key: int, version: int) -> int:
        """The version that a response is encoded in: ApiVersions refuses an unknown version in version 0 (KIP-511)."""
        if direction == RESPONSE and api_key == _API_VERSIONS and version > 0:
            error = self.data[self.at : min(self.at + 2, self.captured)]
            if int.from_bytes(error, "big") == _UNSUPPORTED_VERSION:
                self.text = "answered in version 0"
                return 0
        return version

    def body(self, start: int, direction: int, api_key: int, version: int, message: MessageLayout | None) -> None:
        plan = None if message is None else self.viewer.plan(api_key, direction, version)
        if plan is None:
            self.children.append(Node("Header", "struct", start, self.at - start, n.STRUCT, None, tuple(self.header)))
            self.problem = _not_known(api_key, version, message)
            return
        reader = self.viewer.reader
        captured, first = min(self.captured, self.limit), self.at
        program = reader.programs.find(api_key, version, direction)
        decoded = reader.read(self.buffer, program, first, captured, self.limit)
        owner = (api_key, direction)
        walk = TreeWalk(self.data, decoded, self.viewer, owner, plan.careful, owner in REMEMBERING)
        if plan.header_tags >= 0:
            tags: list[Node | Run] = []
            walk.tags({}, plan.header_tags, tags)
            self.header += as_nodes(tags)
        self.children.append(Node("Header", "struct", start, walk.at - start, n.STRUCT, None, tuple(self.header)))
        if not walk.stopped:
            at = walk.at
            fields = walk.struct(plan.body)
            self.children.append(Node("Body", plan.body.name, at, walk.at - at, n.STRUCT, None, fields))
        self.at = walk.at
        self.trailing = decoded.status == TRAILING_BYTES

    def number(self, name: str, width: int) -> int:
        if self.header_end:
            return -1
        if self.at + width > min(self.captured, self.limit):
            self.cut(name, f"int{8 * width}")
            return -1
        value = int.from_bytes(self.data[self.at : self.at + width], "big", signed=True)
        self.header.append(Node(name, f"int{8 * width}", self.at, width, n.VALUE, value))
        self.at += width
        return value

    def client_id(self) -> None:
        start, end = self.at, min(self.captured, self.limit)
        length = int.from_bytes(self.data[start : start + 2], "big", signed=True)
        stop = start + 2 + max(length, 0)
        if start + 2 > end or stop > end or length < -1:
            self.cut("ClientId", "string")
            return
        self.at = stop
        if length < 0:
            self.header.append(Node("ClientId", "string", start, 2, n.NULL))
            return
        text = bytes(self.data[start + 2 : stop]).decode("utf-8", "surrogateescape")
        self.header.append(Node("ClientId", "string", start, 2 + length, n.VALUE, text))

    def cut(self, name: str, type_name: str) -> None:
        """Note that the header ends, or is malformed, in this field."""
        missing = f"not {self.viewer.why_missing(self.limit)}"
        problem = missing if self.limit > self.captured else "malformed: the frame ends in its header"
        self.header.append(Node(name, type_name, self.at, 0, n.RAW, 0, (), "", problem))
        self.header_end = True

    def rest(self) -> None:
        """Add nodes for the bytes behind the decoded ones: trailing, undecoded, missing, or behind the frame."""
        captured = min(self.captured, self.limit) if self.limit >= 0 else self.captured
        if self.at < captured:
            count = captured - self.at
            name = "trailing bytes" if self.trailing else "undecoded bytes"
            problem = f"{count} bytes behind the message" if self.trailing else self.problem
            self.children.append(Node(name, "bytes", self.at, count, n.RAW, count, (), "", problem))
        elif self.problem:
            self.children.append(Node("undecoded bytes", "bytes", self.at, 0, n.RAW, 0, (), "", self.problem))
        missing = self.limit - max(self.at, self.captured)
        if missing > 0:
            at = max(self.at, self.captured)
            name = f"not {self.viewer.why_missing(self.limit)}"
            self.children.append(
                Node(name, "bytes", at, missing, n.MISSING, missing, (), "", f"{missing} bytes are missing")
            )
        behind = self.captured - max(self.limit, captured)
        if 0 <= self.limit < self.captured:
            self.children.append(
                Node("bytes behind the frame", "bytes", self.limit, behind, n.RAW, behind, (), "", "not of this frame")
            )


def _not_known(api_key: int, version: int, message: MessageLayout | None) -> str:
    """The reason why there is no plan for a body."""
    if message is None:
        return "the request was not seen" if api_key < 0 else f"{api_name(api_key)} is not in these definitions"
    name, low, high = message.name, message.versions.low, message.versions.high
    if version > high:
        return f"{name} v{version} is newer than these definitions (up to v{high})"
    return f"{name} v{version} is not in these definitions (v{low} to v{high})"
