"""Rows (`node_rows`) of many messages at once, for those in which nothing is unusual.

Secrets are not decided here: messages that can have any are left to trees, and so are those with nested layouts.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from kafkatap.kernels.arrays import joined, untouched

from ..dtypes import OK
from ..layouts.catalog import api_name
from ..layouts.schema import REQUEST
from ..programs import fields as f
from ..programs.machine import JOB, TAPE
from ..programs.tape import as_array, decode_jobs
from ..records import batches as b
from ..records.checksums import check_crcs
from . import node_rows as r
from .batch_heads import batch_texts
from .nested import HOOKS
from .plans import BOOL, BROKERS, BYTES, INTEGER, RECORD_SET, STRING, TOPICS, UUID, FieldPlan, Note, StructPlan
from .view import Viewer

Array = np.ndarray[Any, Any]
_FORMS = {INTEGER: r.NUMBER, BOOL: r.BOOL, UUID: r.UUID, STRING: r.STRING, BYTES: r.BYTES, RECORD_SET: r.SIZE}
_NESTING = frozenset(owner for owner, _ in HOOKS)
#: Key, version, correlation id, and the length of the client id.
_REQUEST_HEADER = struct.Struct(">hhih")
_API_VERSIONS, _UNSUPPORTED_VERSION = 18, 35
#: Values from -1 to this, less two, whose meanings are kept.
_SMALL = 256
#: Rows of the tape whose memory is kept.
_TAPE_ROWS = 1 << 16


class Frames(NamedTuple):
    """Messages, column by column: their frames from the size field on, whether they are responses, the API keys and
    versions of their requests (-1: unknown), and whether they are bare tokens without a header."""

    frames: list[bytes]
    are_responses: list[bool]
    api_keys: list[int]
    versions: list[int]
    are_tokens: list[int]


class MessageRows(NamedTuple):
    """Rows of messages: `nodes` (NODE), and where those of each message begin and end in them (int64; both -1: it has
    none). Their values lie in `data`, the bytes of all frames."""

    nodes: Array
    firsts: Array
    lasts: Array
    data: bytes


class RowMaker:
    """Makes the rows of messages that `viewer` would make trees of. `text_of`: the number of a text. `longest_text`:
    bytes of the longest text in rows.

    Rows not `for_lines` have no meanings of values, and none for record batches. Their names begin with that of the
    array or struct ("Topics.Name"), or with "tags." if the field is tagged; those of elements do not. Messages with
    strings in fields of the names `left_out` have no rows then.
    """

    def __init__(
        self,
        viewer: Viewer,
        text_of: Callable[[str], int],
        longest_text: int,
        for_lines: bool = True,
        left_out: frozenset[str] = frozenset(),
    ) -> None:
        self._viewer, self._text_of, self._longest_text = viewer, text_of, longest_text
        self._for_lines, self._left_out = for_lines, left_out
        self._programs = viewer.reader.programs
        self._fields = np.zeros(len(self._programs.fields), r.FIELD)
        self._fields["tag"] = -2  # not yet known
        self._words = np.array([text_of(word) for word in r.WORDS], np.int64)
        self._shapes: dict[tuple[int, int, int], int] = {}
        self._heads = np.zeros(0, r.HEAD)
        self._starts: list[int] = []  # the program of each shape
        self._has_client_id: list[bool] = []
        self._notes: list[Note | str] = []
        self._looked_up: list[int] = []  # the notes that are names, which may grow
        self._small = np.zeros((0, _SMALL), np.int32)  # meanings of small values and -1, by source
        self._stack = np.zeros(r.STACK, np.int64)
        self._room = np.zeros(_TAPE_ROWS, TAPE)

    def rows(self, messages: Frames) -> MessageRows:
        """The rows of some messages."""
        data = b"".join(messages.frames)
        places, shapes, bases, starts, limits = self._places(messages)
        firsts, lasts = (np.full(len(messages.frames), -1) for _ in range(2))
        if not places:
            return MessageRows(np.zeros(0, r.NODE), firsts, lasts, data)
        array = as_array(data)
        jobs = np.zeros(len(places), JOB)
        jobs["at"], jobs["end"], jobs["limit"] = starts, limits, limits
        jobs["program"], jobs["frame"] = [self._starts[shape] for shape in shapes], np.arange(len(places))
        heads = self._heads[shapes]
        heads["frame_at"] = bases
        tape = decode_jobs(self._programs, jobs, (array,), self._room)
        batches = self._batches(jobs, heads, tape, array, memoryview(data))
        nodes = untouched(r.HEAD_ROWS * len(jobs) + 2 * len(tape) + len(batches), r.NODE)
        ends = np.zeros(len(jobs), np.int64)
        made = r.nodes_of_tapes(
            jobs, heads, tape, array, self._fields, batches, self._longest_text, self._words, nodes, ends, self._stack
        )  # fmt: skip
        nodes = nodes[:made]
        if self._for_lines:
            self._make_notes(nodes, batches, data)
        stops = np.where(ends < 0, ~ends, ends)
        begins = np.concatenate((np.zeros(1, np.int64), stops[:-1]))
        firsts[places], lasts[places] = np.where(ends < 0, -1, begins), ends.clip(-1)
        return MessageRows(nodes, firsts, lasts, data)

    def _places(self, messages: Frames) -> tuple[list[int], ...]:
        """The messages that programs can decode whole: their places, shapes, and where in the bytes of all the frame,
        its body and its end are."""
        found: tuple[list[int], ...] = ([], [], [], [], [])
        add = [column.append for column in found]
        shapes, limit = self._shapes, 0
        for place, (frame, is_response, api_key, version, is_token) in enumerate(zip(*messages, strict=True)):
            base, size = limit, len(frame)
            limit += size
            if is_token or size < (8 if is_response else 12) or int.from_bytes(frame[:4], "big") != size - 4:
                continue
            start = 8
            if not is_response:
                api_key, version, _, length = _REQUEST_HEADER.unpack_from(frame.ljust(14, b"\xff"), 4)
            elif api_key == _API_VERSIONS and int.from_bytes(frame[8:10], "big") == _UNSUPPORTED_VERSION:
                continue  # its version is another one
            key = (int(is_response), api_key, version)
            shape = shapes.get(key)
            if shape is None:
                shape = shapes[key] = self._shape(*key)
            if shape < 0:
                continue
            if not is_response:
                start = 12
                if self._has_client_id[shape]:
                    start = 14 + max(length, 0)
                    if length < -1 or start > size:
                        continue
            for put, value in zip(add, (place, shape, base, base + start, limit), strict=True):
                put(value)
        return found

    def _shape(self, direction: int, api_key: int, version: int) -> int:
        """The number of a message's shape, -1 if it needs a tree."""
        plan = self._viewer.plan(api_key, direction, version) if api_key >= 0 else None
        owner = (api_key, direction)
        if plan is None or plan.careful or owner in _NESTING or not self._add(plan.body, -1, "Body"):
            return -1
        head = np.zeros(1, r.HEAD)
        head["api_note"], head["body_type"] = self._text_of(api_name(api_key)), self._text_of(plan.body.name)
        head["is_request"] = direction == REQUEST
        head["has_client_id"] = direction == REQUEST and plan.message.header_version(version) != 0
        head["has_header_tags"], head["is_flexible"] = plan.header_tags >= 0, plan.body.tags >= 0
        self._heads = np.concatenate((self._heads, head))
        self._has_client_id.append(bool(head["has_client_id"][0]))
        self._starts.append(self._programs.find(api_key, version, direction))
        return len(self._starts) - 1

    def _add(self, plan: StructPlan, owner: int, name: str) -> bool:
        """Note the fields of a struct; whether rows can be made of them."""
        fields: list[tuple[FieldPlan, int]] = [(field, tag) for tag, field in plan.tagged.items()]
        for part in plan.parts:
            fields += [(part, -1)] if isinstance(part, FieldPlan) else [(field, -1) for field in part.fields]
        return plan.guard is None and all(self._add_field(field, owner, tag, name) for field, tag in fields)

    def _add_field(self, field: FieldPlan, owner: int, tag: int, parent: str) -> bool:
        form = _FORMS.get(field.form, -1)
        if field.is_secret or form < 0 or (form == r.SIZE and self._for_lines and self._viewer.records is not None):
            return False
        full_name = f"{parent if tag < 0 else 'tags'}.{field.name}"
        if form == r.STRING and not self._left_out.isdisjoint((field.name, full_name)):
            return False
        is_full = field.count < 0 and not self._for_lines
        name = self._text_of(full_name if is_full else field.name)
        if self._fields[field.id]["tag"] not in (-2, tag):  # it is tagged in some versions only
            return False
        row = self._fields[field.id]
        row["name"], row["owner"], row["tag"], row["form"], row["kind"] = name, owner, tag, form, f.K_VALUE
        if field.count >= 0:
            whole = self._fields[field.count]
            whole["name"], whole["owner"], whole["tag"] = name, owner, tag
            whole["form"], whole["kind"] = r.ELEMENTS, f.K_COUNT
            whole["elements"] = r.NOTHING if field.struct is not None else form
            row["is_element"] = 1
        if field.struct is not None:
            row["kind"] = f.K_STRUCT if field.count < 0 else f.K_ELEMENT
            row["form"], row["type"] = r.NOTHING, self._text_of(field.type.removeprefix("[]"))
            return self._add(field.struct, field.id, field.name)
        source = field.lookup or field.note
        if source and row["note"] == 0:
            if isinstance(source, str):
                self._looked_up.append(len(self._notes))
            self._notes.append(source)
            row["note"] = r.FIRST_NOTE - len(self._notes) + 1
        return True

    def _batches(self, jobs: Array, heads: Array, tape: Array, data: Array, raw: memoryview) -> Array:
        """The record batches (BATCH) of all records fields, with the states of their CRCs."""
        if not self._for_lines:
            return np.zeros(0, b.BATCH)
        is_whole = (jobs["status"] == OK)[tape["frame"]]
        rows = tape[(self._fields["form"][tape["field"]] == r.SIZE) & (tape["length"] > 0) & is_whole]
        parts = np.zeros(len(rows), b.PART)
        parts["exchange"], parts["at"], parts["end"] = rows["frame"], rows["value"], rows["value"] + rows["length"]
        parts["fetch"] = ~heads["is_request"][rows["frame"]].astype(bool)
        batches = joined(list(_walked(data, parts)), b.BATCH)
        check_crcs(raw, batches)
        return batches

    def _make_notes(self, nodes: Array, batches: Array, data: bytes) -> None:
        """Set the notes that are still to be made."""
        of_batches = np.flatnonzero(nodes["form"] == r.BATCH)
        texts = batch_texts(batches[nodes["value"][of_batches]])
        nodes["note"][of_batches] = list(map(self._text_of, texts))
        places = np.flatnonzero(nodes["note"] < 0)
        sources, values = r.FIRST_NOTE - nodes["note"][places], nodes["value"][places]
        if len(self._small) < len(self._notes):
            self._small = np.full((len(self._notes), _SMALL), -1, np.int32)
        self._small[self._looked_up] = -1
        small = np.flatnonzero((values >= -1) & (values < _SMALL - 1))
        numbers = np.full(len(places), -1)
        numbers[small] = self._small[sources[small], values[small]]
        unknown = np.flatnonzero(numbers < 0)
        made: dict[tuple[int, int | bytes], int] = {}
        found = []
        for source, value in zip(sources[unknown].tolist(), values[unknown].tolist(), strict=True):
            is_topic = self._notes[source] == TOPICS
            key = source, data[value : value + 16] if is_topic else value
            number = made.get(key)
            if number is None:
                number = made[key] = self._text_of(self._meaning(*key))
                if not is_topic and -1 <= value < _SMALL - 1:
                    self._small[source, value] = number
            found.append(number)
        numbers[unknown] = found
        nodes["note"][places] = numbers

    def _meaning(self, source: int, value: Any) -> str:
        """The meaning of a value, by the number of its source."""
        note = self._notes[source]
        if isinstance(note, str):
            return self._viewer.broker(value) if note == BROKERS else self._viewer.topic(value)
        return note(value)


def _walked(data: Array, parts: Array) -> Iterable[Array]:
    """The batches of some parts, in tables."""
    state = np.zeros(b.WALK_STATE, np.int64)
    state[b.POSITION] = state[b.LAST_EXCHANGE] = -1
    while int(state[b.PART_NUMBER]) < len(parts):
        room = np.zeros(2 * len(parts) + 16, b.BATCH)
        yield room[: b.walk_batches(data, parts, len(parts), b.NO_ABORTED, room, state)]
