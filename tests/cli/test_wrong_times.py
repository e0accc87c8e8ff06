"""One packet with a wrong time costs no memory and no time: nothing is dense over a span that a capture chooses."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafkatap.__main__ import main
from tests.support.captures import Interface, pcapng_bytes, read_capture
from tests.support.peak_memory import peak

SAMPLE = Path(__file__).parents[2] / "samples" / "live-4.4.pcap.zst"
DAY_NS = 86_400 * 10**9
_ROOM = 2 << 30


@pytest.fixture
def bounded() -> Iterator[None]:
    """At most 2 GiB more address space, and two minutes."""
    usual = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + _ROOM, usual[1]))
    signal.alarm(120)
    try:
        yield
    finally:
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_AS, usual)


@pytest.fixture(params=["1970", "2554", "a day late"])
def wrong(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A capture of which one packet in the middle and the last one have a wrong time."""
    capture = read_capture(SAMPLE)
    packets = capture.packets
    for at in (len(packets) // 2, -1):
        late = {"1970": 10**9, "2554": 18_446_744_073 * 10**9, "a day late": packets[at].time_ns + DAY_NS}
        packets[at] = replace(packets[at], time_ns=late[request.param])
    path = tmp_path / "wrong.pcapng"
    path.write_bytes(pcapng_bytes(packets, [Interface(capture.link_types[0], 9)]))
    return path


def test_no_rates_are_compared_if_one_packet_is_a_day_late(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture = read_capture(SAMPLE)
    capture.packets[-1] = replace(capture.packets[-1], time_ns=capture.packets[-1].time_ns + DAY_NS)
    path = tmp_path / "late.pcapng"
    path.write_bytes(pcapng_bytes(capture.packets, [Interface(capture.link_types[0], 9)]))
    assert main(["compare", str(path), str(SAMPLE)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "which a packet with a wrong time may cause. Not compared: rates." in out
    assert "Nothing has changed" in out


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize(
    "command",
    [
        "report CAPTURE --sections all --html FOLDER/page.html --csv FOLDER/csv --parquet FOLDER/parquet",
        "report CAPTURE --plots FOLDER/plots --by client --interval 1s --jobs 2 --json",
        "report CAPTURE --interval 100ms",
        "compare CAPTURE SAMPLE --html FOLDER/page.html",
        "compare SAMPLE CAPTURE --json",
        "compare CAPTURE --split +1s",
        "doctor CAPTURE",
        "show CAPTURE",
        "records CAPTURE",
        "extract CAPTURE -f error -o FOLDER/copy.pcapng",
        "upgrade-check CAPTURE",
    ],
)
def test_a_packet_with_a_wrong_time_costs_little(command: str, wrong: Path, tmp_path: Path) -> None:
    words = {"CAPTURE": str(wrong), "SAMPLE": str(SAMPLE)}
    assert main([words.get(word, word.replace("FOLDER", str(tmp_path))) for word in command.split()]) in (0, 1, 3)


def test_an_anonymized_copy_costs_little(wrong: Path, tmp_path: Path) -> None:
    """Resident memory: it reserves gigabytes of address space for any capture, and uses 110 MiB of them."""
    assert peak("extract", wrong, "--anonymize", "-o", tmp_path / "copy.pcapng") < 500
