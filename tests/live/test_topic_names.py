"""Topics that requests name by id: by their names, once any Metadata response told them, wherever they are shown."""

from __future__ import annotations

from pathlib import Path

from kafkatap.live.memory_limits import MemoryLimits
from kafkatap.live.screen.look import Kept, Live
from kafkatap.live.screen.page_sections import sections
from kafkatap.live.screen.pages import Page, Shown
from kafkatap.reports.batch import uuid_text
from tests.support.tcp import merge
from tests.wire.kafkatalk import FETCH, METADATA, MS, KafkaTalk

from .metered import by_name, sums
from .support import SECOND
from .watched import Seen, ticking

TOPIC_ID = bytes(range(1, 17))


def fetching(seconds: int) -> KafkaTalk:
    """A consumer that knows its topic from before, and fetches from it ten times a second."""
    talk = KafkaTalk(client=("10.0.0.7", 1), client_id="reader")
    talk.tcp.open()
    topics = [{"TopicId": TOPIC_ID, "Partitions": [{"Partition": 0}]}]
    for number in range(seconds * 10):
        asked = talk.request(FETCH, 13, number, Topics=topics)
        talk.respond(asked, Responses=[{"TopicId": TOPIC_ID, "Partitions": [{"PartitionIndex": 0, "Records": b""}]}])
        talk.tcp.wait(100 * MS - 4 * talk.tcp.step_ns)
    return talk


def telling(after: int) -> KafkaTalk:
    """Another client, on another connection, that asks for Metadata."""
    talk = KafkaTalk(client=("10.0.0.8", 1), client_id="other")
    talk.tcp.wait(after)
    talk.tcp.open()
    asked = talk.request(METADATA, 12, 1, Topics=[])
    talk.respond(asked, Topics=[{"Name": "orders", "TopicId": TOPIC_ID}])
    return talk


def test_names_are_those_that_any_metadata_told(tmp_path: Path) -> None:
    segments = merge(fetching(8).segments, telling(3_500 * MS).segments, ticking(9))
    seen = Seen(tmp_path / "x.pcap", segments)
    kept = Kept()
    monitor = seen.monitor
    monitor.sinks += kept.sinks
    number = uuid_text(TOPIC_ID)
    for second in seen.seconds():
        name = number if second < 4 else "orders"
        if second == 6:
            monitor.limits = MemoryLimits(strings=1, text=1, addresses=1)  # names are looked through from now on
        page = Page("table", "topic")
        (section,) = sections(page, Live(monitor, kept), Shown(window=None))
        assert [row.name for row in section.rows] == [name]
        assert section.rows[0].requests == min(second, 8) * 10 + (second >= 4)
        messages = kept.recent.matching((("client", "reader"),), 1000)
        assert {topic for message in messages for topic in message.topics} == {name}
    counted = sums(by_name(seen.metrics, monitor)["kafkatap_topic_requests_total"], "topic")
    assert counted == {(number,): 30, ("orders",): 50}
    assert seen.source.now > SECOND
