"""Record real traffic twice, once with drops, and count what is found of what the lossy capture holds.

    sudo python benchmarks/record_lossy.py FOLDER [--seconds N] [--burst MS]

A Kafka broker runs in one network namespace, and its clients in another. tcpdump with a large buffer captures the
broker's end of the cable between them (`full.pcap`). dumpcap with a buffer of 1 MiB captures the clients' end
(`lossy.pcapng`), and loses packets in bursts: the script stops it for up to --burst ms again and again, as a busy host
does. Both ends see the same packets, so the full capture shows which of them the lossy one has. The table is that of
`damage.py`. Needs root, Java, Maven, tcpdump and dumpcap.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path

from damage import HEADINGS, row_of, rows_reader, tshark_share

from tests.support.captures import Packet, read_capture
from tests.support.damage import Numbered, Numbers
from tests.support.segments import tcp_at, way_of
from tests.support.survival import WholeCapture

BROKER, CLIENT, PORT = "10.99.0.1", "10.99.0.2", 9092
SPACES = "kafkatap-broker", "kafkatap-client"


def run(*command: str) -> None:
    subprocess.run(command, check=True)


def inside(space: str, *command: str) -> list[str]:
    return ["ip", "netns", "exec", space, *command]


def make_network() -> None:
    """Two namespaces, and a cable between them."""
    for space in SPACES:
        run("ip", "netns", "add", space)
        run(*inside(space, "ip", "link", "set", "lo", "up"))
    run("ip", "link", "add", "end0", "netns", SPACES[0], "type", "veth", "peer", "name", "end1", "netns", SPACES[1])
    for space, end, address in zip(SPACES, ("end0", "end1"), (BROKER, CLIENT), strict=True):
        run(*inside(space, "ip", "address", "add", f"{address}/24", "dev", end))
        run(*inside(space, "ip", "link", "set", end, "up", "gso_max_size", "1500", "gso_max_segs", "1"))


def remove_network() -> None:
    for space in SPACES:
        subprocess.run(["ip", "netns", "delete", space], check=False)


def serve() -> None:
    """Run a broker in this namespace until the input ends."""
    from tests.support.broker import KafkaBroker, free_ports

    (controller,) = free_ports(1)
    properties = {
        "listeners": f"PLAINTEXT://0.0.0.0:{PORT},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://{BROKER}:{PORT},CONTROLLER://127.0.0.1:{controller}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "num.partitions": "6",
    }
    with tempfile.TemporaryDirectory() as logs, KafkaBroker.start(Path(logs), port=PORT, properties=properties):
        print("ready", flush=True)
        sys.stdin.read()


def work(seconds: float) -> None:
    """Produce and consume in this namespace, with several clients at once."""
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    bootstrap = f"{BROKER}:{PORT}"
    first = AdminClient({"bootstrap.servers": bootstrap})
    for topic in first.create_topics([NewTopic(f"orders-{n}", 6, 1) for n in range(2)]).values():
        topic.result(30)
    end = time.monotonic() + seconds

    def produce(number: int) -> None:
        codec = ("none", "lz4", "none", "zstd")[number % 4]
        settings = {
            "client.id": f"producer-{number}",
            "compression.type": codec,
            "linger.ms": (0, 5, 1, 20)[number % 4],
        }
        producer = Producer({"bootstrap.servers": bootstrap, "acks": -1 if number % 3 else 1, **settings})
        dice = random.Random(number)
        while time.monotonic() < end:
            for _ in range(dice.randrange(1, 40)):
                producer.produce(f"orders-{number % 2}", dice.randbytes(dice.choice((20, 200, 900, 4_000))))
            producer.poll(dice.choice((0, 0.002, 0.01)))
        producer.flush(10)

    def consume(number: int) -> None:
        settings = {"client.id": f"consumer-{number}", "group.id": f"group-{number % 2}", "fetch.wait.max.ms": 20}
        consumer = Consumer({"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest", **settings})
        consumer.subscribe(["orders-0", "orders-1"])
        while time.monotonic() < end:
            consumer.poll(0.1)
            if number % 2:
                consumer.commit(asynchronous=True)
        consumer.close()

    def manage() -> None:
        while time.monotonic() < end:
            admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": "admin"})
            for _ in range(20):
                admin.list_topics(timeout=5)
                time.sleep(0.02)

    tasks = [threading.Thread(target=produce, args=(n,)) for n in range(4)]
    tasks += [threading.Thread(target=consume, args=(n,)) for n in range(3)] + [threading.Thread(target=manage)]
    for task in tasks:
        task.start()
    for task in tasks:
        task.join()


def record(folder: Path, seconds: float, burst_ms: int) -> None:
    """Write `full.pcap` and `lossy.pcapng`."""
    program = [sys.executable, "-m", "benchmarks.record_lossy", str(folder)]
    broker = subprocess.Popen(
        inside(SPACES[0], *program, "--serve"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert broker.stdin is not None
    assert broker.stdout is not None
    captures: list[subprocess.Popen[bytes]] = []
    try:
        if broker.stdout.readline().strip() != "ready":
            raise SystemExit("the broker did not start")
        full = ["tcpdump", "-i", "end0", "-B", "524288", "-s", "0", "-n", "-w", str(folder / "full.pcap"), "tcp"]
        lossy = ["dumpcap", "-q", "-i", "end1", "-B", "1", "-f", "tcp", "-w", str(folder / "lossy.pcapng")]
        captures = [subprocess.Popen(inside(space, *words)) for space, words in zip(SPACES, (full, lossy), strict=True)]
        time.sleep(2)
        clients = subprocess.Popen(inside(SPACES[1], *program, "--work", "--seconds", str(seconds)))
        dice = random.Random(1)
        while clients.poll() is None:
            time.sleep(dice.uniform(0.1, 1.0))
            captures[1].send_signal(signal.SIGSTOP)
            time.sleep(dice.uniform(0, burst_ms / 1000))
            captures[1].send_signal(signal.SIGCONT)
        time.sleep(2)
    finally:
        for capture in captures:
            capture.send_signal(signal.SIGINT)
        for capture in captures:
            capture.wait(30)
        broker.stdin.close()
        broker.wait(60)


def numbered_by(full: list[Packet], lossy: list[Packet], link_type: int = 1) -> Numbers:
    """The packets of the lossy capture with their numbers in the full one: equal IP packets, in the same order."""

    def identity(packet: Packet) -> bytes:
        return packet.data[14:54] + len(packet.data).to_bytes(4, "big")

    places: dict[bytes, list[int]] = defaultdict(list)
    for number, packet in enumerate(full, 1):
        places[identity(packet)].append(number)
    taken: Counter[bytes] = Counter()
    found: Numbers = []
    for packet in lossy:
        key = identity(packet)
        if way_of(packet, link_type) is None or taken[key] >= len(places[key]):
            raise SystemExit(f"a packet of the lossy capture is not in the full one: {tcp_at(packet, link_type)}")
        found.append(Numbered(places[key][taken[key]], packet))
        taken[key] += 1
    return found


def causes(whole: WholeCapture, damaged: Numbers, missed: list) -> Counter[str]:  # type: ignore[type-arg]
    """What the exchanges have in common that were not found."""
    captured = {number: 1 << 30 for number, _ in damaged}
    found: Counter[str] = Counter()
    for exchange in missed:
        parts = [("request", exchange.request), ("response", exchange.response)]
        lost = [name for name, part in parts if part is not None and not part.has(captured, -1)]
        found[f"{' and '.join(lost) or 'nothing'} incomplete"] += 1
    return found


def measure(folder: Path) -> None:
    """Print what is found in the lossy capture."""
    full, lossy = read_capture(folder / "full.pcap"), read_capture(folder / "lossy.pcapng")
    damaged = numbered_by(full.packets, lossy.packets)
    gone = len(full.packets) - len(damaged)
    print(
        f"{len(full.packets):,} packets, {gone:,} of them lost ({100 * gone / len(full.packets):.2f} %); "
        f"dumpcap counted {lossy.drops:,}\n"
    )
    with tempfile.TemporaryDirectory() as temporary:
        whole = WholeCapture(full.packets, rows_reader(Path(temporary)))
        outcome = whole.compare(damaged)
        share = tshark_share(Path(temporary) / "damaged.pcap", damaged, outcome)
    print(HEADINGS)
    print(row_of("a real lossy capture", outcome, share))
    for cause, count in causes(whole, damaged, outcome.missed).most_common():
        print(f"not found: {count:,} with {cause}")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--burst", type=int, default=300, metavar="MS")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--measure", action="store_true", help="measure the captures that are in FOLDER already")
    options = parser.parse_args(arguments)
    if options.serve:
        serve()
    elif options.work:
        work(options.seconds)
    else:
        if not options.measure:
            options.folder.mkdir(parents=True, exist_ok=True)
            try:
                make_network()
                record(options.folder, options.seconds, options.burst)
            finally:
                remove_network()
        measure(options.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
