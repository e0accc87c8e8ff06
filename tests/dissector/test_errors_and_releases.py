"""Error codes and releases: the tables, and what is said of what they do not hold."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kafkatap.dissector.kafka.error_codes import code_of, error_codes, error_name, is_retriable
from kafkatap.dissector.kafka.releases import RELEASES, known_since, oldest_release_for, release_of, removed_in, speaks
from kafkatap.dissector.layouts.catalog import key_of, load_messages
from kafkatap.dissector.layouts.schema import REQUEST

#: Spoken by the brokers of old releases, but not by their client classes.
BETWEEN_BROKERS = {(4, 0), (5, 0), (6, 0), (7, 0)}


def test_error_names() -> None:
    assert [error_name(code) for code in (-1, 0, 6, 136)] == [
        "UNKNOWN_SERVER_ERROR",
        "NONE",
        "NOT_LEADER_OR_FOLLOWER",
        "CONTROLLER_ID_NOT_REGISTERED",
    ]
    assert (error_name(5120), error_name(-32768)) == ("5120", "-32768")
    assert list(error_codes()) == list(range(-1, 137))


def test_retriable() -> None:
    assert [is_retriable(code) for code in (6, 7, 35, 0, 5120)] == [True, True, False, False, False]


def test_errors_are_those_of_kafka(corpus: Path) -> None:
    with (corpus / "kafka-facts" / "4.4.0" / "errors.tsv").open(encoding="utf-8") as file:
        theirs = {int(r["code"]): (r["name"], r["retriable"] == "true") for r in csv.DictReader(file, delimiter="\t")}
    assert {code: (each.name, each.is_retriable) for code, each in error_codes().items()} == theirs


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("NOT_LEADER_OR_FOLLOWER", 6), ("NOT_LEADER_FOR_PARTITION", 6), ("not-leader-for-partition", 6),
        ("NotLeaderForPartitionException", 6), ("GROUP_COORDINATOR_NOT_AVAILABLE", 15), ("InvalidMessageSize", 4),
        ("INVALID_TOPIC_EXCEPTION", 17), ("InvalidTopicCode", 17), ("OffsetsLoadInProgressCode", 14), ("UNKNOWN", -1),
        ("none", 0), ("exception", None), ("", None), ("NOT_LEADER", None),
    ],
)  # fmt: skip
def test_names_of_earlier_releases_are_known(name: str, code: int | None) -> None:
    assert code_of(name) == code


def test_what_is_retriable_has_changed() -> None:
    changed = {code: each.retriable_changed for code, each in error_codes().items() if each.retriable_changed}
    assert changed == {1: "0.9.0", 9: "2.6", 46: "1.0", 51: "3.3"}
    assert all(each.meaning[-1] != "." and "{" not in each.meaning for each in error_codes().values())


@pytest.mark.parametrize(
    ("document", "row", "least"),
    [
        ("001", r"^([A-Z][A-Za-z]+)\t(-?\d+)\t", 31),
        ("003", r"^([A-Z_]+) \| (-?\d+) \| (?:True|False)", 57),
        ("004", r"<td>([A-Z_]+)</td><td>(-?\d+)</td><td>(?:True|False)", 34),
    ],
)
def test_names_of_errors_in_documents_are_known(corpus: Path, document: str, row: str, least: int) -> None:
    (path,) = (corpus / "seeds").glob(f"{document}_*.txt")
    named = re.findall(row, path.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(named) >= least
    assert [(name, code) for name, code in named if code_of(name) != int(code)] == []


@pytest.mark.parametrize(
    ("document", "row", "least"),
    [("001", r"^([A-Z]\w+Request)\t(\d+)$", 13), ("004", r"<td>([A-Z][A-Za-z]+[a-z])</td><td>(\d+)</td>", 17)],
)
def test_names_of_apis_in_documents_are_known(corpus: Path, document: str, row: str, least: int) -> None:
    (path,) = (corpus / "seeds").glob(f"{document}_*.txt")
    named = re.findall(row, path.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(named) >= least
    assert [(name, key) for name, key in named if key_of(name) != int(key)] == []


def test_names_of_apis_of_earlier_releases_are_known() -> None:
    old = ["Offsets", "ListOffset", "offset-request", "ConsumerMetadata", "GROUP_COORDINATOR", "AlterIsr"]
    assert [key_of(name) for name in old] == [2, 2, 2, 10, 10, 56]
    assert [key_of(name) for name in ("FetchResponse", "ElectPreferredLeaders", "Request", "")] == [1, 43, None, None]


def test_the_oldest_release_is_that_of_the_newest_version() -> None:
    assert oldest_release_for([(0, 0)]) == "0.8.2"
    assert oldest_release_for([(0, 3), (3, 0), (18, 0)]) == "0.11.0"
    assert oldest_release_for([(18, 3), (0, 0), (999, 0)]) == "2.4"
    assert oldest_release_for([(1, 11), (18, 0)]) == "2.3"
    assert oldest_release_for([(28, 6), (18, 5)]) == oldest_release_for([(94, 0)]) == "4.4"
    assert oldest_release_for([]) == oldest_release_for([(999, 0)]) == ""


def test_what_kafka_4_removed() -> None:
    assert (removed_in(0, 2), removed_in(0, 3)) == ("4.0", None)
    assert (removed_in(6, 5), removed_in(999, 0), known_since(999, 0)) == ("4.0", None, None)


def test_releases_are_those_of_kafka(corpus: Path) -> None:
    with (corpus / "kafka-facts" / "4.4.0" / "releases.tsv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    order = list(dict.fromkeys(row["release"] for row in rows))
    first: dict[tuple[int, int], str] = {}
    newest: set[tuple[int, int]] = set()
    for row in rows:
        for version in range(int(row["min_version"]), int(row["max_version"]) + 1):
            pair = (int(row["api_key"]), version)
            first.setdefault(pair, row["release"])
            if row["release"] == order[-1]:
                newest.add(pair)
    for pair, release in first.items():
        since = known_since(*pair)
        assert since is not None
        assert release.startswith(since) or (pair in BETWEEN_BROKERS and since == "0.8.2"), pair
        assert (removed_in(*pair) is None) == (pair in newest), pair
    known = {(key, v) for (key, direction), m in load_messages().items() if direction == REQUEST for v in m.versions}
    assert set(first) <= known


def test_a_release_speaks_what_its_clients_do(corpus: Path) -> None:
    with (corpus / "kafka-facts" / "4.4.0" / "releases.tsv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    theirs: dict[str, set[tuple[int, int]]] = {}
    for row in rows:
        versions = range(int(row["min_version"]), int(row["max_version"]) + 1)
        theirs.setdefault(row["release"], set()).update((int(row["api_key"]), version) for version in versions)
    assert len(theirs) == 33
    assert set(map(release_of, theirs)) == set(RELEASES)
    every = set().union(*theirs.values())
    for name, pairs in theirs.items():
        ours = {pair for pair in every if speaks(release_of(name), *pair)}
        assert ours - BETWEEN_BROKERS == pairs - BETWEEN_BROKERS, name


def test_names_of_releases() -> None:
    assert [release_of(name) for name in ("4.3", "4.3.0", "4.3.1", "0.8.2.2", "0.10.0.1", "1.0.2")] == [
        "4.3", "4.3", "4.3", "0.8.2", "0.10.0", "1.0",
    ]  # fmt: skip
    for name in ("", "4", "4.", "4.3.", "4.3.x", "5.0.1", "4.3.1.1"):
        with pytest.raises(KeyError):
            release_of(name)
    assert [release_of(name) for name in ("0.8", "0.9", "0.11")] == ["0.8.2", "0.9.0", "0.11.0"]
    with pytest.raises(KeyError) as raised:
        release_of("0.10")
    assert raised.value.args == ("0.10.0", "0.10.1", "0.10.2")


def test_names_are_known_without_numpy_or_the_layouts() -> None:
    code = (
        "import sys\n"
        "from kafkatap.dissector.layouts.catalog import api_name, load_api\n"
        "from kafkatap.dissector.kafka.error_codes import error_name\n"
        "from kafkatap.dissector.kafka.releases import oldest_release_for\n"
        "api_name(1), error_name(1), oldest_release_for([(0, 0)])\n"
        "assert load_api.cache_info().currsize == 0\n"
        "assert not {'numpy', 'numba', 'json', 'pyarrow', 'kafkatap.dissector.layouts.notation'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
