"""Lines of trees that were made in bulk, without trees: they are the same, and never of a message with a secret."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from kafkatap.dissector.dtypes import EXCHANGE
from kafkatap.dissector.layouts.schema import REQUEST, MessageLayout
from kafkatap.dissector.layouts.secrets import CAREFUL_APIS
from kafkatap.dissector.tree.message_rows import Frames, RowMaker
from kafkatap.dissector.tree.nested import HOOKS
from kafkatap.dissector.tree.packed_facts import PACKED
from kafkatap.kernels.decorator import kernel_mode
from kafkatap.selected_messages import message as m
from kafkatap.show.tree_text import PLAIN, Paint, Texts, TreeWriter, tree_text
from kafkatap.show.viewing import Known, MessageViewer
from tests.dissector.machine_support import ALL
from tests.dissector.view_support import frame_of
from tests.support.messages import Taste, encode_message, generate_message
from tests.support.records import Record, batch, message_set
from tests.support.sweeps import examples

CHOSEN = ALL[::9] if kernel_mode() == "python" else ALL
COLORS = Paint(*(f"<{name}>" for name in ("number", "faint", "text", "problem", "end")))
KNOWN = Known({bytes(16): "orders", bytes(range(16)): "größe"}, {1: "10.0.0.1:9092", 0: "ten\x1b:1"})


def messages_of(frames: Sequence[tuple[MessageLayout, int, bytes]]) -> m.Messages:
    """These frames as columns."""
    heads, rows = np.zeros(len(frames), m.MESSAGE), np.zeros(len(frames), EXCHANGE)
    objects = np.full((len(frames), m.OBJECTS), None, object)
    for place, (message, version, frame) in enumerate(frames):
        heads[place]["id"] = 2 * place + message.direction
        rows[place]["api_key"], rows[place]["api_version"] = message.api_key, version
        objects[place, m.FRAME] = frame
    return m.Messages(heads, rows, np.zeros(len(frames), PACKED), objects)


def generated(seed: int, taste: Taste | None = None) -> list[tuple[MessageLayout, int, bytes]]:
    made = []
    for message, version in CHOSEN:
        data, _ = generate_message(message, version, seed, taste)
        made.append((message, version, frame_of(message, version, data)))
    return made


def check(frames: Sequence[tuple[MessageLayout, int, bytes]], viewer: MessageViewer, paint: Paint = PLAIN) -> None:
    messages = messages_of(frames)
    texts = TreeWriter(paint, margin="  ").texts(viewer, messages)
    for text, (message, version, _), one in zip(texts, frames, messages.each(), strict=True):
        expected = "\n".join(tree_text(viewer.view(one), paint, margin="  "))
        assert text == expected, f"{message.name} v{version}"


def test_the_lines_are_those_of_trees() -> None:
    for seed in range(examples(4)):
        for taste in (Taste(), Taste(unknown_tags=False, nulls=False), Taste(short=True, unknown_tags=False)):
            check(generated(seed, taste), MessageViewer(KNOWN), COLORS if seed % 2 else PLAIN)


def test_whatever_becomes_of_the_bytes() -> None:
    source = random.Random(1)
    for seed in range(examples(4)):
        damaged = []
        for message, version, frame in generated(seed, Taste(unknown_tags=False, short=True)):
            changed = bytearray(frame)
            for _ in range(source.randrange(3)):
                changed[source.randrange(4, len(frame))] = source.choice((0, 1, 0x7F, 0xFF, source.randrange(256)))
            damaged.append((message, version, bytes(changed[: len(frame) - source.choice((0, 0, 0, 1, 9))])))
        check(damaged, MessageViewer(KNOWN))


def with_records(value: Any, content: bytes) -> Any:
    """A message's value with these bytes in all its records fields."""
    if isinstance(value, list):
        return [with_records(element, content) for element in value]
    if isinstance(value, dict):
        return {name: content if name == "Records" else with_records(field, content) for name, field in value.items()}
    return value


def test_record_batches() -> None:
    whole = batch([Record(value=b"v"), Record(value=b"w")])
    wrong = whole[:-1] + b"?"
    old = message_set([Record(value=b"old")], 1) + message_set([Record(value=b"older")], 0)
    contents = (whole, wrong, whole + whole[:-1], whole + whole[:30], old, old[:-2], b"", b"x" * 30)
    frames = []
    for message, version in CHOSEN:
        if message.api_key in (0, 1, 78):
            _, value = generate_message(message, version, 5, Taste(unknown_tags=False, nulls=False))
            for content in contents:
                data = encode_message(message, version, with_records(value, content))
                frames.append((message, version, frame_of(message, version, data)))
    check(frames, MessageViewer(KNOWN))


def test_secrets_are_left_to_trees() -> None:
    nesting = {owner for owner, _ in HOOKS if isinstance(owner, tuple)}
    frames = generated(1, Taste(unknown_tags=False, nulls=False, tame=True))
    for secrets in (False, True):
        viewer = MessageViewer(KNOWN, secrets=secrets)
        maker = RowMaker(viewer.viewer, Texts().of, 1 << 16)
        columns = zip(*[(f, d.direction != REQUEST, d.api_key, v, 0) for d, v, f in frames], strict=True)
        made = maker.rows(Frames(*map(list, columns)))
        for (message, version, _), first in zip(frames, made.firsts.tolist(), strict=True):
            fields, is_left = repr(message.body), first < 0
            has_nested = (message.api_key, message.direction) in nesting
            needs_tree = message.api_key in CAREFUL_APIS or has_nested or "'float64'" in fields
            assert is_left >= needs_tree, f"{message.name} v{version}"
            assert is_left == needs_tree or "'records'" in fields, f"{message.name} v{version}"
