"""Texts that are longer than any of Kafka's: `show` has the first part, `extract --anonymize` replaces them whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafkatap.anonymize.names import Names
from kafkatap.show.viewing import LONGEST_TEXT
from tests.cli.running import kafkatap
from tests.support.captures import pcap_bytes, write_capture
from tests.support.tcp import encode
from tests.wire.kafkatalk import METADATA, KafkaTalk

MORE = 1_000


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    talk = KafkaTalk(mss=60_000)
    talk.tcp.open()
    asked = talk.request(METADATA, 12, 7)
    talk.respond(asked, Topics=[{"Name": "x" * (LONGEST_TEXT + MORE)}, {"Name": "short"}])
    return write_capture(tmp_path_factory.mktemp("long") / "long.pcap", pcap_bytes(encode(talk.tcp.segments)))


def test_json_has_the_first_part_and_says_so(capture: Path) -> None:
    done = kafkatap("show", "--json", "--tree", capture)
    topics = json.loads(done.out.splitlines()[1])["body"]["Topics"]
    assert [len(topic["Name"]) for topic in topics] == [LONGEST_TEXT, 5]
    assert topics[0]["Name_name"] == f"the first {LONGEST_TEXT:,} of {LONGEST_TEXT + MORE:,} bytes"
    assert "Name_name" not in topics[1]


def test_a_tree_says_how_long_it_is(capture: Path) -> None:
    out = kafkatap("show", "--tree", capture).out
    assert f"the first {LONGEST_TEXT:,} of {LONGEST_TEXT + MORE:,} bytes" in out
    assert len(out) < LONGEST_TEXT


def test_a_long_name_is_replaced_whole(capture: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.pcapng"
    done = kafkatap("extract", "--anonymize", "-o", copy, capture)
    assert done.code == 0, done.err
    assert b"x" * 40 not in copy.read_bytes()


def test_words_beyond_names_keep_their_kinds_of_characters() -> None:
    names = Names(b"k" * 32)
    word = (b"Topic1" * 10_000)[:40_000]
    made = names.name(word)
    assert len(made) == len(word)
    assert [chr(c).isdigit() for c in made[:60]] == [chr(c).isdigit() for c in word[:60]]
    assert [chr(c).isupper() for c in made[:60]] == [chr(c).isupper() for c in word[:60]]
    assert made == Names(b"k" * 32).name(word) != Names(b"l" * 32).name(word)
    assert made[:100] != names.name(word[:-1] + b"x")[:100], "all of it depends on the whole word"
