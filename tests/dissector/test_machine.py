"""The machine's own promises: it never reads or writes outside, always ends, and resumes; profiles; programs."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatap.dissector import dtypes as rows
from kafkatap.dissector.layouts.schema import REQUEST, RESPONSE, Field, MessageLayout, Struct, Versions
from kafkatap.dissector.programs import machine as m
from kafkatap.dissector.programs.compiler import compile_programs
from kafkatap.dissector.programs.disassembly import disassemble
from kafkatap.dissector.programs.fields import K_COUNT, K_ELEMENT
from kafkatap.dissector.programs.profiles import PROFILES, Profile
from kafkatap.dissector.programs.roles import R_ERROR_CODE, R_PARTITION, R_RECORDS, R_TOPIC_ID, R_TOPIC_NAME, ROLE_NAMES
from kafkatap.dissector.programs.tape import BodyReader, as_array
from kafkatap.kernels.decorator import kernel_mode
from tests.dissector.machine_support import ALL, MESSAGES, Body, Run, programs, run
from tests.dissector.test_machine_parity import check
from tests.support.messages import encode_message, generate_message
from tests.support.sweeps import examples
from tests.support.tape_views import enclosing, rows_with_role

PLAIN = kernel_mode() == "python"
Array = np.ndarray[Any, Any]


def bodies(seed: int, every: int = 1) -> list[Body]:
    chosen = ALL[seed % every :: every]
    return [Body(message, version, generate_message(message, version, seed)[0]) for message, version in chosen]


def hostile(seed: int, size: int) -> list[Body]:
    """Bytes that mean large counts, long varints, endless nesting, for every program."""
    source = random.Random(seed)
    alphabets = (b"\0", b"\1", b"\2", b"\xff", b"\x80", b"\x7f", b"\1\2", b"\0\0\0\1", b"\0\1\2\x7f\x80\xff")
    return [
        Body(message, version, bytes(source.choices(source.choice(alphabets), k=source.randrange(size))))
        for message, version in (ALL[::61] if PLAIN else ALL)
    ]


# Safety


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("seed", range(3))
def test_hostile_bytes_end_with_a_status_and_few_rows(profile: str, seed: int) -> None:
    chosen = hostile(seed, 200 if PLAIN else 4_000)
    done = run(chosen, profile)
    assert set(done.jobs["status"].tolist()) <= {rows.OK, rows.TRAILING_BYTES, rows.MALFORMED}
    sizes = np.array([len(body.data) for body in chosen])
    assert (done.jobs["tape_count"] <= 3 * sizes + 8).all()
    assert (done.jobs["error_at"] <= sizes).all()


def test_long_hostile_bodies_end() -> None:
    for fill in (0, 1, 2, 127, 255):
        data = bytes([0] * 12 + [fill]) * (40 if PLAIN else 4_000)
        done = run([Body(message, version, data) for message, version in ALL[::9]])
        assert done.jobs["tape_count"].max() <= 3 * len(data)


_NO_OVER_READ = """
import numpy as np
from kafkatap.dissector.programs.program import Programs
import tests.dissector.test_machine as t
from tests.dissector import machine_support

whole = t.programs()
machine_support.programs = lambda name: Programs(np.zeros(0, np.int32), whole.index, whole.roles, whole.profile)
try:
    t.run(t.bodies(0, 100))
except IndexError:
    machine_support.programs = t.programs
else:
    raise SystemExit("indices are not checked here")
for seed in range(4):
    for body in t.hostile(seed, 300) + t.bodies(seed, 5):
        t.run([body])
        t.run([t.Body(body.message, body.version, body.data[:-1])], "summary")
        t.run([t.Body(body.message, body.version, body.data[:-1], 9)], "results")
"""


def test_no_read_past_the_end_with_checked_indices() -> None:
    """Each body ends where its array ends, and compiled code that checks its indices finds nothing."""
    environment = os.environ | {"KAFKATAP_BOUNDSCHECK": "1", "KAFKATAP_KERNELS": "numba", "NUMBA_DISABLE_JIT": "0"}
    done = subprocess.run([sys.executable, "-c", _NO_OVER_READ], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_follows_a_body_changes_nothing() -> None:
    chosen = [Body(b.message, b.version, b.data[:-1]) for b in bodies(3, 20 if PLAIN else 1) if b.data]
    one, other = (run(chosen, slack=slack) for slack in (b"\0" * 16, b"\xff" * 16))
    assert (one.jobs == other.jobs).all()
    assert (one.tape == other.tape).all()


def test_an_end_past_the_buffer_or_a_start_before_it_is_not_read() -> None:
    jobs = np.zeros(2, m.JOB)
    jobs["at"], jobs["end"], jobs["limit"] = [0, -1], 9, 9
    jobs["program"] = programs().find(12, 0, REQUEST)
    tape, scratch, data = np.zeros(99, m.TAPE), np.zeros(m.SCRATCH_SIZE, np.int64), np.zeros(3, np.uint8)
    assert m.decode_frames(programs().code, jobs, 2, 0, data, data, data, tape, scratch) == 2
    assert jobs["status"].tolist() == [rows.INCOMPLETE, rows.MALFORMED]


# Resuming


def test_a_tape_that_is_too_small_is_resumed() -> None:
    chosen = bodies(5, 40 if PLAIN else 7)
    whole = run(chosen)
    jobs = whole.jobs.copy()
    room = np.zeros(0, m.TAPE)
    guard = np.frombuffer(b"\xaa" * m.TAPE.itemsize, m.TAPE)
    scratch = np.zeros(m.SCRATCH_SIZE, np.int64)
    nothing = np.zeros(0, np.uint8)
    done = 0
    while done < len(jobs):
        used = room[: scratch[m.ROWS]]
        larger = np.concatenate([used, np.repeat(guard, len(room) - len(used) + 61)])
        room, behind = larger[:-5], larger[-5:]
        before = done
        done = m.decode_frames(
            whole.programs.code, jobs, len(jobs), done, whole.buffer, nothing, nothing, room, scratch
        )
        assert done >= before
        assert (behind == guard).all()
    assert (jobs == whole.jobs).all()
    assert (room[: scratch[m.ROWS]] == whole.tape).all()


def test_three_buffers_and_no_program() -> None:
    data = [np.array([0, code], np.uint8) for code in (1, 2, 3)]
    jobs = np.zeros(4, m.JOB)
    jobs["end"] = jobs["limit"] = 2
    jobs["source"] = [2, 0, 1, 0]
    jobs["frame"] = [10, 11, 12, 13]
    jobs["program"] = [programs().find(12, 0, RESPONSE)] * 3 + [-1]
    tape, scratch = np.zeros(9, m.TAPE), np.zeros(m.SCRATCH_SIZE, np.int64)
    assert m.decode_frames(programs().code, jobs, 4, 0, *data, tape, scratch) == 4
    assert tape["value"][:3].tolist() == [3, 1, 2]
    assert tape["frame"][:3].tolist() == [10, 11, 12]
    assert jobs["status"].tolist() == [rows.OK] * 3 + [rows.NOT_DECODED]
    assert jobs["tape_count"].tolist() == [1, 1, 1, 0]


def test_checking_alone_writes_no_row() -> None:
    body = bodies(1)[300]
    compiled = programs()
    program = compiled.find(body.message.api_key, body.version, body.message.direction)
    scratch = np.zeros(m.SCRATCH_SIZE, np.int64)
    size = len(body.data)
    status = m.run_program(
        np.frombuffer(body.data, np.uint8),
        0,
        size,
        size,
        compiled.code,
        program,
        np.zeros(0, m.TAPE),
        m.NO_ROWS,
        0,
        scratch,
    )
    assert status == rows.OK
    assert scratch[m.ROWS] == m.NO_ROWS


# Profiles


def chain(done: Run, number: int, row: Any) -> list[tuple[int, int]]:
    """The elements in which a row lies, from the outside in: (field, index)."""
    found: list[tuple[int, int]] = []
    while row["parent"] >= 0:
        assert done.jobs[number]["tape_first"] <= row["parent"]
        row = done.tape[row["parent"]]
        found.insert(0, (int(row["field"]), int(row["value"])))
    return found


@pytest.mark.parametrize("profile", ["summary", "results", "nothing"])
@pytest.mark.parametrize("seed", range(3))
def test_profiles_give_what_everything_gives_of_their_fields(profile: str, seed: int) -> None:
    source = random.Random(seed)
    chosen = bodies(seed, 30 if PLAIN else 1)
    chosen += [Body(b.message, b.version, b.data + b"\0") for b in chosen]
    chosen += [Body(b.message, b.version, b.data[: (cut := source.randrange(len(b.data) + 1))], len(b.data) - cut)
               for b in chosen]  # fmt: skip
    everything, some = run(chosen), run(chosen, profile)
    wanted = PROFILES[profile]
    table = everything.programs.fields
    assert (everything.jobs["status"] == some.jobs["status"]).all()
    for number, body in enumerate(chosen):
        if some.jobs[number]["status"] != rows.INCOMPLETE:
            assert some.jobs[number]["nulls"] == everything.jobs[number]["nulls"]
        ours = [row for row in some.rows(number) if table[row["field"]].kind != K_ELEMENT]
        opened = {int(row["field"]) for row in some.rows(number)} & {f.id for f in table if f.kind == K_ELEMENT}
        theirs = [
            row
            for row in everything.rows(number)
            if table[row["field"]].kind != K_ELEMENT
            and wanted.wanted(table[row["field"]], body.version)
            and (wanted.zero_errors or table[row["field"]].role != R_ERROR_CODE or row["value"] != 0)
        ]
        if some.jobs[number]["status"] == rows.INCOMPLETE:  # a folded run that was cut is not looked at
            theirs = theirs[: len(ours)]
        assert [row.tolist()[3:] + row.tolist()[:1] for row in ours] == [
            row.tolist()[3:] + row.tolist()[:1] for row in theirs
        ]
        for mine, yours in zip(ours, theirs, strict=True):
            assert chain(some, number, mine) == [e for e in chain(everything, number, yours) if e[0] in opened]


def test_summary_is_small() -> None:
    """A Fetch response without an error gives one row, however many partitions it has."""
    message = MESSAGES[1, RESPONSE]
    partition = {
        "PartitionIndex": 7, "ErrorCode": 0, "HighWatermark": 5, "LastStableOffset": 5, "LogStartOffset": 0,
        "AbortedTransactions": None, "PreferredReadReplica": -1, "Records": b"x" * 100,
    }  # fmt: skip
    failed = partition | {"ErrorCode": 3}
    value: dict[str, Any] = {"ThrottleTimeMs": 12, "ErrorCode": 0, "SessionId": 1}
    value["Responses"] = [{"Topic": "t", "Partitions": [partition] * 50 + [failed]}]
    done = run([Body(message, 12, encode_message(message, 12, value))], "summary")
    assert done.tape["value"].tolist() == [12, 3]
    assert [ROLE_NAMES[done.programs.roles[field]] for field in done.tape["field"]] == [
        "throttle_time_ms",
        "error_code",
    ]


def test_results_join_a_partition_to_its_topic() -> None:
    message = MESSAGES[1, RESPONSE]
    partition = {
        "PartitionIndex": 7, "ErrorCode": 0, "HighWatermark": 5, "LastStableOffset": 5, "LogStartOffset": 0,
        "AbortedTransactions": [], "PreferredReadReplica": -1, "Records": b"",
    }  # fmt: skip
    value: dict[str, Any] = {"ThrottleTimeMs": 0, "ErrorCode": 0, "SessionId": 1}
    value["Responses"] = [
        {"Topic": f"t{i}", "Partitions": [partition | {"PartitionIndex": k, "ErrorCode": 10 * i + k} for k in range(i)]}
        for i in range(4)
    ]
    done = run([Body(message, 12, encode_message(message, 12, value))], "results")
    codes = rows_with_role(done.programs, done.tape, R_ERROR_CODE)[1:]
    partitions = rows_with_role(done.programs, done.tape, R_PARTITION)
    assert (done.tape["parent"][codes] == done.tape["parent"][partitions]).all()
    topics = rows_with_role(done.programs, done.tape, R_TOPIC_NAME)
    topic_field = int(done.tape["field"][done.tape["parent"][topics[0]]])
    joined = enclosing(done.tape, codes, topic_field)
    wanted = [
        (topic["Topic"], partition["PartitionIndex"], partition["ErrorCode"])
        for topic in value["Responses"]
        for partition in topic["Partitions"]
    ]
    name_of = {int(done.tape["parent"][row]): row for row in topics}
    got = []
    for code, partition, topic in zip(codes, partitions, joined, strict=True):
        name = done.tape[name_of[int(topic)]]
        raw = done.buffer[name["value"] : name["value"] + name["length"]].tobytes()
        got.append((raw.decode(), done.tape["value"][partition], done.tape["value"][code]))
    assert got == wanted


def test_topic_ids_come_with_their_names() -> None:
    message = MESSAGES[3, RESPONSE]
    for version, given_ids in ((9, False), (10, True), (12, True)):
        data, value = generate_message(message, version, 6)
        done = run([Body(message, version, data)], "summary")
        ids = rows_with_role(done.programs, done.tape, R_TOPIC_ID)
        names = rows_with_role(done.programs, done.tape, R_TOPIC_NAME)
        assert len(names) == len(ids) == (len(value["Topics"]) if given_ids else 0)
        assert (done.tape["parent"][ids] == done.tape["parent"][names]).all()


@pytest.mark.parametrize("version", [8, 9])
def test_the_size_of_records_is_known_though_they_were_not_captured(version: int) -> None:
    message = MESSAGES[0, REQUEST]
    partitions = [{"Index": 1, "Records": b"r" * 500}]
    value = {
        "TransactionalId": None,
        "Acks": 1,
        "TimeoutMs": 9,
        "TopicData": [{"Name": "t", "PartitionData": partitions}],
    }
    data = encode_message(message, version, value)
    done = run([Body(message, version, data[:60], len(data) - 60)], "results")
    row = done.tape[rows_with_role(done.programs, done.tape, R_RECORDS)[0]]
    assert done.jobs[0]["status"] == rows.INCOMPLETE
    assert row["length"] == 500
    assert row["value"] + 500 > 60


# The form of programs


def test_ids_do_not_depend_on_the_profile() -> None:
    for name in PROFILES:
        if PROFILES[name].role is None:  # facts have numbers of their own
            assert (programs(name).roles == programs().roles).all()
        assert programs(name).fields.find == programs().fields.find


def test_every_error_code_of_every_response_has_its_role() -> None:
    coded = [info for info in programs().fields if info.role == R_ERROR_CODE]
    named = [i for i in programs().fields if i.direction == RESPONSE and i.path.endswith("ErrorCode")]
    assert coded == named
    assert {info.type for info in coded} == {"int16"}


def test_a_profile_points_at_anothers_programs() -> None:
    summary, results = programs("summary"), programs("results")
    slots = np.flatnonzero(summary.index >= 0)
    assert (results.same_as(summary, summary.index[slots]) == results.index[slots]).all()
    assert results.same_as(summary, np.array([-1], np.int32)).tolist() == [-1]


def test_unknown_messages_have_no_program() -> None:
    known = sum(len(list(message.versions)) for message in MESSAGES.values())
    assert (programs().index >= 0).sum() == known
    for place in ((-1, 0, 0), (128, 0, 0), (18, 32, 0), (18, -1, 1), (18, 31, 1), (18, 0, 2)):
        assert programs().find(*place) == -1
    with pytest.raises(KeyError, match="api_key 127"):
        disassemble(programs(), 127, 0, 0)


def test_unwanted_fields_fold_into_what_follows() -> None:
    expected = """
        0 array_32           4 Responses -> 40 least 6
        4 bytes_16           2 Responses.Name
        8 array_32           4 Responses.PartitionResponses -> 36 least 36
       12 nonzero16          6 Responses.PartitionResponses.ErrorCode
       16 array_32          28 Responses.PartitionResponses.RecordErrors -> 28 least 6
       20 bytes_16           6 Responses.PartitionResponses.RecordErrors.BatchIndexErrorMessage nullable
       24 next               0
       28 bytes_16           2 Responses.PartitionResponses.ErrorMessage nullable
       32 next               0
       36 next               0
       40 int32              4 ThrottleTimeMs
       44 end                0
    """
    listing = disassemble(programs("summary"), 0, 8, RESPONSE)
    assert [line.split() for line in listing.splitlines()] == [line.split() for line in expected.split("\n")[1:-1]]


def test_wanting_less_makes_programs_shorter() -> None:
    sizes = [len(programs(name).code) for name in ("nothing", "summary", "results", "everything")]
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == 4


@pytest.mark.parametrize("name", PROFILES)
def test_each_program_can_be_listed(name: str) -> None:
    words = set()
    for message, version in ALL:
        listing = disassemble(programs(name), message.api_key, version, message.direction)
        assert listing.splitlines()[-1].split()[1] == "end"
        words |= {line.split()[1] for line in listing.splitlines()}
    assert {"array_c", "array_32", "tags", "next", "bytes_c"} <= words
    assert ("skip" in words) <= (name != "everything")


@given(st.data())
@settings(derandomize=True, max_examples=20 if PLAIN else examples(150), deadline=None)
def test_any_set_of_fields_can_be_wanted(data: st.DataObject) -> None:
    """A profile of random fields agrees with EVERYTHING on them."""
    message, version = data.draw(st.sampled_from(ALL))
    seed = data.draw(st.integers(0, 99))
    only = {(message.api_key, message.direction): message}
    table = compile_programs(only, PROFILES["everything"]).fields
    chosen = data.draw(st.sets(st.sampled_from(range(len(table))), max_size=len(table)))
    compiled = compile_programs(only, Profile("some", lambda info, version: info.id in chosen))
    raw = generate_message(message, version, seed)[0]
    base = table.find[message.api_key, message.direction, table[0].path]
    offset = programs().fields.find[message.api_key, message.direction, table[0].path] - base
    everything = run([Body(message, version, raw)])
    jobs = everything.jobs.copy()
    jobs["program"] = compiled.find(message.api_key, version, message.direction)
    tape, scratch = np.zeros(3 * len(raw) + 9, m.TAPE), np.zeros(m.SCRATCH_SIZE, np.int64)
    buffer = everything.buffer
    assert m.decode_frames(compiled.code, jobs, 1, 0, buffer, buffer, buffer, tape, scratch) == 1
    assert jobs["status"][0] == rows.OK
    got = tape[: scratch[m.ROWS]]
    plain = [r for r in got.tolist() if table[r[4]].kind != K_ELEMENT]
    wanted = [r for r in everything.tape.tolist() if r[4] - offset in chosen and table[r[4] - offset].kind != K_ELEMENT]
    assert [(r[4] + offset, r[3], r[0]) for r in plain] == [(r[4], r[3], r[0]) for r in wanted]
    assert {r[4] for r in got.tolist()} >= {
        f for f in chosen if table[f].kind == K_ELEMENT and (everything.tape["field"] == f + offset).any()
    }


@given(st.sampled_from(ALL), st.binary(max_size=200), st.integers(0, 300))
@settings(derandomize=True, max_examples=100 if PLAIN else examples(1_500), deadline=None)
def test_any_bytes_are_decoded_as_the_reference_does(
    what: tuple[MessageLayout, int], data: bytes, missing: int
) -> None:
    check([Body(*what, data, missing)], slack=b"\xff" * 5)


def test_the_place_of_an_error_has_its_indices() -> None:
    message = MESSAGES[0, RESPONSE]
    partition = {"Index": 0, "ErrorCode": 0, "BaseOffset": 0}
    value = {"Responses": [{"Name": "t", "PartitionResponses": [partition] * 3}]}
    data = encode_message(message, 0, value)
    reader = BodyReader(programs())
    buffer, size = as_array(data[:-8]), len(data)
    program = programs().find(0, 0, RESPONSE)
    whole = reader.read(buffer, program, 0, size - 8, size - 8)
    assert whole.status == rows.MALFORMED
    assert whole.problem.startswith("malformed at byte 11, Responses[0].PartitionResponses: 3 elements of at least 14")
    cut = reader.read(buffer, program, 0, size - 8, size)
    assert cut.status == rows.INCOMPLETE
    assert cut.problem.startswith("cut short at byte 45, Responses[0].PartitionResponses[2].BaseOffset: 8 bytes exp")


def _message(*fields: Field, name: str = "Toy") -> MessageLayout:
    return MessageLayout(3, name, REQUEST, Versions(0, 0), Versions(0, -1), Struct("Toy", fields))


def test_elements_of_no_bytes_are_refused() -> None:
    empty = Field("Xs", "struct", Versions(0, 0), is_array=True, struct=Struct("X", ()))
    with pytest.raises(ValueError, match="ToyRequest v0, Xs: elements of no bytes"):
        compile_programs({(3, REQUEST): _message(empty)}, PROFILES["everything"])


def test_keys_and_versions_beyond_int16_are_refused() -> None:
    for key, version, label in ((3, 32_768, "v32768"), (32_768, 0, "v0")):
        message = MessageLayout(key, "Toy", REQUEST, Versions(version, version), Versions(0, -1), Struct("Toy", ()))
        with pytest.raises(ValueError, match=f"ToyRequest {label}: keys and versions go up to 32767"):
            compile_programs({(key, REQUEST): message}, PROFILES["everything"])


def test_a_count_has_its_own_id_beside_its_elements() -> None:
    for info in programs().fields:
        if info.kind == K_COUNT:
            before = programs().fields[info.id - 1]
            assert before.path + "#" == info.path
            assert before.inner == info.inner
