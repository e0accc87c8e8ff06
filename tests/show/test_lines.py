"""Lines and JSON of many messages are those of each message by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkatap.engine.read_options import AS_USUAL
from kafkatap.selected_messages.message import Messages, joined_messages
from kafkatap.selected_messages.message_collector import MessageCollector
from kafkatap.selected_messages.message_index import index_messages
from kafkatap.selected_messages.messages import read_messages
from kafkatap.show.lines import LineMaker
from kafkatap.show.message_json import JsonMaker


@pytest.fixture(scope="module", params=["apache-4.3", "apache-0.8.2"])
def messages(request: pytest.FixtureRequest, samples: Path) -> Messages:
    index = index_messages([str(samples / f"{request.param}.pcap.zst")])
    found = joined_messages(list(read_messages(index, AS_USUAL, MessageCollector(index.ids))))
    assert found.heads["id"].tolist() == index.ids.tolist()
    return found.rows_at(slice(1_500))


def each(messages: Messages) -> list[Messages]:
    return [messages.rows_at(slice(number, number + 1)) for number in range(messages.total)]


@pytest.mark.parametrize("styled", [lambda style: ("", ""), lambda style: (f"<{style}>", "</>")])
def test_lines_made_together_are_those_made_one_by_one(messages: Messages, styled: object) -> None:
    together, single = (LineMaker({}, styled, utc=True, with_tls=True) for _ in range(2))  # type: ignore[arg-type]
    assert together.lines(messages) == [line for one in each(messages) for line in single.lines(one)]


def test_so_is_json(messages: Messages) -> None:
    assert JsonMaker({}).lines(messages) == [line for one in each(messages) for line in JsonMaker({}).lines(one)]


def test_a_topic_has_its_name_once_it_is_known(samples: Path) -> None:
    index = index_messages([str(samples / "apache-4.3.pcap.zst")])
    found = joined_messages(list(read_messages(index, AS_USUAL, MessageCollector(index.ids))))
    names: dict[bytes, str] = {}
    lines, json = LineMaker(names, lambda style: ("", ""), utc=True), JsonMaker(names)
    before = lines.lines(found), json.lines(found)
    names.update(index.topic_names)
    fresh = LineMaker(index.topic_names, lambda style: ("", ""), utc=True)
    fresh.lines(found)
    assert before != (lines.lines(found), json.lines(found))
    assert lines.lines(found) == fresh.lines(found)
    assert json.lines(found) == JsonMaker(index.topic_names).lines(found)
