"""Crafted talk of clients and brokers, and a monitor over it, second by second."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from kafkatap.engine.engine import Engine
from kafkatap.engine.selection import EVERYTHING, Selection
from kafkatap.live.export.metrics import Metrics
from kafkatap.live.governor import Governor
from kafkatap.live.monitor import Monitor
from kafkatap.live.screen.breakdown import window_rows
from kafkatap.live.sink import names_of
from tests.support.captures import Packet, pcap_bytes
from tests.support.tcp import START_NS, Segment, encode
from tests.wire.kafkatalk import API_VERSIONS, MS, PRODUCE, KafkaTalk

from .support import SECOND, FileSource

TOPIC = [{"Name": "orders", "PartitionData": [{"Index": 0, "Records": b""}]}]


def produce(talk: KafkaTalk, number: int, acks: int = 0) -> None:
    talk.request(PRODUCE, 3, number, Acks=acks, TimeoutMs=1000, TopicData=TOPIC)


def sending(count: int, pause: int = 10 * MS, **options: object) -> KafkaTalk:
    """A client that sends with acks=0, and whose connection stays open."""
    talk = KafkaTalk(client_id="sensor", **options)  # type: ignore[arg-type]
    talk.tcp.open()
    talk.exchange(API_VERSIONS, 0, 0)
    for number in range(1, count + 1):
        produce(talk, number)
        talk.tcp.wait(pause - 2 * talk.step_ns)
    return talk


def answering(count: int, after: int, pause: int) -> KafkaTalk:
    """A broker that answers acks=0 all the same: so long afterwards."""
    talk = KafkaTalk(client_id="sensor")
    talk.tcp.open()
    for number in range(1, count + 1):
        asked = talk.request(PRODUCE, 3, number, Acks=0, TimeoutMs=1000, TopicData=TOPIC)
        talk.tcp.wait(after)
        talk.respond(asked, Responses=[{"Name": "orders", "PartitionResponses": [{"Index": 0, "ErrorCode": 0}]}])
        talk.tcp.wait(pause)
    return talk


def ticking(seconds: int) -> list[Segment]:
    """Other packets, so that time goes on."""
    talk = KafkaTalk(client=("10.0.0.9", 50_000), client_id="clock")
    talk.tcp.open()
    for number in range(seconds * 10):
        talk.exchange(API_VERSIONS, 0, number)
        talk.tcp.wait(100 * MS - 4 * talk.step_ns)
    return talk.segments


class Seen:
    """A monitor over these segments or packets, second by second."""

    def __init__(
        self, path: Path, what: Sequence[Segment] | Sequence[Packet], selection: Selection = EVERYTHING
    ) -> None:
        path.write_bytes(pcap_bytes([p if isinstance(p, Packet) else encode([p])[0] for p in what]))
        self.source = FileSource(str(path))
        self.metrics = Metrics()
        self.monitor = Monitor(
            self.source, Engine(all_results=True), selection=selection, sinks=[self.metrics], clock=self.source.clock,
            governor=Governor(None),
        )  # fmt: skip

    def seconds(self) -> Iterator[int]:
        """The number of each second when it has ended."""
        ended = len(self.monitor.windows.seconds)
        while not self.source.over:
            self.source.wait(0.1)
            self.monitor.step()
            if len(self.monitor.windows.seconds) > ended:
                ended = len(self.monitor.windows.seconds)
                yield (self.source.now - START_NS) // SECOND

    def counted(self, by: str, name: str, what: str = "requests") -> int:
        """What was counted since the start under a name."""
        with self.monitor.reading(None) as counts:
            rows = window_rows(counts, names_of(self.monitor.engine), by, SECOND)
        return sum(getattr(row, what) for row in rows if row.name == name)
