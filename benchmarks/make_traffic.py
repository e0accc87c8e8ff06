"""Write captures of busy or hostile traffic: many connections, huge frames, gaps that no packet fills.

    python benchmarks/make_traffic.py connections OUT.pcap --count 1000000 --hosts 8 --clients low --fin
    python benchmarks/make_traffic.py syns OUT.pcap --count 1000000
    python benchmarks/make_traffic.py produce OUT.pcap --megabytes 50 --interleaved 6
    python benchmarks/make_traffic.py gaps OUT.pcap --count 10000 --kilobytes 60
    python benchmarks/make_traffic.py steady OUT.pcap --count 1000 --requests 300 [--records 100] [--heavy 1000000]
    python benchmarks/make_traffic.py pending OUT.pcap --count 1000000
    python benchmarks/make_traffic.py clients OUT.pcap --count 1000000
    python benchmarks/make_traffic.py topics OUT.pcap --count 1000000
    python benchmarks/make_traffic.py unfinished OUT.pcap --count 1000000
    python benchmarks/make_traffic.py fleet OUT.pcap --count 2000 --brokers 3 --requests 100 [--bursts 4] [--seed 2]

`connections`: each connection has one Metadata request (v0) and its response, and ends with --fin. Ports are
sequential, as behind a NAT or on a Kubernetes node. --clients chooses addresses lower or higher than the broker's.
--requests is the number of requests on each connection.

`steady`: all connections are open from the first packet to the last. They send Produce requests of 1,400 bytes in turn.
With --heavy, the first connection sends requests of that many bytes.

`pending`: the requests of one connection, none of which is answered. `clients`, `topics`: each request of one
connection has a client_id, or a topic, of its own. `unfinished`: each connection has a response that begins but does
not end. `fleet`: each client has a client_id of its own and a connection to each broker. With --bursts,
one of so many parts of the clients is active at a time. With another --seed, other clients are slow.
"""

from __future__ import annotations

import argparse
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

START_NS = 1_704_067_200_000_000_000
FIN, SYN, PSH, ACK = 1, 2, 8, 16
ETHERNET_HEADER = bytes(12) + b"\x08\x00"
BROKER_PORT = 9092
KINDS = ("connections", "syns", "produce", "gaps", "steady", "pending", "clients", "topics", "unfinished", "fleet")
#: Connections written at once.
BATCH = 50_000


def packet(payload: bytes, flags: int) -> bytes:
    """One pcap record of an Ethernet frame, as a template without addresses, ports, numbers and time."""
    ip = struct.pack(">BBHHHBBH8x", 0x45, 0, 40 + len(payload), 0, 0x4000, 64, 6, 0)
    tcp = struct.pack(">12xBBHHH", 0x50, flags, 0xFFFF, 0, 0)
    frame = ETHERNET_HEADER + ip + tcp + payload
    return struct.pack("<8xII", len(frame), len(frame)) + frame


def _put(rows: np.ndarray, at: int, values: np.ndarray | int, kind: str) -> None:
    """Write one number into each row of bytes."""
    size = np.dtype(kind).itemsize
    rows[:, at : at + size] = (
        np.broadcast_to(np.asarray(values), len(rows)).astype(kind).view(np.uint8).reshape(-1, size)
    )


def address(text: str) -> int:
    return int.from_bytes(socket.inet_aton(text), "big")


def metadata_request(correlation_id: int = 1, client_id: bytes = b"app") -> bytes:
    body = struct.pack(">hhih", 3, 0, correlation_id, len(client_id)) + client_id + struct.pack(">i", 0)
    return struct.pack(">i", len(body)) + body


def metadata_response(correlation_id: int = 1) -> bytes:
    body = struct.pack(">iiiHsii", correlation_id, 1, 1, 1, b"b", BROKER_PORT, 0)
    return struct.pack(">i", len(body)) + body


class Writer:
    """Writes a pcap with times in ns, batch by batch."""

    def __init__(self, file: BinaryIO, step_ns: int) -> None:
        self.file = file
        self.step_ns = step_ns
        self.now = START_NS
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, 1))

    def write(self, rows: list[tuple[bytes, np.ndarray]], numbers: np.ndarray | None = None, digits: int = 0) -> None:
        """Write the packets of one connection after another. `rows`: a template, and columns (n, 7) of source and
        destination addresses and ports, sequence and acknowledgement numbers. `numbers`: int64 (n,), of which six
        digits are written into each packet, from byte `digits` of the template on."""
        count = len(rows[0][1])
        sizes = [len(template) for template, _ in rows]
        out = np.zeros((count, sum(sizes)), np.uint8)
        at = 0
        for place, (template, columns) in enumerate(rows):
            part = out[:, at : at + len(template)]
            part[:] = np.frombuffer(template, np.uint8)
            times = self.now + (np.arange(count, dtype=np.int64) * len(rows) + place) * self.step_ns
            _put(part, 0, times // 1_000_000_000, "<u4")
            _put(part, 4, times % 1_000_000_000, "<u4")
            ip = 16 + len(ETHERNET_HEADER)
            for offset, column, kind in (
                (12, 0, ">u4"), (16, 1, ">u4"), (20, 2, ">u2"), (22, 3, ">u2"), (24, 4, ">u4"), (28, 5, ">u4"),
            ):  # fmt: skip
                _put(part, ip + offset, columns[:, column], kind)
            if numbers is not None:
                for digit in range(6):
                    part[:, digits + digit] = 48 + numbers // 10 ** (5 - digit) % 10
            at += len(template)
        self.now += count * len(rows) * self.step_ns
        self.file.write(out.tobytes())


def _columns(clients: np.ndarray, ports: np.ndarray, broker: int, seq: int, ack: int, from_client: bool) -> np.ndarray:
    ends = np.stack([clients, np.full_like(clients, broker), ports, np.full_like(ports, BROKER_PORT)], axis=1)
    if not from_client:
        ends = ends[:, [1, 0, 3, 2]]
    numbers = np.broadcast_to(np.array([seq, ack], np.int64), (len(clients), 2))
    return np.concatenate([ends, numbers], axis=1)


def _ends(first: int, count: int, hosts: int, low: bool) -> tuple[np.ndarray, np.ndarray, int]:
    """Addresses and ports of connections first..first + count, of `hosts` in turn; and the broker's address."""
    numbers = np.arange(first, first + count, dtype=np.int64)
    clients = address("10.0.0.1" if low else "10.0.2.1") + numbers % hosts
    return clients, 1024 + numbers // hosts % 64_000, address("10.0.1.1")


def connections(writer: Writer, count: int, hosts: int, low: bool, requests: int, fin: bool) -> None:
    request, response = metadata_request(), metadata_response()
    first = 0
    while first < count:
        batch = min(BATCH, count - first)
        clients, ports, broker = _ends(first, batch, hosts, low)
        talk: list[tuple[bytes, int, int, int, bool]] = [
            (b"", SYN, 1000, 0, True), (b"", SYN | ACK, 5000, 1001, False), (b"", ACK, 1001, 5001, True),
        ]  # fmt: skip
        sent, got = 1001, 5001
        for number in range(requests):
            talk.append((metadata_request(number + 1), PSH | ACK, sent, got, True))
            sent += len(request)
            talk.append((metadata_response(number + 1), PSH | ACK, got, sent, False))
            got += len(response)
        if fin:
            talk += [(b"", FIN | ACK, sent, got, True), (b"", FIN | ACK, got, sent + 1, False)]
            talk.append((b"", ACK, sent + 1, got + 1, True))
        writer.write(
            [(packet(p, flags), _columns(clients, ports, broker, seq, ack, to)) for p, flags, seq, ack, to in talk]
        )
        first += batch


def syns(writer: Writer, count: int, hosts: int) -> None:
    for first in range(0, count, BATCH):
        clients, ports, broker = _ends(first, min(BATCH, count - first), hosts, True)
        writer.write([(packet(b"", SYN), _columns(clients, ports, broker, 1000, 0, True))])


def _slices(data: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


def produce_request(size: int, correlation_id: int = 1) -> bytes:
    """A Produce request (v3) of about `size` bytes: one partition, one record batch of random bytes, not compressed."""
    records = np.random.default_rng(1).integers(0, 256, size, np.uint8).tobytes()
    value = struct.pack(">qiibihiqqqhii", 0, 49 + len(records), 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1) + records
    body = struct.pack(">hhih3s", 0, 3, correlation_id, 3, b"big") + struct.pack(">hhii", -1, 1, 1000, 1)
    body += struct.pack(">h1sii", 1, b"t", 1, 0) + struct.pack(">i", len(value)) + value
    return struct.pack(">i", len(body)) + body


def produce_response(correlation_id: int = 1) -> bytes:
    body = struct.pack(">ii", correlation_id, 1) + struct.pack(">h1siihqqi", 1, b"t", 1, 0, 0, 0, -1, 0)
    return struct.pack(">i", len(body)) + body


def produce(writer: Writer, megabytes: int, interleaved: int, segment: int) -> None:
    """Write `interleaved` connections with one Produce request each, a segment of each in turn, then the responses."""
    request = produce_request(megabytes * 1_000_000)
    response = produce_response()
    clients, ports, broker = _ends(0, interleaved, 1, True)
    for flags, seq, ack, to in ((SYN, 1000, 0, True), (SYN | ACK, 5000, 1001, False), (ACK, 1001, 5001, True)):
        writer.write([(packet(b"", flags), _columns(clients, ports, broker, seq, ack, to))])
    sent = 1001
    for part in _slices(request, segment):
        writer.write([(packet(part, PSH | ACK), _columns(clients, ports, broker, sent, 5001, True))])
        sent = (sent + len(part)) % 2**32
    writer.write([(packet(response, PSH | ACK), _columns(clients, ports, broker, 5001, sent, False))])


def steady(
    writer: Writer, count: int, hosts: int, requests: int, usual: int, heavy: int, segment: int, first: int
) -> None:
    """Write `count` connections, numbered from `first` on, that exchange `requests` messages each, in turn. A request
    has records of `usual` bytes, those of the first connection of `heavy` bytes."""
    clients, ports, broker = _ends(first, count, hosts, True)
    for flags, seq, ack, to in ((SYN, 1000, 0, True), (SYN | ACK, 5000, 1001, False), (ACK, 1001, 5001, True)):
        writer.write([(packet(b"", flags), _columns(clients, ports, broker, seq, ack, to))])
    groups = [(clients[:1], ports[:1], heavy), (clients[1:], ports[1:], usual)] if heavy else [(clients, ports, usual)]
    sent, got = [1001] * len(groups), 5001
    for number in range(1, requests + 1):
        response = produce_response(number)
        for group, (hosts_of, ports_of, size) in enumerate(groups):
            talk = []
            for part in _slices(produce_request(size, number), segment):
                talk.append((packet(part, PSH | ACK), _columns(hosts_of, ports_of, broker, sent[group], got, True)))
                sent[group] = (sent[group] + len(part)) % 2**32
            talk.append((packet(response, PSH | ACK), _columns(hosts_of, ports_of, broker, got, sent[group], False)))
            writer.write(talk)
        got += len(response)


def small_produce(number: int, client_id: bytes, topic: bytes) -> tuple[bytes, bytes]:
    """A Produce request (v3) without records, and its response."""
    body = struct.pack(">hhih", 0, 3, number, len(client_id)) + client_id + struct.pack(">hhii", -1, 1, 1000, 1)
    body += struct.pack(">h", len(topic)) + topic + struct.pack(">iii", 1, 0, -1)
    answer = struct.pack(">iih", number, 1, len(topic)) + topic + struct.pack(">iihqqi", 1, 0, 0, 0, -1, 0)
    return tuple(struct.pack(">i", len(each)) + each for each in (body, answer))  # type: ignore[return-value]


def names(writer: Writer, count: int, kind: str) -> None:
    """Write `count` requests of one connection with their own names, and responses unless they are pending."""
    clients, ports, broker = _ends(0, 1, 1, True)
    for flags, seq, ack, to in ((SYN, 1000, 0, True), (SYN | ACK, 5000, 1001, False), (ACK, 1001, 5001, True)):
        writer.write([(packet(b"", flags), _columns(clients, ports, broker, seq, ack, to))])
    sent, got = 1001, 5001
    for number in range(1, count + 1):
        name = b"name-%d-%x" % (number, number * 2_654_435_761 % 2**32)
        asked, answer = small_produce(number, *((name, b"t") if kind == "clients" else (b"app", name)))
        if kind == "pending":
            asked, answer = metadata_request(number), b""
        talk = [(packet(asked, PSH | ACK), _columns(clients, ports, broker, sent, got, True))]
        sent = (sent + len(asked)) % 2**32
        if answer:
            talk.append((packet(answer, PSH | ACK), _columns(clients, ports, broker, got, sent, False)))
            got = (got + len(answer)) % 2**32
        writer.write(talk)


def fleet_exchange(number: int, client_id: bytes) -> tuple[bytes, bytes]:
    """One exchange of a client of a fleet: Produce, Metadata, Heartbeat and FindCoordinator in turn."""
    head = struct.pack(">ih", number, len(client_id)) + client_id
    if number % 4 == 1:
        return small_produce(number, client_id, b"orders-%d" % (number // 4 % 8))
    if number % 4 == 2:
        return metadata_request(number, client_id), metadata_response(number)
    if number % 4 == 3:
        asked, answer = struct.pack(">hh", 12, 0) + head + struct.pack(">h1sih1s", 1, b"g", 1, 1, b"m"), b"\0\0"
    else:
        asked = struct.pack(">hh", 10, 0) + head + struct.pack(">h1s", 1, b"g")
        answer = struct.pack(">hih1si", 0, 1, 1, b"b", BROKER_PORT)
    return tuple(struct.pack(">i", len(each)) + each for each in (asked, struct.pack(">i", number) + answer))  # type: ignore[return-value]


def fleet(writer: Writer, count: int, brokers: int, requests: int, bursts: int, seed: int) -> None:
    """Write `count` clients with a connection to each broker, open all the time. A connection exchanges `requests`
    messages, and the responses come in random order, those of some clients later. `bursts`: so many parts of the
    clients are active in turn, ten messages long. `seed`: which clients are slow."""
    numbers = np.arange(count * brokers) // brokers
    ends = np.zeros((len(numbers), 4), np.int64)
    ends[:, 0], ends[:, 2] = address("10.0.2.1") + numbers % 250, 1024 + np.arange(len(numbers)) % 64_000
    ends[:, 1], ends[:, 3] = address("10.0.1.1") + np.arange(len(numbers)) % brokers, BROKER_PORT

    def columns(chosen: np.ndarray, seq: int, ack: int, from_client: bool = True) -> np.ndarray:
        of = ends[chosen] if from_client else ends[chosen][:, [1, 0, 3, 2]]
        return np.concatenate([of, np.broadcast_to(np.array([seq, ack], np.int64), (len(of), 2))], axis=1)

    for flags, seq, ack, to in ((SYN, 1000, 0, True), (SYN | ACK, 5000, 1001, False), (ACK, 1001, 5001, True)):
        writer.write([(packet(b"", flags), columns(np.arange(len(numbers)), seq, ack, to))])
    random = np.random.default_rng(seed)
    slowness = random.random(count)[numbers]
    places = [[1001, 5001] for _ in range(bursts)]
    for step in range(requests // 10 * bursts):
        active = np.flatnonzero(numbers % bursts == step % bursts)
        place = places[step % bursts]
        for number in range(step // bursts * 10 + 1, step // bursts * 10 + 11):
            asked, answer = fleet_exchange(number, b"client-000000")
            digits = len(packet(b"", 0)) + asked.index(b"000000")
            writer.write([(packet(asked, PSH | ACK), columns(active, place[0], place[1]))], numbers[active], digits)
            place[0] += len(asked)
            order = active[np.argsort(slowness[active] + random.random(len(active)))]
            writer.write([(packet(answer, PSH | ACK), columns(order, place[1], place[0], False))])
            place[1] += len(answer)


def unfinished(writer: Writer, count: int, hosts: int) -> None:
    """Write connections with a response of a megabyte, of which only the start is there."""
    request, response = metadata_request(), struct.pack(">iiiHs", 1_000_000, 1, 1, 1, b"b") + bytes(1_000)
    for first in range(0, count, BATCH):
        clients, ports, broker = _ends(first, min(BATCH, count - first), hosts, True)
        talk: list[tuple[bytes, int, int, int, bool]] = [
            (b"", SYN, 1000, 0, True), (b"", SYN | ACK, 5000, 1001, False), (b"", ACK, 1001, 5001, True),
            (request, PSH | ACK, 1001, 5001, True), (response, PSH | ACK, 5001, 1001 + len(request), False),
        ]  # fmt: skip
        writer.write(
            [(packet(p, flags), _columns(clients, ports, broker, seq, ack, to)) for p, flags, seq, ack, to in talk]
        )


def gaps(writer: Writer, count: int, kilobytes: int) -> None:
    """Write connections without the first segment behind the handshake, and without acknowledgements."""
    clients, ports, broker = _ends(0, count, 1, True)
    talk = [(b"", SYN, 1000, 0, True), (b"", SYN | ACK, 5000, 1001, False), (b"", ACK, 1001, 5001, True)]
    writer.write(
        [(packet(p, flags), _columns(clients, ports, broker, seq, ack, to)) for p, flags, seq, ack, to in talk]
    )
    data = np.random.default_rng(1).integers(0, 256, kilobytes * 1000, np.uint8).tobytes()
    sent = 1001 + 1448
    for part in _slices(data, 1448):
        writer.write([(packet(part, ACK), _columns(clients, ports, broker, sent, 5001, True))])
        sent += len(part)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--clients", choices=("low", "high"), default="low")
    parser.add_argument("--requests", type=int, default=1)
    parser.add_argument("--fin", action="store_true")
    parser.add_argument("--megabytes", type=int, default=10)
    parser.add_argument("--interleaved", type=int, default=1)
    parser.add_argument("--records", type=int, default=1_300, help="steady: bytes of the records of a request")
    parser.add_argument("--first", type=int, default=0, help="steady: number of the first connection")
    parser.add_argument("--heavy", type=int, default=0, help="steady: bytes of a request of the first connection")
    parser.add_argument("--brokers", type=int, default=1, help="fleet: brokers to which each client has a connection")
    parser.add_argument("--bursts", type=int, default=1, help="fleet: parts of the clients that are active in turn")
    parser.add_argument("--seed", type=int, default=1, help="fleet: which clients are slow")
    parser.add_argument("--kilobytes", type=int, default=60)
    parser.add_argument("--segment", type=int, default=1448)
    parser.add_argument("--step-ns", type=int, default=10_000, help="time between two packets")
    asked = parser.parse_args()
    with open(asked.out, "wb") as file:
        writer = Writer(file, asked.step_ns)
        if asked.kind == "connections":
            connections(writer, asked.count, asked.hosts, asked.clients == "low", asked.requests, asked.fin)
        elif asked.kind == "syns":
            syns(writer, asked.count, asked.hosts)
        elif asked.kind == "steady":
            steady(
                writer, asked.count, asked.hosts, asked.requests, asked.records, asked.heavy, asked.segment, asked.first
            )
        elif asked.kind in ("pending", "clients", "topics"):
            names(writer, asked.count, asked.kind)
        elif asked.kind == "unfinished":
            unfinished(writer, asked.count, asked.hosts)
        elif asked.kind == "produce":
            produce(writer, asked.megabytes, asked.interleaved, asked.segment)
        elif asked.kind == "fleet":
            fleet(writer, asked.count, asked.brokers, asked.requests, asked.bursts, asked.seed)
        else:
            gaps(writer, asked.count, asked.kilobytes)


if __name__ == "__main__":
    main()
