"""What people type who know tshark, or have other words for a section: each error says what does the same here."""

from __future__ import annotations

import json

import pytest

from .running import ROOT, kafkatap

SAMPLE = ROOT / "samples" / "apache-4.3.pcap.zst"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "-r", SAMPLE), "there is no option -r; name the capture without it"),
        (("show", "-Y", "kafka.api_key == 3", SAMPLE), "there is no option -Y; a filter is -f here"),
        (("report", "-z", "io,stat,1", SAMPLE), "statistics are sections: kafkatap report --sections help"),
        (("report", "--sections", "network", SAMPLE), "did you mean connections?"),
        (("report", "--sections", "throttling", SAMPLE), "did you mean throttle?"),
        (("report", "--sections", "lag", SAMPLE), "did you mean groups?"),
        (("records", "-f", "key == 7", SAMPLE), "of records, it is record.key"),
    ],
)
def test_other_words_are_answered_with_ours(words: tuple[object, ...], said: str) -> None:
    done = kafkatap(*words)
    assert done.code == 2
    assert said in done.err
    assert done.out == ""


def test_idle_ends_with_the_selected_time() -> None:
    """What a client sent later is left out, and is no silence."""
    done = kafkatap(
        "report", "--sections", "clients", "--utc", "--from", "04:44:20", "--to", "04:44:25", "--json", SAMPLE
    )  # fmt: skip
    rows = json.loads(done.out)["reports"]["client_activity"]
    assert len(rows) > 3
    assert all(0 <= row["idle_ns"] <= 5_000_000_000 for row in rows)


def test_rows_that_were_chosen_by_time_and_are_sorted_otherwise_say_so() -> None:
    done = kafkatap("report", "--sections", "slowest", "--sort", "broker time", SAMPLE)
    assert "of the slowest of each API by total time" in " ".join(done.out.split())
