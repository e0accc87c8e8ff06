"""Brokers that are selected bound what is exposed; `--local-brokers-only` selects those at this host's addresses."""

from __future__ import annotations

import re
import socket
import subprocess
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from kafkatap.engine.selection import EVERYTHING, Selection
from kafkatap.live.capture.interfaces import addresses
from kafkatap.live.export.prometheus_server import serve
from tests.support.tcp import START_NS, Segment, encode, merge
from tests.wire.kafkatalk import API_VERSIONS, KafkaTalk, small_talk

from . import network
from .running import Live, wait_for
from .test_broker_health import asking, refused
from .watched import Seen, ticking

needs_interfaces = pytest.mark.skipif(bool(network.missing(admin=True)), reason=network.missing(admin=True))
#: APIs whose requests and responses without any element are valid in this version.
APIS = {
    0: 3, 1: 4, 2: 1, 3: 4, 8: 2, 9: 1, 10: 1, 11: 2, 12: 1, 13: 1, 14: 1, 15: 1, 16: 1, 18: 0, 19: 2, 20: 1, 22: 1,
    23: 2, 25: 1, 32: 1,
}  # fmt: skip
BROKER = re.compile(r'broker="([^"]*)"')


def brokers_in(text: str) -> set[str]:
    return set(BROKER.findall(text))


def cluster() -> list[Segment]:
    """100 brokers, each asked 20 APIs; one more does not listen, and one does not answer connections."""
    talks = []
    for number in range(100):
        talk = KafkaTalk(client=("10.9.9.9", 20_000 + number), broker=(f"10.0.3.{number}", 9092))
        talk.tcp.open()
        talk.exchange(API_VERSIONS, 0, 0)
        for count, (api, version) in enumerate(APIS.items(), 1):
            talk.exchange(api, version, count)
        talks.append(talk.segments)
    return merge(*talks, refused("10.9.9.9", START_NS), asking("10.9.9.8", START_NS), ticking(4))


def scraped(watched: Seen) -> str:
    """What a scrape of the metrics returns."""
    for _ in watched.seconds():
        pass
    server = serve(watched.metrics, watched.monitor, ("127.0.0.1", 0))
    try:
        with urlopen(f"http://127.0.0.1:{server.address[1]}/metrics", timeout=60) as answer:
            text: str = answer.read().decode()
            return text
    finally:
        server.close()


def test_a_selection_of_brokers_bounds_a_scrape(tmp_path: Path) -> None:
    segments = cluster()
    texts = {}
    for name, selection in (
        ("all", EVERYTHING),
        ("one", Selection.of(brokers=["10.0.3.7"])),
        ("one of them", Selection.of(brokers=[":9092"]).at_brokers(["10.0.3.7", "10.0.3.8"])),
        ("none", EVERYTHING.at_brokers([])),
    ):
        texts[name] = scraped(Seen(tmp_path / "x.pcap", segments, selection))
    lines = {name: len(text.splitlines()) for name, text in texts.items()}
    print(lines)
    assert lines["all"] > 80_000
    assert lines["one"] < 1_200
    assert lines["none"] < 300
    assert len(brokers_in(texts["all"])) == 101
    assert brokers_in(texts["one"]) == {"10.0.3.7:9092"}
    assert brokers_in(texts["one of them"]) == {"10.0.3.7:9092", "10.0.3.8:9092"}
    assert brokers_in(texts["none"]) == set()


@needs_interfaces
def test_the_addresses_are_those_of_the_system() -> None:
    shown = subprocess.run(["ip", "-o", "addr"], capture_output=True, text=True, check=True, timeout=30).stdout
    assert addresses() == set(re.findall(r" inet6? ([^ /]+)", shown))


@needs_interfaces
def test_only_brokers_of_this_host_count_and_those_of_later_addresses() -> None:
    mine, other = "198.51.100.7", "198.51.100.8"
    port = free_port()
    arguments = ["--plain", "--interval", "1s", "--local-brokers-only", "--prometheus", f":{port}"]
    with network.veth_pair() as veth, network.Wire(veth.near) as wire:
        network.ip("addr", "add", f"{mine}/32", "dev", veth.near)
        with Live("-i", veth.far, *arguments) as live:
            live.wait_ready()

            def seen() -> set[str]:
                try:
                    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
                        return brokers_in(answer.read().decode())
                except URLError:  # it begins to capture before it serves
                    return set()

            client = 40_000

            def talk_to(*brokers: str) -> None:
                nonlocal client
                client += 1
                for broker in brokers:
                    talk = small_talk(3, client=("198.51.100.99", client), broker=(broker, 9092))
                    wire.send([packet.data for packet in encode(talk.segments)])

            talk_to(other)
            talk_to(mine)
            wait_for(lambda: seen() == {f"{mine}:9092"}, 15, lambda: f"{seen()} {live.out()}")
            network.ip("addr", "add", f"{other}/32", "dev", veth.near)

            def is_seen_later() -> bool:
                talk_to(other)
                return seen() == {f"{mine}:9092", f"{other}:9092"}

            wait_for(is_seen_later, 15, lambda: f"{seen()} {live.out()}")
            done = live.end()
    assert "--local-brokers-only" in done.out


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
