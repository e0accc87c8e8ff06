"""Traffic that is hard to cut: conversations of clients and brokers for the tests of joined splits."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.support.tcp import ACK, FIN, RST, START_NS, SYN, Segment, TcpConversation, frame, merge, shake, split_small
from tests.wire.kafkatalk import (
    API_VERSIONS,
    BROKER,
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    METADATA,
    MS,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SYNC_GROUP,
    KafkaTalk,
    SentRequest,
    add_exchanges,
    request,
    response,
)

SECOND = 1_000 * MS


def pipelined(count: int = 40, depth: int = 4, **options: Any) -> list[Segment]:
    """One connection on which always `depth` requests wait, from its SYN on to its end."""
    talk = KafkaTalk(**options)
    talk.tcp.open()
    waiting: list[SentRequest] = []
    for n in range(count):
        topics = [{"Name": f"t-{n}-{k}"} for k in range(n % 9)]
        waiting.append(talk.request(METADATA, 4, n, Topics=topics))
        if len(waiting) > depth:
            talk.respond(waiting.pop(0), Topics=[{"Name": f"t-{k}"} for k in range(n * 7 % 60)])
    for asked in waiting:
        talk.respond(asked)
    talk.tcp.close()
    return talk.segments


def tuple_used_again() -> list[Segment]:
    """The same four addresses and ports, five times: closed, reset, not closed, without a SYN, and at once again."""
    found: list[Segment] = []
    time = 1_704_067_200_000 * MS
    fates = ("close", True, SECOND), ("reset", True, 12 * SECOND), ("", True, 0), ("close", False, 7 * SECOND)
    for n, (end, opened, pause) in enumerate((*fates, ("", True, 0))):
        talk = KafkaTalk(time_ns=time, isn=(1_000_000 * (n + 1), 77_000_000 * (n + 1)), client_id=f"app-{n}")
        if opened:
            talk.tcp.open()
        add_exchanges(talk, 6, first=10 * n)
        if end:
            getattr(talk.tcp, end)()
        found += talk.segments
        time = talk.tcp.time_ns + pause
    return found


def encrypted(records: int = 60, opened: bool = True) -> list[Segment]:
    """TLS from the first byte on."""
    tcp = TcpConversation(("10.0.0.9", 50_000), ("10.0.0.2", 9_093))
    if opened:
        tcp.open()
    tcp.client(b"\x16\x03\x01\x00\xc8" + bytes(200))
    for n in range(records):
        tcp.send(n % 2, b"\x17\x03\x03" + (300 + n).to_bytes(2, "big") + bytes(300 + n))
    if opened:
        tcp.close()
    return tcp.segments


def foreign(lines: int = 60, opened: bool = True, length: int = 200) -> list[Segment]:
    """Something that is not Kafka."""
    tcp = TcpConversation(("10.0.0.8", 51_000), ("10.0.0.2", 80))
    if opened:
        tcp.open()
    for n in range(lines):
        tcp.client(b"GET /%d HTTP/1.1\r\nHost: example\r\n\r\n" % n)
        tcp.server(b"HTTP/1.1 200 OK\r\n\r\n" + b"abcdefgh" * (length // 8))
    if opened:
        tcp.close()
    return tcp.segments


def large(size: int = 20_000_000, mss: int = 60_000) -> list[Segment]:
    """A response that goes over several splits, with small exchanges before and after it, and some sent meanwhile."""
    talk = KafkaTalk(mss=mss)
    talk.tcp.open()
    add_exchanges(talk, 4)
    asked = talk.request(FETCH, 4, 100, Topics=[{"Topic": "orders", "Partitions": [{"Partition": 1}]}])
    other = talk.request(METADATA, 4, 101)
    records = bytes(61) + random.Random(1).randbytes(1000) * (size // 1000)
    talk.respond(asked, Responses=[{"Topic": "orders", "Partitions": [{"PartitionIndex": 1, "Records": records}]}])
    talk.respond(other, Topics=[{"Name": "orders"}])
    add_exchanges(talk, 4, first=200)
    talk.tcp.close()
    return talk.segments


def old_sasl(rounds: int = 8) -> list[Segment]:
    """SaslHandshake v0 and bare tokens, many of them; then Kafka."""
    talk = KafkaTalk(client_id="sasl-client")
    talk.tcp.open()
    talk.exchange(API_VERSIONS, 0, 1)
    asked = talk.request(SASL_HANDSHAKE, 0, 2, Mechanism="SCRAM-SHA-256")
    talk.respond(asked, Mechanisms=["SCRAM-SHA-256"])
    for n in range(rounds):
        talk.tcp.client(frame(b"n,,n=user,r=%d" % n))
        talk.tcp.server(frame(b"r=%d,s=c2FsdA==,i=4096" % n))
    add_exchanges(talk, 10, first=3)
    talk.tcp.close()
    return talk.segments


def new_sasl() -> list[Segment]:
    """ApiVersions with the client's software, SaslHandshake v1 and SaslAuthenticate; then Kafka."""
    talk = KafkaTalk(client_id="sasl-client")
    talk.tcp.open()
    asked = talk.request(API_VERSIONS, 3, 1, ClientSoftwareName="apache-kafka-java", ClientSoftwareVersion="4.3.0")
    talk.respond(asked)
    asked = talk.request(SASL_HANDSHAKE, 1, 2, Mechanism="PLAIN")
    talk.respond(asked, Mechanisms=["PLAIN"])
    talk.respond(talk.request(SASL_AUTHENTICATE, 2, 3, AuthBytes=b"\0user\0secret"))
    add_exchanges(talk, 14, first=4)
    talk.tcp.close()
    return talk.segments


def throttled(version: int, at_once: bool) -> list[Segment]:
    """Responses with a throttle time: of a broker that answers at once and mutes (KIP-219), or of one that waits."""
    talk = KafkaTalk(client_id="loud", client=("10.0.0.7", 40_007 + version))
    talk.tcp.open()
    for n in range(16):
        throttle = 300 if n % 5 == 2 else 0
        asked = talk.request(PRODUCE, version, n, Acks=1, TopicData=[{"Name": "t", "PartitionData": [{"Index": 0}]}])
        talk.tcp.wait((throttle if throttle and not at_once else 1) * MS)
        answers = [{"Name": "t", "PartitionResponses": [{"Index": 0, "BaseOffset": n}]}]
        talk.respond(asked, ThrottleTimeMs=throttle, Responses=answers)
        if n % 3 == 0:  # it goes on sending while the broker does not read it
            talk.respond(talk.request(METADATA, 4, 100 + n), Topics=[])
        talk.tcp.wait(90 * MS)
    talk.tcp.close()
    return talk.segments


def member(beats: int = 40) -> list[Segment]:
    """A member of a group that joined without a SyncGroup: only the first exchange shows how long it waits then."""
    talk = KafkaTalk(client_id="member", client=("10.0.0.12", 44_000))
    talk.tcp.open()
    joined = {"GroupId": "g", "SessionTimeoutMs": 10_000, "RebalanceTimeoutMs": 300_000, "ProtocolType": "consumer"}
    talk.respond(talk.request(JOIN_GROUP, 2, 1, **joined))
    for n in range(beats):
        talk.exchange(HEARTBEAT, 0, 2 + n)
        talk.tcp.wait(500 * MS)
    talk.exchange(SYNC_GROUP, 0, 100)
    talk.tcp.close()
    return talk.segments


def polling(count: int = 60) -> list[Segment]:
    """A consumer that sends up to three Fetch requests at once, and is without one from time to time."""
    talk = KafkaTalk(client_id="poller", client=("10.0.0.13", 45_000))
    talk.tcp.open()
    waiting: list[SentRequest] = []
    for n in range(count):
        waiting.append(talk.request(FETCH, 4, n, MaxWaitMs=500, MinBytes=1))
        while len(waiting) > (0 if n % 6 == 5 else 2):
            talk.tcp.wait(300 * MS)
            talk.respond(waiting.pop(0))
    talk.tcp.close()
    return talk.segments


def muted(count: int = 40, depth: int = 0) -> list[Segment]:
    """A producer that is always throttled, and begins each request in the window of the one before, with `depth` others
    under way."""
    talk = KafkaTalk(client_id="greedy", client=("10.0.0.14", 46_000))
    talk.tcp.open()
    waiting: list[SentRequest] = []
    for n in range(count):
        topics = [{"Name": "t", "PartitionData": [{"Index": 0}]}]
        waiting.append(talk.request(PRODUCE, 6, n, Acks=1, TopicData=topics))
        if len(waiting) > depth:
            talk.tcp.wait(300 * MS)
            answers = [{"Name": "t", "PartitionResponses": [{"Index": 0, "BaseOffset": n}]}]
            talk.respond(waiting.pop(0), ThrottleTimeMs=400 + n, Responses=answers)
            talk.tcp.wait(90 * MS)
    talk.tcp.close()
    return talk.segments


def no_reply(count: int = 30) -> list[Segment]:
    """Produce with acks=0 between requests that are answered."""
    talk = KafkaTalk(client_id="silent")
    talk.tcp.open()
    for n in range(count):
        talk.request(PRODUCE, 3, n, Acks=0, TopicData=[{"Name": "t", "PartitionData": [{"Index": 0}]}])
        if n % 10 == 9:
            talk.respond(talk.request(METADATA, 4, 1_000 + n), Topics=[{"Name": "t"}])
    talk.tcp.close()
    return talk.segments


def only_requests(count: int = 20) -> list[Segment]:
    """A capture that has one direction alone: nothing is ever answered."""
    talk = KafkaTalk(client_id="alone", acks=False)
    talk.tcp.open()
    for n in range(count):
        talk.request(FIND_COORDINATOR, 1, n, Key=f"group-{n}")
    talk.tcp.close()
    return [s for s in talk.segments if s.source != BROKER]


def names_of_clients() -> list[Segment]:
    """One connection whose requests name this client and that, or none."""
    talk = KafkaTalk(client_id="first")
    talk.tcp.open()
    for n, name in enumerate(["first", None, "second", "first", None, None, "third", None] * 3):
        talk.client_id = name
        talk.exchange(METADATA, 4, n)
    talk.tcp.close()
    return talk.segments


def topic_ids() -> list[Segment]:
    """Topics fetched by their ids, which are named at the end (and on another connection)."""
    talk = KafkaTalk(client_id="by-id")
    talk.tcp.open()
    for n in range(12):
        asked = talk.request(FETCH, 13, n, Topics=[{"TopicId": bytes([n % 3]) * 16, "Partitions": [{"Partition": n}]}])
        parts = [{"PartitionIndex": n, "ErrorCode": n % 2}]
        talk.respond(asked, Responses=[{"TopicId": bytes([n % 3]) * 16, "Partitions": parts}])
    talk.tcp.close()
    other = KafkaTalk(client=("10.0.0.5", 45_000), time_ns=talk.tcp.time_ns)
    for n in (1, 2):
        asked = other.request(METADATA, 10, n)
        other.respond(asked, Topics=[{"Name": f"topic-{n}", "TopicId": bytes([n]) * 16}])
    return [*talk.segments, *other.segments]


def in_the_middle() -> list[Segment]:
    """Connections whose SYN was not captured, to a broker that another connection shows, and to one
    that none shows."""
    one = KafkaTalk(client=("10.0.0.3", 9_500), step_ns=300_000)
    add_exchanges(one, 12)
    two = KafkaTalk(client=("10.0.0.4", 46_000), time_ns=one.time_ns + 7 * MS)
    two.tcp.open()
    add_exchanges(two, 4)
    three = KafkaTalk(client=("10.0.0.5", 47_000), broker=("10.0.0.6", 9_092), step_ns=500_000)
    add_exchanges(three, 8)
    late = KafkaTalk(client=("10.0.0.3", 9_501), time_ns=two.tcp.time_ns + MS)
    late.tcp.server(response(METADATA, 4, 5, Topics=[{"Name": "late"}]))
    add_exchanges(late, 3, first=20)
    return merge(one.segments, two.segments, three.segments, late.segments)


def half_open() -> list[Segment]:
    """SYNs that nobody answers, sent again; a SYN in the middle of a flow; keep-alives for a long time."""
    talk = KafkaTalk()
    tcp = talk.tcp
    first = tcp.next[0]
    for _ in range(3):
        tcp._add(0, SYN, seq=first - 1, ack=0)
        tcp.wait(SECOND)
    tcp._add(1, SYN | ACK, seq=tcp.next[1] - 1)
    tcp._add(0, ACK)
    add_exchanges(talk, 3)
    for _ in range(6):
        tcp.probe(0)
        tcp._add(1, ACK)
        tcp.wait(3 * SECOND)
    add_exchanges(talk, 3, first=10)
    return talk.segments


def lossy(seed: int, burst: int = 1, fraction: float = 0.06) -> list[Segment]:
    """Several clients' traffic with packets lost, sent again and out of order."""
    chance = random.Random(seed)
    whole = busy(seed)
    gone: set[int] = set()
    while len(gone) < fraction * len(whole):
        first = chance.randrange(len(whole))
        gone.update(range(first, first + burst))
    return shake([s for n, s in enumerate(whole) if n not in gone], chance, duplicates=0.03, moves=0.03)


def busy(seed: int, clients: int = 4) -> list[Segment]:
    """Several clients at once, each of another kind; segments small enough that frames take several."""
    chance = random.Random(seed)
    talks = []
    for n in range(clients):
        talk = KafkaTalk(
            client=(f"10.0.1.{n}", 40_000 + n), mss=chance.choice((100, 536, 1448)),
            step_ns=chance.choice((50_000, 90_000, 400_000)), isn=(chance.getrandbits(32), chance.getrandbits(32)),
            acks=chance.random() < 0.7, client_id=chance.choice(("app", "other", None)),
        )  # fmt: skip
        if chance.random() < 0.6:
            talk.tcp.open()
        waiting: list[SentRequest] = []
        for k in range(chance.randrange(8, 24)):
            key, version = chance.choice(((METADATA, 4), (FIND_COORDINATOR, 1), (FETCH, 4), (PRODUCE, 3)))
            values: dict[str, Any] = {"Acks": chance.choice((0, 1, 1))} if key == PRODUCE else {}
            if key == METADATA:
                values = {"Topics": [{"Name": f"topic-{i}"} for i in range(chance.randrange(20))]}
            asked = talk.request(key, version, k, **values)
            if values.get("Acks") != 0:
                waiting.append(asked)
            while len(waiting) > chance.choice((0, 0, 2, 5)):
                answer = waiting.pop(0)
                extra: dict[str, Any] = {"ThrottleTimeMs": chance.choice((0, 0, 0, 50))}
                if answer.api_key == METADATA:
                    extra["Topics"] = [{"Name": f"topic-{i}"} for i in range(chance.randrange(20))]
                talk.respond(answer, **extra)
            talk.tcp.wait(chance.choice((0, 0, 5 * MS, 60 * MS)))
        if chance.random() < 0.5:
            talk.tcp.close()
        talks.append(talk.segments)
    return merge(*talks)


def proxied() -> list[Segment]:
    """Connections that begin with a PROXY header, among them one that is TLS and one without a source."""
    headers = (
        b"PROXY TCP4 192.0.2.7 10.0.0.2 51234 9092\r\n",
        b"PROXY TCP6 2001:db8::7 ::1 443 9092\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes((198, 51, 100, 9, 10, 0, 0, 2)) + b"\x01\xbb\x23\x84",
        b"PROXY UNKNOWN\r\n",
    )
    talks = []
    for n, header in enumerate((*headers, headers[0])):
        talk = KafkaTalk(client=("10.0.0.9", 41_000 + n), isn=(1_000 * n, 9_000 * n), client_id=f"app-{n}")
        talk.tcp.open()
        talk.tcp.client(header)
        if n < len(headers):
            add_exchanges(talk, 12, 20 * n)
        else:
            for k in range(12):
                talk.tcp.send(k & 1, (b"\x17\3\3\0\x40" if k else b"\x16\3\1\0\x40") + bytes(64))
        talk.tcp.close()
        talks.append(talk.segments)
    return merge(*talks)


def out_of_order() -> list[Segment]:
    """A broker that answers four requests in any order, and some never."""
    chance = random.Random(8)
    talk = KafkaTalk()
    talk.tcp.open()
    for n in range(0, 80, 4):
        asked = [talk.request(METADATA, 4, n + k, Topics=[{"Name": f"t-{n + k}"}]) for k in range(4)]
        chance.shuffle(asked)
        for one in asked[: chance.choice((3, 4, 4))]:
            talk.respond(one, Topics=[{"Name": "t"} for _ in range(n % 7)])
    talk.tcp.close()
    return talk.segments


def held_back() -> list[Segment]:
    """A broker that offers new versions, and holds throttled responses back."""
    talk = KafkaTalk()
    talk.tcp.open()
    keys = [{"ApiKey": PRODUCE, "MaxVersion": 9}, {"ApiKey": FETCH, "MaxVersion": 12}]
    talk.respond(talk.request(API_VERSIONS, 0, 0), ApiKeys=keys)
    for n in range(1, 60, 2):
        asked = talk.request(PRODUCE, 7, n, Acks=1)
        talk.tcp.wait((305 if n % 3 else 2) * MS)
        talk.respond(asked, ThrottleTimeMs=300 if n % 3 else 0)
        talk.exchange(METADATA, 4, n + 1)
        talk.tcp.wait(700 * MS)
    talk.tcp.close()
    return talk.segments


def cut_messages() -> list[Segment]:
    """Requests and responses of several segments that a RST, or the end of the capture, cuts."""
    talks = []
    for n, flag in enumerate((RST, FIN, 0)):
        for by in range(2):
            talk = KafkaTalk(client=("10.0.0.1", 41_000 + 2 * n + by), mss=100)
            talk.tcp.open()
            add_exchanges(talk, 4)
            if by:
                talk.request(FETCH, 11, 9, MaxWaitMs=500)
                data = response(FETCH, 11, 9, Responses=[{"Topic": f"t-{k}"} for k in range(90)])
            else:
                data = request(METADATA, 4, 9, Topics=[{"Name": f"t-{k}"} for k in range(200)])
            talk.tcp.send(by, data[:-50])
            if flag:
                talk.tcp._add(1, flag | ACK)
            talks.append(talk.segments)
    return merge(*talks)


def tokens_first(mss: int = 1448) -> list[Segment]:
    """SASL of Kafka 0.9: bare tokens from the first byte on, then requests, some at once."""
    talk = KafkaTalk(mss=mss)
    talk.tcp.open()
    for n in range(20):
        talk.tcp.send(n & 1, frame(b"\x60\x82\x02\x05" + bytes(range(60))))
    for n in range(40):
        talk.exchange(METADATA, 4, n)
    talk.tcp.close()
    return talk.segments


def lone_requests() -> list[Segment]:
    """Single requests without a name on connections that stay open, one before others show the broker."""
    first = KafkaTalk(client=("10.0.0.8", 50_000), client_id=None, time_ns=START_NS)
    first.tcp.open()
    first.request(METADATA, 4, 1)
    last = KafkaTalk(client=("10.0.0.8", 50_001), client_id=None, time_ns=START_NS + 50 * MS)
    last.request(METADATA, 4, 1)
    last.tcp.close(1)
    return merge(first.segments, pipelined(), last.segments)


#: By name: traffic that fits any number of splits.
TALKS: dict[str, Callable[[], list[Segment]]] = {
    "pipelined": pipelined,
    "pipelined, small segments": lambda: split_small(pipelined(12), 40),
    "without a SYN": lambda: pipelined()[9:],
    "4-tuple used again": tuple_used_again,
    "TLS": encrypted,
    "TLS without a SYN": lambda: encrypted(opened=False)[5:],
    "foreign": foreign,
    "foreign without a SYN": lambda: foreign(opened=False)[2:],
    "behind a proxy": proxied,
    "cut messages": cut_messages,
    "old SASL": old_sasl,
    "new SASL": new_sasl,
    "bare tokens first": tokens_first,
    "bare tokens first, small segments": lambda: tokens_first(40),
    "throttled, broker mutes": lambda: throttled(6, True),
    "throttled, broker waits": lambda: throttled(5, False),
    "throttled, not known which": lambda: throttled(3, True),
    "throttled, broker holds back": held_back,
    "answers out of order": out_of_order,
    "member of a group": member,
    "polling": polling,
    "muted all the time": muted,
    "muted with requests under way": lambda: muted(60, 5),
    "acks=0": no_reply,
    "one direction": only_requests,
    "names of clients": names_of_clients,
    "topic ids": topic_ids,
    "begun in the middle": in_the_middle,
    "half open": half_open,
    "shaken": lambda: shake(pipelined(), random.Random(5), duplicates=0.1, moves=0.1),
    "lossy": lambda: lossy(1),
    "lossy, in bursts": lambda: lossy(2, burst=6),
}
#: A talk with a single request to a broker that other connections show.
ONE_ENGINE = "lossy, in bursts"
