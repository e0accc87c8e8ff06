"""What a service says of the seconds that it could not see."""

from __future__ import annotations

from kafkatap.engine.engine import Engine
from kafkatap.live.blind_seconds import CALM_NS, BlindSeconds
from kafkatap.live.governor import HEADERS, PAUSED
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.units import SECOND

START = 1_700_000_000 * SECOND


def test_each_time_with_drops_is_one_line() -> None:
    dropped, level, lines = 5, HEADERS, []
    counts, engine = ReportCounts(), Engine()
    blind = BlindSeconds(
        lambda text, **fields: lines.append((text, fields)), lambda: dropped, lambda: level, utc=True
    )  # fmt: skip
    for second in range(200):
        if 10 <= second < 15 or second == 20:  # one time: it is not calm for long enough in between
            dropped += 100
        level = PAUSED if 95 <= second < 105 else HEADERS
        if second == 100:
            dropped += 7
        if second == 198:
            dropped += 1
        blind.end_second(START + second * SECOND, counts, engine)
        assert len(lines) == (0 if second < 20 + CALM_NS // SECOND else 1 if second < 100 + CALM_NS // SECOND else 2)
    blind.close(engine)
    assert [text for text, _ in lines] == [
        "22:13:29 to 22:13:40: 600 packets dropped; counts and events of this time lack them",
        "22:14:59 to 22:15:00: 7 packets dropped, to keep to --max-cpu; counts and events of this time lack them",
        "22:16:37 to 22:16:38: 1 packet dropped; counts and events of this time lack them",
    ]
    assert [(fields["kind"], fields["packets"], fields["is_paused"]) for _, fields in lines] == [
        ("dropped", 600, False), ("dropped", 7, True), ("dropped", 1, False)
    ]  # fmt: skip
    assert lines[0][1]["begin"].startswith("2023-11-14T22:13:29.")
    blind.close(engine)
    assert len(lines) == 3
