"""`kafkatap errors`: what error codes mean, and which APIs of a capture had them."""

from __future__ import annotations

import json

import pytest

from kafkatap.dissector.kafka.error_codes import error_codes

from .running import ROOT, kafkatap, on_terminal

SAMPLE = ROOT / "samples" / "apache-4.3.pcap.zst"


def test_the_list_has_every_code_and_fits_a_terminal() -> None:
    done = kafkatap("errors")
    assert (done.code, done.err) == (0, "")
    rows = {line.split()[0]: line for line in done.out.splitlines()[3:]}
    assert list(rows) == [each.name for each in error_codes().values()]
    assert all(each.meaning in rows[each.name] for each in error_codes().values())
    code, shown = on_terminal("errors", "--color", "never", columns=80)
    assert code == 0
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("word", ["6", "NOT_LEADER_OR_FOLLOWER", "NotLeaderForPartition", "not-leader-for-partition"])
def test_one_code_by_any_name(word: str) -> None:
    lines = kafkatap("errors", word).out.splitlines()
    assert lines[0].split() == ["NOT_LEADER_OR_FOLLOWER", "6"]
    assert "since Kafka 0.8.2; earlier names: NOT_LEADER_FOR_PARTITION" in lines[-1]


def test_json() -> None:
    (one,) = json.loads(kafkatap("errors", "DUPLICATE_SEQUENCE_NUMBER", "--json").out)["errors"]
    assert (one["code"], one["since"], one["retriable"], one["retriable_changed"]) == (46, "0.11.0", False, "1.0")
    assert one["apis"] is None
    (unknown,) = json.loads(kafkatap("errors", "5120", "--json").out)["errors"]
    assert (unknown["code"], unknown["name"], unknown["retriable"]) == (5120, None, None)


def test_codes_of_a_capture_have_their_apis() -> None:
    report = json.loads(kafkatap("report", "--sections", "errors", "--json", SAMPLE).out)["reports"]
    wanted: dict[int, dict[str, int]] = {}
    for row in report["error_totals"]:
        wanted.setdefault(row["code"], {})[row["api"]] = row["count"]
    found = json.loads(kafkatap("errors", SAMPLE, "--json").out)["errors"]
    assert {each["code"]: {a["api"]: a["count"] for a in each["apis"]} for each in found} == wanted
    # The report says the same of each.
    assert {(row["code"], row["meaning"]) for row in report["error_meanings"]} == {
        (each["code"], each["meaning"]) for each in found
    }
    some = json.loads(kafkatap("errors", "5", "9", SAMPLE, "--json").out)["errors"]
    assert [(each["code"], each["apis"]) for each in some] == [(5, [{"api": "Metadata", "count": 406}]), (9, [])]


def test_wrong_words() -> None:
    done = kafkatap("errors", "LEADER_NOT_AVALABLE")
    assert done.code == 2
    assert "did you mean LEADER_NOT_AVAILABLE" in done.err
    assert "there is no capture of this name" in kafkatap("errors", "missing.pcap").err
    assert kafkatap("errors", "99999").code == 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("error == NOT_LEADER_FOR_PARTITION", "error == NOT_LEADER_OR_FOLLOWER"),
        ("error == GROUP_COORDINATOR_NOT_AVAILABLE", "error == 15"), ("api == Offsets", "api == ListOffsets"),
        ("api == ConsumerMetadata", "api == FindCoordinator"), ("api == GroupCoordinatorRequest", "api == 10"),
    ],
)  # fmt: skip
def test_filters_read_the_names_of_earlier_releases(old: str, new: str) -> None:
    capture = ROOT / "samples" / "apache-0.10.2.pcap.zst"
    lines = [kafkatap("show", "--filter", text, capture) for text in (old, new)]
    assert lines[0].out == lines[1].out
    assert lines[0].code == lines[1].code == 0
