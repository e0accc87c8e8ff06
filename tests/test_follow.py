"""`--follow`: captures that are read while they grow have the rows of the finished captures."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatap.captures import followed_captures
from kafkatap.engine.engine import Engine
from kafkatap.engine.read_options import ReadOptions
from kafkatap.engine.tls.key_log import KeyLog
from kafkatap.reports.connection_words import D_DECRYPTED
from kafkatap.run import Follow, Run
from tests.support.captures import Packet, pcap_bytes, pcapng_bytes, write_capture
from tests.support.copies import by_time
from tests.support.tcp import START_NS, encode, merge
from tests.support.tls_talk import OverTls
from tests.wire.harness import Decoded, assert_same, decode_files, decode_packets, decode_run
from tests.wire.kafkatalk import METADATA, KafkaTalk, add_exchanges, small_talk

#: Messages for the user of the last `follow`.
said: list[str] = []


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the files before each read, without pauses."""
    for name in ("POLL", "_LOOK_SHARE", "_HOLD"):
        monkeypatch.setattr(followed_captures, name, 0)


def follow(paths: Sequence[Path], writing: Iterator[object], block_size: int = 1 << 20) -> Decoded:
    """Read captures while they are written: a step of `writing` each time that everything is read."""
    run = follow_run(paths, writing, block_size)
    return decode_run(run)


def follow_run(
    paths: Sequence[Path], writing: Iterator[object], block_size: int = 1 << 20, key_log: KeyLog | None = None
) -> Run:
    said.clear()
    end = object()

    def watch(_: int) -> bool:
        return run.is_caught_up and next(writing, end) is end

    engine = Engine(ReadOptions(key_log=key_log), all_results=True)
    run = Run([str(p) for p in paths], engine, watch, block_size, follow=Follow(notify=said.append))
    return run


def append(path: Path, pieces: Sequence[bytes]) -> Iterator[None]:
    with path.open("wb", buffering=0) as file:
        for piece in pieces:
            file.write(piece)
            yield


def pieces_of(data: bytes, sizes: Sequence[int]) -> list[bytes]:
    """`data`, cut to pieces of these sizes in turn."""
    found, at = [], 0
    while at < len(data):
        size = sizes[len(found) % len(sizes)]
        found.append(data[at : at + size])
        at += size
    return found


TALK = encode(small_talk(12, mss=80).segments)
FORMS = {
    "pcap": pcap_bytes(TALK),
    "big.pcap": pcap_bytes(TALK, order=">", nanoseconds=True),
    "pcapng": pcapng_bytes(TALK),
}


@pytest.fixture(scope="module")
def whole() -> dict[str, Decoded]:
    """The rows of each form, read at once."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return {name: decode_files([write_capture(Path(folder) / f"x.{name}", data)]) for name, data in FORMS.items()}


@settings(max_examples=25)
@given(
    name=st.sampled_from(sorted(FORMS)), sizes=st.lists(st.integers(1, 3_000), min_size=1, max_size=8),
    block_size=st.sampled_from([200, 5_000, 1 << 20]),
)  # fmt: skip
def test_a_file_that_grows_in_any_pieces(
    name: str, sizes: list[int], block_size: int, whole: dict[str, Decoded], tmp_path_factory: pytest.TempPathFactory
) -> None:
    sizes.append(max(1, len(FORMS[name]) // 60))  # not too many steps
    path = tmp_path_factory.mktemp("grows") / "x"
    assert_same(follow([path], append(path, pieces_of(FORMS[name], sizes)), block_size), whole[name])
    assert said == [f"waiting for {path}"]


@pytest.mark.parametrize("name", sorted(FORMS))
def test_a_head_that_grows_byte_by_byte(name: str, whole: dict[str, Decoded], tmp_path: Path) -> None:
    data = FORMS[name]
    path = tmp_path / "x"
    seen = follow([path], append(path, [*pieces_of(data[:300], [1]), data[300:]]))
    assert_same(seen, whole[name])
    assert [f.damage for f in seen.files] == [None]


def talks(count: int) -> list[Packet]:
    """Connections one after another, whose packets all have times in whole µs."""
    made = []
    for number in range(count):
        talk = KafkaTalk(("10.0.0.1", 20_000 + number), ("10.0.1.1", 9_092), time_ns=START_NS + number * 10**7)
        talk.tcp.open()
        add_exchanges(talk, 3)
        if number % 3:
            talk.tcp.close()
        made.append(talk)
    return [replace(p, time_ns=p.time_ns // 1000 * 1000) for p in encode(merge(*(t.tcp.segments for t in made)))]


def files_of(packets: Sequence[Packet], count: int) -> list[list[Packet]]:
    """Packets, cut into `count` files."""
    size = -(-len(packets) // count)
    return [list(packets[at : at + size]) for at in range(0, len(packets), size)]


def write_ring(folder: Path, files: Sequence[Sequence[Packet]], names: int, new: bool = False) -> Iterator[None]:
    """Write files one after another under `names` names in turn, as tcpdump -C -W does. `new`: the oldest file is
    deleted and another one made, as dumpcap -b does."""
    for number, packets in enumerate(files):
        path = folder / f"r{number % names}"
        if new and path.exists():
            path.unlink()
        data = pcap_bytes(packets)
        with path.open("wb", buffering=0) as file:
            yield
            for piece in pieces_of(data, [24, 1_000, 777]):
                file.write(piece)
                yield


@pytest.mark.parametrize("new", [False, True])
def test_a_ring_that_wraps(new: bool, tmp_path: Path) -> None:
    packets = talks(30)
    seen = follow([tmp_path], write_ring(tmp_path, files_of(packets, 11), 3, new))
    assert_same(seen, decode_packets(packets))
    assert len(seen.files) == 11
    assert [f.damage for f in seen.files] == [None] * 11
    assert [f.first_packet for f in seen.files] == sorted(f.first_packet for f in seen.files)


def test_files_that_were_there_before_come_in_the_order_of_their_first_packets(tmp_path: Path) -> None:
    packets = talks(12)
    files = files_of(packets, 4)
    for name, part in zip(("r2", "r3", "r0"), files, strict=False):
        (tmp_path / name).write_bytes(pcap_bytes(part))
    (tmp_path / "notes").write_text("no capture\n")
    (tmp_path / "empty.pcap").touch()
    seen = follow([tmp_path], append(tmp_path / "r1", [pcap_bytes(files[3])]))
    assert_same(seen, decode_packets(packets))
    assert [Path(f.path).name for f in seen.files] == ["r2", "r3", "r0", "r1"]


def test_files_that_grow_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two programs capture other connections. Packets of both are read in time order."""
    monkeypatch.setattr(followed_captures, "_HOLD", 0.05)
    packets = talks(20)
    ports = [20_000 + n for n in range(20)]
    rng = random.Random(3)
    mine = {port for port in ports if rng.random() < 0.5}

    def is_mine(packet: Packet) -> bool:
        source, target = int.from_bytes(packet.data[34:36], "big"), int.from_bytes(packet.data[36:38], "big")
        return source in mine or target in mine

    parts = [pieces_of(pcap_bytes([p for p in packets if is_mine(p) == first]), [2_500]) for first in (True, False)]
    one, two = (append(tmp_path / name, part) for name, part in zip(("a.pcap", "b.pcap"), parts, strict=True))

    def both() -> Iterator[None]:
        for _ in range(max(map(len, parts)) + 1):
            next(one, None), next(two, None)
            yield

    def numberless(seen: Decoded) -> list[dict[str, object]]:
        return sorted(
            ({k: v for k, v in row.items() if "packet" not in k} for row in seen.exchanges), key=repr
        )  # fmt: skip

    assert numberless(follow([tmp_path], both())) == numberless(decode_packets(packets))


def test_two_captures_of_the_same_packets_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ends capture a connection, a little later at one of them: duplicates, not retransmissions."""
    monkeypatch.setattr(followed_captures, "_HOLD", 0.05)
    packets = talks(6)
    later = [replace(p, time_ns=p.time_ns + 20_000) for p in packets]
    pieces = [pieces_of(pcap_bytes(each), [2_500]) for each in (packets, later)]
    one, two = (append(tmp_path / name, each) for name, each in zip(("a.pcap", "b.pcap"), pieces, strict=True))

    def both() -> Iterator[None]:
        for _ in range(max(map(len, pieces)) + 1):
            next(one, None), next(two, None)
            yield

    seen = follow([tmp_path], both())
    assert len(seen.exchanges) == 18
    assert seen.ledger["packets"]["duplicate"] == len(packets)
    assert sum(x["client_retransmitted_bytes"] + x["broker_retransmitted_bytes"] for x in seen.connections) == 0


def cut_and_whole(packets: Sequence[Packet]) -> dict[str, bytes]:
    """A capture with a short snap length, and one of the same packets that came a little later."""
    later = [replace(p, time_ns=p.time_ns + 20_000) for p in packets]
    return {"a-cut.pcap": pcap_bytes(packets, snap_length=96), "b-whole.pcap": pcap_bytes(later)}


def assert_followed_as_read_at_once(paths: Sequence[Path], block_size: int) -> Decoded:
    wanted = decode_files(paths, block_size=block_size)
    seen = follow(paths, iter(()), block_size)
    assert_same(seen, wanted)
    assert list(map(str, seen.files)) == list(map(str, wanted.files))
    return seen


@pytest.mark.parametrize("block_size", [5_000, 1 << 20])
def test_finished_captures_have_the_rows_of_reading_at_once(block_size: int, tmp_path: Path) -> None:
    """Of a packet that one capture cuts, the whole copy comes first, though it is later. Captures without packets, and
    steps back of time, change nothing."""
    packets = talks(12)
    packets[10], packets[40] = (replace(packets[n], time_ns=packets[n].time_ns - 10**8) for n in (10, 40))
    captures = cut_and_whole(packets) | {"c-empty.pcap": pcap_bytes([]), "d.pcap": pcap_bytes(talks(20)[-400:])}
    paths = [write_capture(tmp_path / name, data) for name, data in captures.items()]
    seen = assert_followed_as_read_at_once(paths, block_size)
    assert {x["request_status"] for x in seen.exchanges} == {"ok"}


def test_cut_captures_while_they_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_captures, "_HOLD", 0.05)
    captures = cut_and_whole(talks(6))
    pieces = [append(tmp_path / name, pieces_of(data, [len(data) // 12])) for name, data in captures.items()]

    def both() -> Iterator[None]:
        for _ in range(14):
            next(pieces[0], None), next(pieces[1], None)
            yield

    seen = follow([tmp_path], both())
    assert Counter(x["request_status"] for x in seen.exchanges) == {"ok": 18}
    assert Counter(x["response_status"] for x in seen.exchanges) == {"ok": 18}


def test_finished_captures_of_a_real_host(corpus: Path) -> None:
    """One cut its packets at 128 bytes, the other did not."""
    names = ("a-cut.pcap", "b-whole.pcap")
    seen = assert_followed_as_read_at_once([corpus / "captures" / "repro" / name for name in names], 1 << 20)
    assert sum(sum(x["errors"].values()) for x in seen.exchanges) == 7


def test_a_quiet_file_is_suspended_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_captures, "_QUIET", -1.0)
    packets = talks(12)
    files = files_of(packets, 3)
    data = pcap_bytes([*files[0], *files[2]])
    first = len(pcap_bytes(files[0]))

    def writing() -> Iterator[None]:
        with (tmp_path / "a").open("wb", buffering=0) as slow:
            slow.write(data[: first + 5])
            yield
            (tmp_path / "b").write_bytes(pcap_bytes(files[1]))
            yield
            yield
            slow.write(data[first + 5 : first + 30])
            yield
            slow.write(data[first + 30 :])
            yield

    seen = follow([tmp_path], writing())
    wanted = decode_packets(packets)
    assert len(seen.exchanges) == len(wanted.exchanges)
    assert seen.ledger == wanted.ledger
    assert [f.damage for f in seen.files] == [None, None]
    assert len({x["request_packet_first"] for x in seen.exchanges}) == len(seen.exchanges)


def test_a_renamed_file_and_a_second_name_are_one_capture(tmp_path: Path) -> None:
    packets = talks(12)
    pieces = pieces_of(pcap_bytes(packets), [2_000])

    def writing() -> Iterator[None]:
        for number, _ in enumerate(append(tmp_path / "now.pcap", pieces)):
            yield
            if number == 1:
                (tmp_path / "link.pcap").hardlink_to(tmp_path / "now.pcap")
                yield
            if number == 3:
                (tmp_path / "now.pcap").rename(tmp_path / "old.pcap")
                yield

    seen = follow([tmp_path], writing())
    assert_same(seen, decode_packets(packets))
    assert len(seen.files) == 1


def test_a_file_that_is_deleted_while_it_is_read(tmp_path: Path) -> None:
    packets = talks(12)
    path = tmp_path / "x.pcap"

    def writing() -> Iterator[None]:
        for number, _ in enumerate(append(path, pieces_of(pcap_bytes(packets), [3_000]))):
            if number == 1:
                yield
                path.unlink()
            yield

    seen = follow([tmp_path], writing())
    assert 0 < len(seen.exchanges) < 36, "what was written after the deletion is not looked for"
    assert "cut short" in seen.files[0].damage


def test_a_killed_writer_and_an_overwritten_file_are_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_captures, "_QUIET", -1.0)
    files = files_of(talks(12), 3)

    def writing() -> Iterator[None]:
        (tmp_path / "a").write_bytes(pcap_bytes(files[0])[:-7])
        yield
        (tmp_path / "b").write_bytes(pcap_bytes(files[1]))
        yield
        yield
        (tmp_path / "a").write_bytes(pcap_bytes(files[2]))
        yield

    seen = follow([tmp_path], writing())
    assert [Path(f.path).name for f in seen.files] == ["a", "b", "a"]
    assert ["cut short" in (f.damage or "") for f in seen.files] == [True, False, False]


def test_a_file_that_is_overwritten_before_its_turn(tmp_path: Path) -> None:
    """The ring comes round while earlier files are still read."""
    files = files_of(talks(30), 3)
    for name, part in zip("abc", files, strict=True):
        (tmp_path / name).write_bytes(pcap_bytes(part))
    captures = followed_captures.FollowedCaptures([str(tmp_path)], said.append, block_size=5_000)
    said.clear()
    found = captures.packets(lambda: False)
    next(packets for packets in found if packets is not None)
    (tmp_path / "b").write_bytes(pcap_bytes(files[2]))
    (tmp_path / "c").unlink()
    names = []
    for packets in found:
        if packets is None:
            break
        names += [Path(report.path).name for _, report in packets.captures]
    found.close()
    assert dict.fromkeys(names) == {"a": None, "b": None}
    assert sorted(said) == [f"{tmp_path / n} was deleted or overwritten before it was read" for n in "bc"]


def test_compressed_files_of_a_folder(tmp_path: Path) -> None:
    """Those that are there are read; a file that tcpdump -z compresses after it was read is not read again."""
    packets = talks(12)
    files = files_of(packets, 3)
    old = write_capture(tmp_path / "a.pcap.gz", pcap_bytes(files[0]))
    os.utime(old, (1, 1))

    def writing() -> Iterator[None]:
        (tmp_path / "b.pcap").write_bytes(pcap_bytes(files[1]))
        yield
        packed = write_capture(tmp_path / "b.pcap.gz", pcap_bytes(files[1]))
        os.utime(packed, (1, 1))
        (tmp_path / "b.pcap").unlink()
        yield
        (tmp_path / "c.pcap").write_bytes(pcap_bytes(files[2]))
        yield

    assert_same(follow([tmp_path], writing()), decode_packets(packets))
    with pytest.raises(ValueError, match="compressed and cannot be followed"):
        follow([old], iter(()))


def test_globs_and_what_is_not_there_yet(tmp_path: Path) -> None:
    packets = talks(9)
    files = files_of(packets, 3)
    folder = tmp_path / "ring"

    def writing() -> Iterator[None]:
        yield
        folder.mkdir()
        yield
        for name, part in zip(("r1", "r0", "other"), files, strict=True):
            (folder / name).write_bytes(pcap_bytes(part))
            yield

    seen = follow([folder / "r*"], writing())
    assert said == [f"waiting for {folder / 'r*'}"]
    assert_same(seen, decode_packets([*files[0], *files[1]]))


def test_a_pipe_ends_by_itself(tmp_path: Path) -> None:
    packets = talks(9)
    path = tmp_path / "pipe"
    os.mkfifo(path)

    def writing() -> Iterator[None]:
        yield
        number = os.open(path, os.O_WRONLY)
        for piece in pieces_of(pcap_bytes(packets), [10, 3_000]):
            os.write(number, piece)
            yield
        os.close(number)
        while True:
            yield

    assert_same(follow([path], writing()), decode_packets(packets))


def test_interim_context_counts_what_is_open(tmp_path: Path) -> None:
    """Before the end, the ledger adds up, and open connections are counted."""
    packets = talks(12)
    path = tmp_path / "x.pcap"
    run = follow_run([path], append(path, pieces_of(pcap_bytes(packets), [2_000])))
    seen = 0
    for batches in run.steps():
        for _ in batches:
            pass
        context = run.context(is_over=False)
        for parts in context.ledger.values():
            assert sum(parts.values()) == 2 * parts["total"]
            assert min(parts.values()) >= 0
        assert len(context.connections) >= seen
        seen = len(context.connections)
    final = run.context()
    assert seen == len(final.connections) == 12
    assert {name: dict(parts) for name, parts in final.ledger.items()} == decode_packets(packets).ledger


# ---------------------------------------------------------------- key logs that grow


def busy(over: OverTls, count: int) -> tuple[list[list[Packet]], list[bytes]]:
    """Connections with 600 kB each, all at once, and the lines of the key log for each."""
    packets, lines = [], []
    for n in range(count):
        talk = KafkaTalk(client=("10.0.0.1", 40_000 + n), acks=False)
        talk.tcp.open()
        for k in range(6):
            talk.exchange(METADATA, 4, k, Topics=[{"Name": "t" * 200}] * 500)
        talk.tcp.close()
        over.key_log.unlink(missing_ok=True)
        packets.append(encode(over.replayed(talk.segments)))
        lines.append(over.key_log.read_bytes())
    return packets, lines


@pytest.mark.parametrize("late", [False, True])
def test_a_key_log_that_grows_with_the_capture(late: bool, tmp_path: Path) -> None:
    """Ten busy connections are written at once. Their lines are there when they are read; or half of them come with the
    second half of the packets, and none before."""
    connections, lines = busy(OverTls(tmp_path), 10)
    packets = by_time([packet for mine in connections for packet in mine])
    pcap, keys = tmp_path / "busy.pcap", tmp_path / "growing.log"
    keys.touch()
    whole = pcap_bytes(packets)
    first = len(pcap_bytes(packets[: len(packets) // 2]))

    def writing() -> Iterator[None]:
        known = lines[5:] if late else lines
        keys.write_bytes(b"".join(known))
        pcap.write_bytes(whole[:first])
        yield
        keys.write_bytes(b"".join([*known, *lines[: 10 - len(known)]]))
        with pcap.open("ab") as file:
            file.write(whole[first:])
        yield

    steps = writing()
    next(steps)
    run = follow_run([pcap], steps, key_log=KeyLog([str(keys)], is_growing=True))
    seen = decode_run(run)
    at_once = KeyLog([str(keys)])
    offline = decode_packets(packets, engine=Engine(ReadOptions(key_log=at_once), all_results=True))
    assert len(offline.exchanges) == 60
    assert_same(seen, offline)
    assert {row["tls_decryption"] for row in seen.connections} == {D_DECRYPTED}
