"""What is handed over of a connection, and that a digest of its state takes in all that later packets can depend on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from kafkatap.dissector.connection_state import ConnectionFacts
from kafkatap.dissector.dtypes import EXCHANGE
from kafkatap.dissector.framing import connections as d
from kafkatap.dissector.framing import tables
from kafkatap.dissector.time_parts import DURATIONS
from kafkatap.reassembly import dtypes as r
from kafkatap.reassembly.connection_state import Handshake, Resumption, SynOptions
from kafkatap.reassembly.scanner import HEADER_SIZE, Scanner
from kafkatap.splits.flow_state import FlowState, History
from kafkatap.splits.seams import Seam, SeamPackets
from kafkatap.splits.split_engine import SplitEngine
from tests.splits.join_talks import pipelined
from tests.support.captures import pcap_bytes
from tests.support.tcp import Segment, encode, lose
from tests.wire.kafkatalk import API_VERSIONS, METADATA, KafkaTalk, add_exchanges


def engine_after(segments: list[Segment], **options: Any) -> SplitEngine:
    """An engine that has taken these segments and is not at the end."""
    data = pcap_bytes(encode(segments), nanoseconds=True)
    scanner = Scanner(len(segments) + 16)
    at = scanner.start(data[:HEADER_SIZE])
    whole = np.frombuffer(data, np.uint8).copy()
    count, _ = scanner.scan(whole, at, len(whole))
    engine = SplitEngine(**options)
    engine.prime(SeamPackets(Seam(scanner.packets[:count], whole, scanner.packets["ts"][:count])))
    return engine


def state_of(engine: SplitEngine) -> FlowState:
    """The state of its only connection."""
    (state,) = engine.states(engine.assembler.flow_keys()).by_flow().values()
    return state


def busy_state(**options: Any) -> SplitEngine:
    """Connection 0: requests that wait (a group's among them), a response that has begun and goes on behind a gap, and
    one direction's FIN before the close."""
    talk = KafkaTalk(mss=100)
    talk.tcp.open()
    asked = talk.request(API_VERSIONS, 3, 1, ClientSoftwareName="app-lib", ClientSoftwareVersion="7")
    talk.respond(asked)
    add_exchanges(talk, 3, first=2)
    first, second = talk.request(METADATA, 4, 50), talk.request(METADATA, 4, 51)
    talk.respond(first)
    talk.respond(second, Topics=[{"Name": "orders-" * 8} for _ in range(20)])
    lost = len(talk.segments) - 4
    return engine_after(lose(talk.segments, lost), **options)


def searching_state() -> SplitEngine:
    """Connection 0: begun in the middle of a request, a part of another one after it."""
    talk = KafkaTalk(mss=60)
    talk.request(METADATA, 4, 50, Topics=[{"Name": "orders-" * 8} for _ in range(9)])
    talk.request(METADATA, 4, 51, Topics=[{"Name": "orders-" * 8} for _ in range(9)])
    return engine_after([s for s in talk.segments if s.payload][2:-4])


Change = Callable[[SplitEngine], None]


def _add(table: str, row: int | Callable[[SplitEngine], int], name: str, of: str = "dissector") -> Change:
    def change(engine: SplitEngine) -> None:
        rows = getattr(getattr(engine, of), table)
        number = row if isinstance(row, int) else row(engine)
        assert number >= 0
        rows[name][number] ^= 1

    return change


def _waiting(engine: SplitEngine) -> int:
    return int(engine.dissector.connections["waiting_first"][0])


def _held(engine: SplitEngine) -> int:
    return int(engine.assembler.directions["held"][1])


def stalled_state() -> SplitEngine:
    """`busy_state`, and stream 1 has a row of SILENCE."""
    engine = busy_state()
    engine.dissector.streams["silence_row"][1] = 1
    return engine


#: Fields of DIRECTION on which later stalls depend while data is not acknowledged.
STALL_STATE = ("last_data", "freed_at", "acked_then", "last_wire", "last_stamp", "is_limited", "is_pushed")
#: Fields of each table on which later packets do not depend: numbers and places of this engine, counts, facts that
#: another field has too, and columns of the row of a connection.
NOT_STATE = {
    "connections": {
        "serial", "requests", "head", "head_tries", "head_is_sure", "not_kafka_since", "waiting_first", "waiting_last",
        "waiting_count", "unknown_chunks", "is_open",
        "ends",  # of the flow
        "shows_tls",  # set with `protocol`
        "tls_version",  # every chunk of decrypted bytes has it
        "mute_end", "client_id", "software", "software_version", "mechanism", "rebalance_ms",  # tested below
        "ahead_late", "ahead_broker", "ahead_mute", "ahead_hol_wait", "ahead_hol_throttle_wait", "ahead_hol_poll_wait",
        "ahead_hol_unknown_wait", "ahead_hol_loss_wait", "ahead_missing", "ahead_arrived", "ahead_polls",
        "ahead_unread", "ahead_in_doubt", "ahead_passed",
        "is_expected", "shows_broker",  # by the options of the run, and other connections
        "end_a", "end_b",  # of the flow
        "is_source_new",  # set until the next drain
        "sample_sequence", "is_sampled",
        "mute_begin", "mute_sum",  # tested below
        *d.CONNECTION_SUMS,
    },
    "streams": {
        "buffer", "losses", "frame_bytes", "token_bytes", "skipped_bytes", "foreign_bytes", "capacity",
        "opening",  # a split searches the rest of what is not Kafka
        "segments_first",
        "proxy_bytes",  # matters at the start of a stream only
        "segments_last",
        *d.STREAM_SUMS,
        "resent_ns", "resent_until",  # of a sum
        "retry",  # tested below
        "silence_row",  # tested in SILENCE
    },
    "silences": {*d.SILENCE_SUMS},
    "segments": {"next"},
    "links": {
        "undecoded",  # only within a drain
        "connection", "next", "partitions", "topics", "answers_at_once", "name", "provisional", "late_ns",
        "waited_until", "may_come", "response_whole", "request_lost",
        "sample",  # by the bytes of the request
    },
    "exchanges": {
        "exchange", "connection", "outcome", "client_id", "client_software", "client_software_version",
        "request_problem",  # tested below
        "tls_version",  # that of its connection
        "closed_by", "waited_ns",  # not known before the connection is closed
        "request_cut_bytes", "response_cut_bytes",
        # not known before there is an answer
        "response_first", "response_last", "response_packet_first", "response_packet_last", "response_bytes",
        *DURATIONS,
        "hol_unknown_wait_ns", "behind_unread",
        "throttle_time_ms", "response_status", "long_poll", "response_problem", "response_problem_at",
        # its ends, set when it is finished
        "client_ip", "client_port", "broker_ip", "broker_port",
    },
    "directions": {
        "held", "held_last", "held_bytes", "held_count", "packets", "bytes", "retransmitted_packets",
        "duplicate_packets", "duplicate_bytes",
        "recent",  # a split begins no less than COPY_NS before its heads
        "retransmitted_bytes", "out_of_order", "gap_bytes", "cut_bytes", "stray_bytes", "gaps", "zero_windows",
        "gap_previous", "gap_next",
        *STALL_STATE,  # tested below
        "recovery_row",  # tested in RECOVERY
        "started", "delivered", "acked", "fin",  # tested below
        "sack_permitted", "timestamps",
    },
    "recoveries": {
        "lag",  # follows from the handshake
        *r.RECOVERY_COUNTERS,
    },
    "held": {
        "next", "at",
        "needs",  # tested below
    },
    "tcp": {
        "is_quiet", "serial", "first", "last", "packets", "first_packet", "closed_packet", "flow", "previous",
        "used", "reset_by",
        "closed_number", "last_serial", "only_syn",  # what bounds go by: each split counts its own connections
        "syn_at", "syn_ack_at", "client",  # of a handshake that is under way: tested below
        "is_unreachable",  # of a handshake that does not go on
    },
}  # fmt: skip


def _names(table: str, dtype: np.dtype[Any]) -> list[str]:
    assert NOT_STATE[table] <= set(dtype.names or ())
    return [name for name in dtype.names or () if name not in NOT_STATE[table]]


@cache
def _engine_and_digest(made: Callable[[], SplitEngine]) -> tuple[SplitEngine, bytes]:
    engine = made()
    digest = state_of(engine).digest
    assert digest == state_of(made()).digest
    return engine, digest


CASES: list[tuple[str, Callable[[], SplitEngine], Change]] = [
    *((f"connections {n}", busy_state, _add("connections", 0, n)) for n in _names("connections", d.CONNECTION)),
    *((f"streams {n}", busy_state, _add("streams", 1, n)) for n in _names("streams", d.STREAM)),
    *((f"silences {n}", stalled_state, _add("silences", 1, n)) for n in _names("silences", d.SILENCE)),
    *((f"segments {n}", searching_state, _add("segments", lambda e: int(e.dissector.streams["segments_first"][0]), n))
      for n in _names("segments", tables.SEGMENT)),
    *((f"links {n}", busy_state, _add("links", _waiting, n)) for n in _names("links", tables.LINK)),
    *((f"exchanges {n}", busy_state, _add("exchanges", _waiting, n)) for n in _names("exchanges", EXCHANGE)),
    *((f"directions {n}", busy_state, _add("directions", 1, n, "assembler"))
      for n in _names("directions", r.DIRECTION)),
    *((f"held {n}", busy_state, _add("held", _held, n, "assembler")) for n in _names("held", r.HELD)),
    *((f"tcp {n}", busy_state, _add("connections", 0, n, "assembler"))
      for n in _names("tcp", r.CONNECTION)),
    ("retry of a search", searching_state, _add("streams", 0, "retry")),
]  # fmt: skip


@pytest.mark.parametrize(("made", "change"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_digest_takes_in_each_part_of_the_state(made: Callable[[], SplitEngine], change: Change) -> None:
    """Every field of the tables is state, or named above as none: a new one has to be thought about."""
    engine, before = _engine_and_digest(made)
    change(engine)
    assert state_of(engine).digest != before
    change(engine)  # back to what it was
    assert state_of(engine).digest == before


def _held_byte(engine: SplitEngine) -> None:
    engine.assembler.pool[engine.assembler.held["at"][_held(engine)]] ^= 1


def _buffered_byte(engine: SplitEngine) -> None:
    engine.dissector.pool[engine.dissector.streams["buffer"][1]] ^= 1


def _searched_byte(engine: SplitEngine) -> None:
    engine.dissector.pool[engine.dissector.streams["buffer"][0]] ^= 1


def _muted(engine: SplitEngine) -> None:
    engine.dissector.connections["mute_end"][0] = engine.dissector.connections["previous_response"][0] + 1


def _joined(engine: SplitEngine) -> None:
    engine.dissector.connections["rebalance_ms"][0] = 1


def _software(engine: SplitEngine) -> None:
    engine.dissector.connections["software"][0] = engine.dissector.strings.number_of(b"another")


def _client_id(engine: SplitEngine) -> None:
    engine.dissector.connections["client_id"][0] = -1


def _mechanism(engine: SplitEngine) -> None:
    engine.dissector.connections["mechanism"][0] = engine.dissector.strings.number_of(b"PLAIN")


def _software_of_waiting(engine: SplitEngine) -> None:
    engine.dissector.exchanges["client_software"][_waiting(engine)] = -1


def _problem_of_waiting(engine: SplitEngine) -> None:
    engine.dissector.exchanges["request_problem"][_waiting(engine)] = engine.dissector.strings.number_of(b"Topics[0]")


def _group_of_waiting(engine: SplitEngine) -> None:
    engine.dissector.links["name"][_waiting(engine)] = engine.dissector.strings.number_of(b"group")


def _lost_since(engine: SplitEngine) -> None:
    engine.dissector.streams["losses"][1] += 1


def _acked(engine: SplitEngine) -> None:
    engine.assembler.directions["acked"][1] = engine.assembler.directions["next"][1] + 5


def _fin(engine: SplitEngine) -> None:
    engine.assembler.directions["fin"][0] = engine.assembler.directions["next"][0]


def _needs(engine: SplitEngine) -> None:
    engine.assembler.held["needs"][_held(engine)] = engine.assembler.directions["next"][0] + 5


def _round_trip(engine: SplitEngine) -> None:
    engine.assembler.connections["handshake_rtt_ns"][0] = -1


@pytest.mark.parametrize("name", [n for n in d.CONNECTION.names or () if n.startswith("ahead_")])
def test_a_digest_takes_in_what_a_waiting_request_is_behind(name: str) -> None:
    """Where the time of the exchange ahead went, as long as a request that came before its response waits."""

    def digest(after: int, change: int, **ahead: int) -> bytes:
        engine = busy_state()
        connections, waiting = engine.dissector.connections, engine.dissector.exchanges[_waiting(engine)]
        connections["previous_response"][0] = waiting["request_last"] + after
        for each in (n for n in connections.dtype.names if n.startswith("ahead_")):
            connections[each][0] = ahead.get(each, 0) + (change if each == name else 0)
        return state_of(engine).digest

    assert digest(1, 0, ahead_late=1) != digest(1, 1, ahead_late=1)
    assert digest(0, 0, ahead_late=1) == digest(0, 1, ahead_late=1)
    # What was the broker's is charged to the broker, however much it was.
    assert (digest(1, 0) == digest(1, 1)) == (name in ("ahead_broker", "ahead_hol_wait", "ahead_arrived"))


@pytest.mark.parametrize(
    "change",
    [_held_byte, _buffered_byte, _muted, _joined, _software, _client_id, _mechanism, _software_of_waiting,
     _problem_of_waiting, _group_of_waiting, _lost_since, _acked, _fin, _needs, _round_trip],
)  # fmt: skip
def test_a_digest_takes_in_what_lies_beside_the_tables(change: Change) -> None:
    engine = busy_state()
    before = state_of(engine).digest
    change(engine)
    assert state_of(engine).digest != before


def test_a_digest_takes_in_the_bytes_that_are_searched() -> None:
    engine = searching_state()
    before = state_of(engine).digest
    _searched_byte(engine)
    assert state_of(engine).digest != before
    engine.dissector.connections["protocol"][0] = d.PROTOCOL_UNKNOWN
    link = engine.engine.tls.link(0)
    assert link is not None
    digests = set()
    for link["headers"] in range(3):
        digests.add(state_of(engine).digest)
    assert len(digests) == 3


def test_a_digest_takes_in_a_handshake_under_way() -> None:
    """SYN and SYN-ACK were seen, and no more: whoever did not see them takes what follows otherwise."""
    talk = KafkaTalk()
    talk.tcp.open()
    digests = set()
    for seen in (talk.segments[:1], talk.segments[:2], talk.segments[:3]):
        digests.add(state_of(engine_after(seen)).digest)
    engine = engine_after(talk.segments[:2])
    digests.add(state_of(engine).digest)
    assert len(digests) == 3
    for name in ("syn_at", "syn_ack_at", "client"):
        engine.assembler.connections[name][0] ^= 1
        digests.add(state_of(engine).digest)
    assert len(digests) == 6


def test_what_is_handed_over_is_known_again() -> None:
    """By an engine that begins in the middle, of what one knew that was there from the start."""
    segments = pipelined(20, depth=0)
    whole = engine_after(segments[: len(segments) - 6])
    key = whole.assembler.flow_keys()[0]
    history = state_of(whole).history
    again = engine_after(segments[len(segments) - 26 : len(segments) - 6], histories={key: history})
    known = again.states([key]).by_flow()[key].history
    assert known.base_seqs == history.base_seqs == (1001, 5_000_001)
    assert known.handshake == history.handshake
    assert known.first == history.first
    # Packets' numbers differ, as these here count from 1; all else is the same.
    mine = again.assembler.directions[["base_seq", "next", "fin", "started", "delivered"]]
    assert (
        mine[:2].tolist()
        == whole.assembler.directions[["base_seq", "next", "fin", "started", "delivered"]][:2].tolist()
    )


def test_a_syn_sent_again_is_no_new_connection() -> None:
    """Long after the handshake, in a split that did not see it: recognised by the sequence numbers of the history."""
    segments = pipelined(20, depth=0)
    key = engine_after(segments).assembler.flow_keys()[0]
    history = state_of(engine_after(segments[:-6])).history
    rest = [replace(segment, time_ns=segment.time_ns + 6_000_000_000) for segment in segments[40:]]
    late = [*segments[30:40], replace(segments[1], time_ns=rest[0].time_ns), *rest]
    for known, connections in ((None, 2), (history, 1)):
        engine = engine_after(late[:10], histories={} if known is None else {key: known})
        data = pcap_bytes(encode(late[10:]), nanoseconds=True)
        scanner = Scanner(len(late))
        at = scanner.start(data[:HEADER_SIZE])
        block = np.frombuffer(data, np.uint8).copy()
        count, _ = scanner.scan(block, at, len(block))
        for _ in engine.take(block, scanner.packets, 0, count):
            pass
        assert int((engine.assembler.connections["used"] == 1).sum()) == connections


def test_resuming_counts_bytes_from_where_they_were_counted() -> None:
    engine = busy_state()
    before = engine.assembler.directions[:2].copy()
    digest = state_of(engine).digest
    engine.assembler.resume(0, Resumption((10, 2**32 - 5), Handshake(5, 6)))
    after = engine.assembler.directions[:2]
    assert after["base_seq"].tolist() == [10, 2**32 - 5]
    for name in ("next", "acked"):
        ends = (before["base_seq"] + before[name]) % 2**32
        assert ((after["base_seq"] + after[name]) % 2**32).tolist() == ends.tolist()
    assert state_of(engine).digest != digest
    engine.assembler.resume(0, Resumption((int(before["base_seq"][0]), int(before["base_seq"][1]))))
    assert state_of(engine).digest == digest


def test_what_points_saw_moves_with_the_first_byte() -> None:
    """Also where offsets have no end yet, and when it is restored in a run that read other packets."""
    engine = busy_state()
    engine.assembler.expect_points(2)
    before = engine.assembler.progress_of(0)
    assert before["point"].tolist() == [1, 0, 0, 0, 1, 0, 0, 0]
    base = engine.assembler.directions["base_seq"][:2].tolist()
    engine.assembler.resume(0, Resumption((base[0] - 100, base[1] - 70)))
    assert engine.assembler.progress_of(0).tolist() == before.tolist()
    before["end"][0], before["acked"][0] = np.iinfo(np.int64).min, 7
    engine.assembler.restore_progress(0, before)
    assert engine.assembler.progress_of(0).tolist() == before.tolist()


def test_no_joingroup_is_one_that_syncgroup_ended() -> None:
    engine = busy_state()
    before = state_of(engine)
    engine.dissector.connections["rebalance_ms"][0] = 0
    assert state_of(engine).digest == before.digest
    assert state_of(engine).history.is_equivalent(before.history)
    engine.dissector.connections["rebalance_ms"][0] = 1
    assert not state_of(engine).history.is_equivalent(before.history)


def test_histories_that_resume_alike() -> None:
    first = History(
        ConnectionFacts(7, 0, d.PROTOCOL_KAFKA, -1, b"a", b"lib", b"1"), 70, (5, -1), (1, 0), handshake_rtt_ns=300
    )
    facts = replace(first.facts, protocol=d.PROTOCOL_UNKNOWN, head=9, not_kafka_since=9)
    assert first.is_equivalent(replace(first, facts=facts, tls_records=(3, 4)))
    assert not first.is_equivalent(replace(first, base_seqs=(6, -1)))
    assert not first.is_equivalent(replace(first, facts=replace(facts, mechanism=b"PLAIN")))


@pytest.mark.parametrize("name", [*STALL_STATE, *_names("recoveries", r.RECOVERY)])
def test_a_digest_takes_in_what_stalls_depend_on(name: str) -> None:
    """Direction 1 has bytes under way, and sent some of them twice."""
    engine = busy_state()
    row, more = engine.assembler.directions[1], engine.assembler.recoveries[1]
    row["recovery_row"] = 1
    acked = int(row["acked"])
    row["last_data"], row["freed_at"], more["sent"], row["acked_then"] = 70, 80, acked + 1_000, acked
    more["recovery"], more["copy_from"], more["copy_end"] = acked + 1_000, acked + 10, acked + 20
    more["spurious_due"], more["spurious_end"] = 1, acked + 1_000
    before = state_of(engine).digest
    (row if name in STALL_STATE else more)[name] += 1
    assert state_of(engine).digest != before


#: Fields of MEASURE on which later measures do not depend, beside counters.
NO_MEASURE_STATE = {
    "window",  # closed since `zero_since`
}  # fmt: skip


@pytest.mark.parametrize("name", [n for n in r.MEASURE.names or () if n not in r.MEASURE_COUNTERS])
def test_a_digest_takes_in_what_measures_depend_on(name: str) -> None:
    """Direction 1 has bytes under way. A change of one of them shows in the digest of a run that measures."""
    engine = busy_state(measures=True)
    row = engine.assembler.measures[1]
    row["last_data"], row["sent"] = 7, int(engine.assembler.directions["acked"][1]) + 1_000
    row["timed_end"], row["timed_at"] = row["sent"], 7
    before = state_of(engine).digest
    row[name] += 2
    assert (state_of(engine).digest == before) == (name in NO_MEASURE_STATE)


def test_measures_are_resumed() -> None:
    """Their offsets move with the first byte; an earlier run's handshake counts."""
    engine = busy_state(measures=True)
    digest, sent = state_of(engine).digest, int(engine.assembler.measures["sent"][0])
    base = engine.assembler.directions["base_seq"][:2].tolist()
    engine.assembler.resume(0, Resumption((base[0] - 100, base[1])))
    assert int(engine.assembler.measures["sent"][0]) == sent + 100
    engine.assembler.resume(0, Resumption((base[0], base[1])))
    assert state_of(engine).digest == digest
    options = SynOptions(7, 1460, 1, 1), SynOptions(3, 1400, 0, 1)
    engine.assembler.directions["shift"][:2] = r.SHIFT_UNKNOWN
    engine.assembler.expect(0, Resumption((-1, -1), Handshake(5, 25, 1, 30), options))
    assert engine.assembler.directions["shift"][:2].tolist() == [7, 3]
    rows = engine.assembler.directions["recovery_row"][:2]
    assert engine.assembler.recoveries["lag"][rows].tolist() == [20, 10]
