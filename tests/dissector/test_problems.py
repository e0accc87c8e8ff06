"""The columns `problem` and `problem_at`: the field and the place that the reference decoder finds, and no others."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from kafkatap.dissector import dtypes as r
from kafkatap.dissector.exchanges import BODIES_STATE, TOPIC_NAME, Bodies
from kafkatap.dissector.framing.connections import CONNECTION
from kafkatap.dissector.framing.tables import LINK
from kafkatap.dissector.problems import ProblemFinder, note_problems
from kafkatap.dissector.programs.machine import JOB
from kafkatap.dissector.strings import StringTable
from kafkatap.engine.engine import Engine
from kafkatap.kernels.decorator import kernel_mode
from kafkatap.reports.batch import Batch
from tests.dissector.machine_support import ALL, Body, Run, programs, run
from tests.support.messages import generate_message
from tests.support.reference import decode_message
from tests.support.tcp import encode
from tests.wire.harness import decode_packets
from tests.wire.kafkatalk import METADATA, KafkaTalk, add_exchanges

#: Bytes of the frames before the bodies, without the size field.
HEADER = 13


def damaged_bodies() -> list[Body]:
    """A body of every message in every version with some bytes changed; some have bytes too many."""
    source = random.Random(7)
    found = []
    for message, version in ALL[::7] if kernel_mode() == "python" else ALL:
        data = bytearray(generate_message(message, version, source)[0])
        for _ in range(3):
            if data:
                data[source.randrange(len(data))] = source.choice((1, 127, 128, 255))
        found.append(Body(message, version, bytes(data) + bytes(source.choice((0, 0, 5)))))
    return found


def noted(bodies: list[Body], done: Run) -> list[tuple[str | None, int]]:
    """`problem` and `problem_at` of each body; even ones are requests, odd ones responses."""
    exchanges = np.zeros(len(bodies), r.EXCHANGE)
    exchanges["request_problem"] = exchanges["response_problem"] = -1
    exchanges["request_problem_at"] = exchanges["response_problem_at"] = r.NO_INT32
    exchanges["request_bytes"] = exchanges["response_bytes"] = [HEADER + len(body.data) for body in bodies]
    done.jobs["frame"] = 2 * np.arange(len(bodies)) + np.arange(len(bodies)) % 2
    finder = ProblemFinder(programs)
    failed = finder.failed_jobs(done.jobs, done.programs)
    strings = StringTable()
    strings.reserve(len(failed), len(failed) * finder.templates.longest)
    none = np.zeros(0, np.uint8)
    note_problems(
        Bodies(
            done.buffer, none, none, failed, done.tape, done.programs.roles, exchanges, np.zeros(0, LINK),
            np.zeros(0, CONNECTION), strings.arrays, np.zeros(0, TOPIC_NAME), np.zeros(0, JOB),
            np.zeros(1, BODIES_STATE),
        ),
        finder.arrays, len(failed),
    )  # fmt: skip
    found: list[tuple[str | None, int]] = []
    for number, row in enumerate(exchanges):
        side = ("request", "response")[number % 2]
        text, at = int(row[f"{side}_problem"]), int(row[f"{side}_problem_at"])
        found.append((None if text < 0 else strings[text].decode(), at))
    return found


def test_the_field_and_place_are_those_of_the_reference() -> None:
    bodies = damaged_bodies()
    for profile in ("summary", "results", "nothing"):
        found = noted(bodies, run(bodies, profile, slack=b"\xff" * 3))
        statuses = set()
        for body, (path, at) in zip(bodies, found, strict=True):
            wanted = decode_message(body.message, body.version, body.data)
            statuses.add(wanted.status)
            if wanted.status == r.MALFORMED:
                assert (path, at) == (wanted.path, 4 + HEADER + wanted.offset)
            elif wanted.status == r.TRAILING_BYTES:
                assert (path, at) == (None, 4 + HEADER + len(body.data) - wanted.trailing)
            else:
                assert (path, at) == (None, r.NO_INT32)
        assert statuses == {r.OK, r.MALFORMED, r.TRAILING_BYTES}


class _ForgetsOnce(Engine):
    """Forgets all strings that nothing needs after its first packets."""

    forgot = False

    def take(self, *args: Any) -> Iterator[Batch]:
        yield from super().take(*args)
        if not self.forgot:
            self.forgot = True
            self.forget_strings(np.zeros(0, np.int64))


def test_an_open_exchange_keeps_its_problem_when_strings_are_forgotten() -> None:
    talk = KafkaTalk()
    talk.tcp.open()
    add_exchanges(talk, 3)
    asked = talk.request_raw(METADATA, 4, 77, b"\x7f\xff\xff\xff" * 3)
    before = len(encode(talk.segments))
    talk.respond_raw(asked, b"\x7f\xff\xff\xff" * 9)
    add_exchanges(talk, 2, 100)
    talk.tcp.close()
    packets = encode(talk.segments)
    engine = _ForgetsOnce(all_results=True)
    seen = decode_packets(packets, runs=[before, len(packets) - before], engine=engine)
    assert engine.forgot
    [row] = [x for x in seen.exchanges if x["correlation_id"] == 77]
    assert (row["request_problem"], row["response_problem"]) == ("Topics", "Brokers")
