"""Cut the small samples of this folder out of long recordings of real Apache Kafka clusters.

    python samples/make_cuts.py RECORDINGS [FOLDER]

RECORDINGS holds the recordings and a truth file beside each: every request and response as Kafka's own parsers read it.
A sample keeps selected connections, some only within a time window. Packets keep their bytes, times and order.
`NAME.exchanges.tsv` keeps the truth's rows of these connections, without messages outside the window. A broker's log of
requests beside a recording becomes `NAME.request.log.zst`: its lines of these connections without the bodies of
messages, and each fiftieth line of the others. Every run writes the same bytes for the same recordings.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.support.captures import PcapRecords, read_bytes, write_capture  # noqa: E402

END_OF_TIME = 2**62


@dataclass(frozen=True, slots=True)
class Cut:
    """One sample. `connections`: complete ones, as "client port>broker port". `windows`: of others, only these seconds
    after the recording's start."""

    source: str
    truth: str
    sample: str
    connections: str
    windows: dict[str, tuple[float, float]] = field(default_factory=dict)

    def window(self, connection: str, start_us: int) -> tuple[int, int] | None:
        """The first µs to keep of a connection and the first µs after them; None where nothing is kept."""
        if connection in self.windows:
            first, last = self.windows[connection]
            return start_us + int(first * 1e6), start_us + int(last * 1e6)
        return (0, END_OF_TIME) if connection in self.connections.split() else None


CUTS = (
    Cut(
        "apache-4.3-broker1.pcap.zst",
        "apache-4.3-broker1.exchanges.tsv.zst",
        "apache-4.3.pcap.zst",
        # librdkafka: producers with several codecs, acks=0, transactions, group members, a monitor, forbidden topics
        "54914>9092 54952>9092 54954>9092 54992>9092 55020>9092 48310>9092 58898>9092 58934>9092 59092>9092 "
        "54946>9092 54974>9092 48326>9092 58912>9092 59108>9092 59100>9092 50316>9092 58872>9092 58940>9092 "
        # the Java client: SASL PLAIN and SCRAM, wrong passwords, re-authentication, a producer, admin calls
        "39862>9094 39880>9094 39896>9094 39910>9094 39980>9094 48418>9094 48426>9094 48430>9094 39938>9094 50484>9092 "
        "50492>9092 33938>9092 33988>9092 34074>9092 34088>9092 34102>9092 34116>9092 58896>9092 48468>9092 58924>9092 "
        # kafka-python, aiokafka, kafkajs, @platformatic/kafka
        "50326>9092 50348>9092 50458>9092 50466>9092 50600>9092 50518>9092 50668>9092 50742>9092 50758>9092 34130>9092 "
        "34180>9092 45716>9092 45730>9092 45790>9092 "
        # brokers: registration, Raft (a connection that began earlier), transaction markers, share-group state
        "49146>9095 49126>9095 59080>9095 55640>9092 33820>9092 56816>9095 "
        # TLS
        "34958>9093 34972>9093 48764>9096 48772>9096",
        # throttled clients beyond their quotas: these three begin in mid-connection
        {"54904>9092": (14.88, 17.0), "55028>9092": (27.3, 28.92), "55052>9092": (15.44, 25.43)},
    ),
    Cut(
        "apache-4.3-broker3.pcapng.zst",
        "apache-4.3-broker3.client-exchanges.tsv.zst",
        "apache-4.3-two-interfaces.pcapng",
        "48722>9092 48862>9092 43812>9094 43850>9094 48036>9092 48042>9092 48054>9092 40430>9092 34938>9092 37558>9092",
    ),
    Cut(
        "apache-2.8.pcap.zst",
        "apache-2.8.exchanges.tsv.zst",
        "apache-2.8.pcap.zst",
        "36138>28101 54464>28102 54470>28102 36150>28101 36176>28101 54506>28102 36208>28101 51216>28101 37342>28102 "
        "37348>28102 37352>28102 37356>28102 37368>28102 37370>28102 51284>28101 51312>28101 51318>28101 37390>28102 "
        "37406>28102 59886>28102 38834>28102 56562>28101 38868>28102 56582>28101 38936>28102 56602>28101 41356>28101",
    ),
    Cut(
        "apache-0.10.2.pcap.zst",
        "apache-0.10.2.exchanges.tsv.zst",
        "apache-0.10.2.pcap.zst",
        "57264>10101 38736>10102 50534>10102 45094>10101 50546>10102 45098>10101 45118>10101 45124>10101 45132>10101 "
        "45148>10101 50642>10102 46132>10102 46136>10102 49834>10102 39534>10101 39540>10101 39548>10101 49876>10102 "
        "39578>10101 49918>10102 39580>10101 39596>10101 39604>10101 39618>10101 39642>10101 60486>10101 44810>10101 "
        "44834>10101 52876>10102 44838>10101 57614>10101",
    ),
    Cut(
        "apache-0.8.2.pcap.zst",
        "apache-0.8.2.exchanges.tsv.zst",
        "apache-0.8.2.pcap.zst",
        "59198>8102 43544>8101 43564>8101 59206>8102 59422>8102 35468>8101 59440>8102 59472>8102 35532>8101 59516>8102 "
        "35546>8101 59544>8102 59556>8102 59570>8102 59586>8102 33492>8102 33510>8102 33524>8102 33532>8102 33534>8102 "
        "33538>8102 34358>8102 34362>8102 42094>8101 37588>8101 37594>8101 56228>8102",
    ),
)


def connection_of(data: bytes, brokers: set[int]) -> str | None:
    """The "client port>broker port" of an Ethernet frame with IPv4 and TCP, or None."""
    if data[12:14] != b"\x08\x00" or data[23] != 6:
        return None
    at = 14 + (data[14] & 15) * 4
    source, destination = struct.unpack_from("!HH", data, at)
    if destination in brokers:
        return f"{source}>{destination}"
    return f"{destination}>{source}" if source in brokers else None


def cut_pcap(data: bytes, keep: Callable[[int, bytes], bool]) -> bytes:
    """The records of a little-endian µs pcap for which `keep(time in µs, frame)` is true."""
    records = PcapRecords(data)

    def wanted() -> Iterator[int]:
        for number in range(len(records)):
            record = records.record(number)
            seconds, microseconds = struct.unpack_from("<II", record)
            if keep(seconds * 10**6 + microseconds, record[16:]):
                yield number

    return records.keep(wanted())


def cut_pcapng(data: bytes, keep: Callable[[int, bytes], bool]) -> bytes:
    """The same for a little-endian pcapng with times in ns. Blocks that are not packets stay."""
    parts = []
    at = 0
    while at + 12 <= len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if kind == 6:
            high, low, captured = struct.unpack_from("<III", data, at + 12)
            if not keep(((high << 32) | low) // 1000, data[at + 28 : at + 28 + captured]):
                at += length
                continue
        parts.append(data[at : at + length])
        at += length
    return b"".join(parts)


def cut_truth(text: str, window_of: Callable[[str], tuple[int, int] | None]) -> str:
    """The rows of kept connections. A response outside the window is removed from its row."""
    header, *lines = text.splitlines()
    name = {n: i for i, n in enumerate(header.split("\t"))}
    rows = []
    for line in lines:
        row = line.split("\t")
        window = window_of(f"{row[name['client']].rpartition(':')[2]}>{row[name['broker']].rpartition(':')[2]}")
        if window is None or not window[0] <= int(row[name["request_first_us"]]) < window[1]:
            continue
        if int(row[name["request_last_us"]]) >= window[1]:
            continue  # the request is cut short
        response = row[name["response_last_us"]]
        if response != "\\N" and int(response) >= window[1]:
            for column in ("response_first_us", "response_last_us", "response_bytes", "throttle_time_ms"):
                row[name[column]] = "\\N"
            row[name["errors"]], row[name["status"]] = "", "unanswered"
        rows.append("\t".join(row))
    return "\n".join([header, *sorted(rows, key=lambda r: (int(r.split("\t")[name["request_first_us"]]), r))]) + "\n"


def cut_log(text: str, window_of: Callable[[str], tuple[int, int] | None]) -> str:
    """The lines of kept connections, and each fiftieth of the others, with empty bodies. Times are UTC."""
    kept = []
    for number, line in enumerate(text.splitlines()):
        begin, end = line.index("{"), line.rindex("}") + 1
        entry = json.loads(line[begin:end])
        broker, client = entry["connection"].split("-")[:2]
        window = window_of(f"{client.rpartition(':')[2]}>{broker.rpartition(':')[2]}")
        moment = datetime.strptime(line[1:24], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC)
        time_us = round(moment.timestamp() * 1e6)
        if number % 50 and (window is None or not window[0] <= time_us < window[1]):
            continue
        entry["request"] = entry["response"] = {}
        kept.append(line[:begin] + json.dumps(entry, separators=(",", ":")) + line[end:])
    return "\n".join(kept) + "\n"


def make(cut: Cut, recordings: Path, folder: Path) -> None:
    """Write one sample and its expected exchanges."""
    data = read_bytes(recordings / cut.source)
    truth = read_bytes(recordings / cut.truth).decode()
    ng = data[:4] == b"\x0a\x0d\x0d\x0a"
    starts: list[int] = []
    wanted = [*cut.connections.split(), *cut.windows]
    brokers = {int(name.partition(">")[2]) for name in wanted}
    found: set[str] = set()

    def keep(time_us: int, frame: bytes) -> bool:
        starts.append(time_us) if not starts else None
        connection = connection_of(frame, brokers)
        window = cut.window(connection, starts[0]) if connection else None
        if connection is None or window is None or not window[0] <= time_us < window[1]:
            return False
        found.add(connection)
        return True

    kept = (cut_pcapng if ng else cut_pcap)(data, keep)
    target = write_capture(folder / cut.sample, kept)
    rows = cut_truth(truth, lambda connection: cut.window(connection, starts[0]))
    (folder / f"{cut.sample.partition('.pcap')[0]}.exchanges.tsv").write_text(rows)
    log = recordings / cut.source.replace(".pcap.zst", ".request.log.zst")
    if cut.source.endswith(".pcap.zst") and log.exists():
        lines = cut_log(read_bytes(log).decode(), lambda connection: cut.window(connection, starts[0]))
        write_capture(folder / f"{cut.sample.partition('.pcap')[0]}.request.log.zst", lines.encode())
    absent = set(wanted) - found
    if absent:
        raise SystemExit(f"{cut.source} has no connections {' '.join(sorted(absent))}")
    print(
        f"{target.name}: {len(found)} connections, {rows.count(chr(10)) - 1} exchanges, {target.stat().st_size} bytes"
    )


def main(arguments: list[str]) -> int:
    folders = [Path(argument) for argument in arguments]
    if len(folders) not in (1, 2) or not all(folder.is_dir() for folder in folders):
        print("usage: python samples/make_cuts.py RECORDINGS [FOLDER]", file=sys.stderr)
        return 2
    target = folders[1] if len(folders) == 2 else Path(__file__).resolve().parent
    for cut in CUTS:
        make(cut, folders[0], target)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
