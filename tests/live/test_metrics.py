"""Metrics: what they count is what the reports count; their labels are bounded; nothing in them goes backwards."""

from __future__ import annotations

import re
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kafkatap.engine.engine import Engine
from kafkatap.live.export import label_slots
from kafkatap.live.export.label_slots import OTHER, Labels, label
from kafkatap.live.export.metric_list import COUNTER, GAUGE, HISTOGRAM, Family, Point
from kafkatap.live.export.metrics import Metrics
from kafkatap.live.governor import HEADERS
from kafkatap.live.latency_buckets import BUCKET_BOUNDS
from kafkatap.live.memory_limits import MemoryLimits
from kafkatap.reports.build import build_report
from kafkatap.reports.counting import tally
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.model import Report, ReportTable

from .metered import Metered, sums


@pytest.fixture(scope="module")
def seen(samples: Path) -> Metered:
    return Metered(samples / "apache-4.3.pcap.zst").run()


@pytest.fixture(scope="module")
def families(seen: Metered) -> dict[str, Family]:
    return seen.families()


@pytest.fixture(scope="module")
def report(seen: Metered) -> Report:
    return build_report(seen.monitor.windows.start, seen.monitor.context())


def rows(table: ReportTable) -> list[dict[str, object]]:
    return [dict(zip((c.name for c in table.columns), row, strict=True)) for row in table.rows]


def test_requests_are_those_of_the_report(families, report):
    counted = sums(families["kafkatap_requests_total"], "api", "outcome")
    for api in {row["api"].removesuffix(" (long poll)") for row in rows(report.table("latency"))}:
        told = [r for r in rows(report.table("latency")) if r["api"].removesuffix(" (long poll)") == api]
        assert counted[api, "answered"] == sum(r["answered"] for r in told)
        assert counted.get((api, "no_reply_expected"), 0) == sum(r["no_reply_expected"] for r in told)
        lost = counted[api, "unanswered"] + counted.get((api, "response_lost"), 0)
        assert lost == sum(r["unanswered"] for r in told)


def test_errors_are_those_of_the_report(families, report):
    told = {(r["api"], r["error"]): r["count"] for r in rows(report.table("error_totals"))}
    assert sums(families["kafkatap_error_codes_total"], "api", "error") == told
    assert sum(told.values()) > 100
    by_client: dict[tuple[str], int] = {}
    for r in rows(report.table("errors")):
        key = (label(r["client_id"]),)
        by_client[key] = by_client.get(key, 0) + r["count"]
    counted = sums(families["kafkatap_client_error_codes_total"], "client_id")
    assert {k: v for k, v in counted.items() if v} == by_client


def test_throttling_is_that_of_the_report(families, report):
    told: dict[tuple[str], list[float]] = {}
    for r in rows(report.table("throttle")):
        seen = told.setdefault((r["client_id"],), [0, 0, 0])
        for i, name in enumerate(("throttled", "throttle_time_sum_ms", "throttle_wait_sum_ns")):
            seen[i] += r[name]
    assert len(told) >= 3
    for name, i, scale in (
        ("kafkatap_throttled_responses_total", 0, 1),
        ("kafkatap_throttle_time_seconds_total", 1, 1e3),
        ("kafkatap_throttle_wait_seconds_total", 2, 1e9),
    ):
        counted = {k: v for k, v in sums(families[name], "client_id").items() if v}
        assert counted == pytest.approx({k: v[i] / scale for k, v in told.items() if v[i]})


def test_histograms_hold_every_answer_in_its_bucket(seen, families, report):
    for name in ("broker", "total"):
        family = families[f"kafkatap_{name}_time_seconds"]
        assert family.metric.kind == HISTOGRAM
        counts: dict[str, np.ndarray] = {}
        total: dict[str, float] = {}
        for point in family.points:
            api, _, poll = point.labels
            key = f"{api} (long poll)" if poll == "true" else api
            assert len(point.counts) == len(BUCKET_BOUNDS) + 1
            counts[key] = counts.get(key, 0) + np.array(point.counts)
            total[key] = total.get(key, 0) + point.value
        for row in rows(report.table("latency")):
            if not row["answered"]:
                continue
            found = counts[row["api"]]
            assert found.sum() == row["answered"]
            edges = (0.0, *BUCKET_BOUNDS, float("inf"))
            for column, part in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
                at = int(np.searchsorted(np.cumsum(found), np.ceil(part * found.sum())))
                exact = row[f"{name}_{column}_ns"] / 1e9
                assert edges[at] * 0.992 <= exact <= edges[at + 1] * 1.008
        assert any(key.endswith("(long poll)") for key in counts)
    sums_ns = seen.monitor.windows.start.groups.value_rows()[:, list(tally.GROUP_VALUES).index("total_ns")].sum()
    assert sum(total.values()) == pytest.approx(sums_ns / 1e9)


def test_bytes_add_up_whatever_they_are_told_by(families):
    for direction in ("request", "response"):
        whole = sum(p.value for p in families[f"kafkatap_{direction}_bytes_total"].points)
        assert whole == sum(p.value for p in families[f"kafkatap_client_{direction}_bytes_total"].points) > 100_000
    produced = sums(families["kafkatap_topic_produce_bytes_total"], "topic")
    sent = sums(families["kafkatap_request_bytes_total"], "api")[("Produce",)]
    assert 0 < produced[("greedy",)] <= sent
    fetched = sums(families["kafkatap_topic_fetch_bytes_total"], "topic")
    assert 0 < fetched[("__cluster_metadata",)] <= sums(families["kafkatap_response_bytes_total"], "api")[("Fetch",)]


def test_the_ledger_is_the_engines(seen, families):
    ledger = seen.monitor.engine.ledger()
    for section, parts in ledger.items():
        name = section.replace(" ", "_")
        places = sums(families[f"kafkatap_ledger_{name}_total"], "place")
        assert places == {(part,): number for part, number in parts.items() if part != "total"}
        (still_open,) = families[f"kafkatap_ledger_open_{name}"].points
        assert still_open.value + sum(places.values()) == parts["total"]
    assert families["kafkatap_payload_bytes_total"].points[0].value == ledger["payload bytes"]["total"] > 1_000_000
    assert families["kafkatap_captured_packets_total"].points[0].value == ledger["packets"]["total"]


def test_bytes_of_open_connections_have_their_place_within_seconds(samples):
    """Connections of brokers stay open for days. Counters never fall, and what is open is what nobody knows yet."""
    metered = Metered(samples / "apache-4.3.pcap.zst")
    before: dict[tuple[str, ...], float] = {}
    shares = []
    for n, _ in enumerate(metered.steps()):
        if n % 50 != 49 or metered.source.over:
            continue
        families = metered.families()
        places = sums(families["kafkatap_ledger_payload_bytes_total"], "place")
        assert all(number >= before.get(place, 0) for place, number in places.items())
        before = places
        shares.append(
            families["kafkatap_ledger_open_payload_bytes"].points[0].value
            / families["kafkatap_payload_bytes_total"].points[0].value
        )
    assert len(shares) > 8
    # At most what the last seconds brought, and what connections have not shown to be Kafka, or TLS.
    assert max(shares[2:]) < 0.4
    assert shares[-1] < 0.02
    ledger = metered.monitor.engine.ledger()["payload bytes"]
    assert {(name,): n for name, n in ledger.items() if name != "total"} == sums(
        metered.families()["kafkatap_ledger_payload_bytes_total"], "place"
    )


def test_the_level_of_detail(seen):
    status = replace(seen.monitor.status, level=HEADERS)
    (family,) = (f for f in seen.metrics.families(status) if f.metric.name == "kafkatap_detail_level")
    assert {p.labels[0] for p in family.points if p.value == 1} == {"headers only"}
    assert sum(p.value for p in family.points) == 1
    assert family.metric.kind == GAUGE


def test_the_process_itself(families):
    assert families["process_cpu_seconds_total"].metric.kind == COUNTER
    assert families["process_resident_memory_bytes"].points[0].value > 10_000_000
    assert families["process_resident_memory_bytes"].metric.unit == "bytes"


def test_names_and_units_are_what_prometheus_wants(families):
    for family in families.values():
        assert family.metric.name.endswith("_total") == (family.metric.kind == COUNTER)
        assert family.metric.help.endswith(".")
        assert len({p.labels for p in family.points}) == len(family.points), family.metric.name
        for point in family.points:
            assert len(point.labels) == len(family.metric.labels)


def test_counters_never_go_backwards(samples):
    """Though names are forgotten all the time, and the monitor's counts begun anew."""
    metered = Metered(samples / "apache-4.3.pcap.zst", Metrics(top=2), MemoryLimits(strings=1, text=1, addresses=1))
    before: dict[tuple[str, tuple[str, ...]], Point] = {}
    for _ in metered.steps():
        now = {}
        for family in metered.families().values():
            if family.metric.kind == GAUGE:
                continue
            for point in family.points:
                now[family.metric.name, point.labels] = point
                old = before.get(
                    (family.metric.name, point.labels), Point((), 0.0, point.since, [0] * len(point.counts))
                )
                assert point.value >= old.value, (family.metric.name, point)
                assert all(np.array(point.counts) >= np.array(old.counts))
                assert old.since >= point.since > 0
        assert set(before) <= set(now)  # nothing was replaced within a minute
        before = now
        if metered.source.taken > 3000:
            metered.monitor.reset()
    clients = {labels[0] for name, labels in before if name == "kafkatap_client_requests_total"}
    assert len(clients) == 3
    assert OTHER in clients


def test_the_rest_is_other(seen, samples):
    """No matter how few have a series, the sums are the same."""
    mine = Metered(samples / "apache-4.3.pcap.zst", Metrics(top=3)).run().families()
    whole = seen.families()
    for name in (
        "kafkatap_client_requests_total",
        "kafkatap_topic_error_codes_total",
        "kafkatap_topic_produce_bytes_total",
    ):
        assert sum(p.value for p in mine[name].points) == sum(p.value for p in whole[name].points) > 0
        assert len(mine[name].points) == 4 < len(whole[name].points)
        assert (OTHER,) in sums(mine[name], *mine[name].metric.labels)


def second_of(engine: Engine, clients: list[bytes | None], start: int) -> ReportCounts:
    """Counts of a second in which each client asked once, their ids numbered from `start`."""
    counts = ReportCounts()
    keys = np.zeros((len(clients), len(tally.GROUP_KEY)), np.int64)
    keys[:, tally.GROUP_KEY.index("client_id")] = start + np.arange(len(clients))
    values = np.zeros((len(clients), len(tally.GROUP_VALUES)), np.int64)
    values[:, 0] = 1
    counts.groups.add(keys, values)
    counts.finish()
    return counts


class Named(Engine):
    """An engine whose strings are given."""

    def __init__(self, strings: list[bytes | None]) -> None:
        super().__init__()
        self.strings = strings  # type: ignore[assignment]
        self.addresses = ["10.0.0.1"]


def requests_of(metrics: Metrics, seen: Metered) -> Family:
    return next(f for f in metrics.families(seen.monitor.status) if f.metric.name == "kafkatap_client_requests_total")


def test_a_flood_of_clients_does_not_grow_memory(seen):
    """A hundred thousand client ids in a minute, each once; tracing is slow, so that only the last third is traced."""
    metrics, each, engine = Metrics(), 1700, Named([])
    for second in range(60):
        if second == 40:
            tracemalloc.start()
        engine.strings = [b"client-%d-%s" % (each * second + n, b"x" * 300) for n in range(each)]
        metrics.end_second(0, second_of(engine, engine.strings, 0), engine)
    engine.strings = []
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert grown < 1_000_000
    family = requests_of(metrics, seen)
    assert len(family.points) == 51
    assert sum(p.value for p in family.points) == 60 * each > 100_000
    assert max(len(p.labels[0]) for p in family.points) <= label_slots.WIDTH


def test_hostile_names_are_harmless(seen):
    """Escapes, invalid UTF-8, the name "other" itself, and names that look the same when they are shown."""
    hostile = [
        b"\x1b[2J",
        b"\xff\xfe",
        b"\xfe\xff",
        b"other",
        None,
        b"-",
        b'a"b\\c\nd',
        "Grün\u202e".encode(),
        b"x" * 32767,
    ]
    engine = Named(hostile)
    metrics = Metrics()
    metrics.end_second(0, second_of(engine, hostile[:-1], 0), engine)
    metrics.end_second(0, second_of(engine, hostile[-1:], len(hostile) - 1), engine)
    metrics.end_second(0, second_of(engine, [None], -1), engine)
    family = requests_of(metrics, seen)
    counted = sums(family, "client_id")
    assert sum(counted.values()) == len(hostile) + 1
    assert (OTHER,) not in counted
    assert counted["-",] == 2
    assert counted["\\x6fther",] == counted["\\x2d",] == 1
    assert counted["��",] == 2
    assert {"\\x1b[2J", 'a"b\\\\c\\x0ad', "Grün\\u202e"} <= {k[0] for k in counted}
    assert len(family.points) == len(counted)


def test_a_ledger_that_is_begun_anew_is_added(samples):
    """Where the engine is another one its numbers are less than before: counters go on."""
    metrics = Metrics()
    first = Metered(samples / "apache-2.8.pcap.zst", metrics).run()
    again = Metered(samples / "apache-2.8.pcap.zst", metrics).run()
    family = again.families()["kafkatap_captured_packets_total"]
    assert family.points[0].value == 2 * first.monitor.engine.packets > 0


def admit(kept: Labels, **weights: float) -> tuple[list[str], int]:
    slots, freed = kept.admit(list(weights), np.array(list(weights.values()), float))
    return [kept.texts[i] for i in slots.tolist()], freed


def test_the_busiest_get_the_free_slots():
    kept = Labels(2)
    assert admit(kept, a=1, b=5, c=3) == ([OTHER, "b", "c"], 0)
    assert admit(kept, a=100) == ([OTHER], 0)


def test_a_slot_is_kept_for_its_time_then_goes_to_who_outgrew_it():
    kept = Labels(1)
    admit(kept, old=1)
    for _ in range(label_slots.STAY - 1):
        assert admit(kept, new=1) == ([OTHER], 0)
    assert admit(kept, new=1) == ([OTHER], 1)
    assert kept.texts == [OTHER, "new"]
    assert admit(kept, new=1, old=1) == (["new", OTHER], 0)


def test_a_busy_name_keeps_its_slot_from_those_little_busier():
    kept = Labels(1)
    admit(kept, old=2)
    for _ in range(3 * label_slots.STAY):
        assert admit(kept, old=2, new=3) == (["old", OTHER], 0)
    assert any(admit(kept, old=2, new=9)[1] for _ in range(60))


def test_names_that_come_once_take_no_slots():
    kept = Labels(3)
    for n in range(2 * label_slots.STAY):
        _, freed = admit(kept, **{f"once-{n}": 5})
        assert not freed


def test_what_was_counted_under_a_slot_goes_with_its_name(seen):
    """A name that takes another's slot starts at zero; all others go on."""
    metrics = Metrics(top=1)
    engine = Named([b"old", b"new"])
    metrics.end_second(0, second_of(engine, [b"old"], 0), engine)
    for _ in range(label_slots.STAY + 5):
        metrics.end_second(0, second_of(engine, [b"new"], 1), engine)
    counted = sums(requests_of(metrics, seen), "client_id")
    assert set(counted) == {("new",), (OTHER,)}
    assert counted["new",] == 5
    assert counted[OTHER,] == label_slots.STAY


def test_the_document_lists_what_there_is(families):
    """Every metric with its labels, and no other."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "live-metrics.md").read_text()
    told = {
        name: tuple(label.strip() for label in labels.split(",") if label.strip())
        for names, labels in re.findall(r"^\| (`kafkatap_[^|]*) \|([^|]*)\|", text, re.MULTILINE)
        for name in re.findall(r"`(kafkatap_\w+)`", names)
    }
    assert told == {name: f.metric.labels for name, f in families.items() if name.startswith("kafkatap_")}
