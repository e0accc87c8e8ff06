"""Talks of other protocols, crafted from their specifications, for `test_foreign.py`.

`TALKS` has them by name. A talk is what a client (end 0) and a server (end 1) send in turn, a segment each. Of most
protocols these are the messages that look most like Kafka: sizes and counts of four bytes, numbers that rise.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator

#: The end that sends, and what.
Talk = list[tuple[int, bytes]]
Lines = Iterator[tuple[int, bytes]]
TALKS: dict[str, Talk] = {}


def talk(make: Callable[[], Lines]) -> Callable[[], Lines]:
    """Add a talk by the name of its function."""
    TALKS[make.__name__.strip("_").replace("_", "-")] = list(make())
    return make


def sized(data: bytes, form: str = ">I", extra: int = 0) -> bytes:
    """A size and the bytes that it counts."""
    return struct.pack(form, len(data) + extra) + data


def text(value: str, form: str = ">H") -> bytes:
    return sized(value.encode(), form)


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def protobuf(*fields: int | bytes) -> bytes:
    """A protobuf message with the fields 1, 2, …: integers and strings."""
    made = b""
    for number, value in enumerate(fields, 1):
        if isinstance(value, int):
            made += varint(number << 3) + varint(value)
        else:
            made += varint(number << 3 | 2) + varint(len(value)) + value
    return made


# ---------------------------------------------------------------- a size of four bytes first


@talk
def zookeeper_watch() -> Lines:
    """Requests (xid, type, path) after a session was set up: xid from 1, ping -2."""
    yield 0, sized(struct.pack(">iqiq", 0, 0, 30_000, 0) + sized(bytes(16)) + b"\0")
    yield 1, sized(struct.pack(">iiq", 0, 30_000, 0x1000_0001) + sized(bytes(16)) + b"\0")
    for xid, (kind, path) in enumerate(((3, "/a"), (4, "/a"), (8, "/"), (12, "/"), (1, "/b")), 1):
        yield 0, sized(struct.pack(">ii", xid, kind) + text(path, ">I") + b"\1")
        yield 1, sized(struct.pack(">iqi", xid, 7 + xid, 0) + sized(b"value") + struct.pack(">qqqqiii", *range(7)))
    yield 0, sized(struct.pack(">ii", -2, 11))
    yield 1, sized(struct.pack(">iqi", -2, 12, 0))


@talk
def zookeeper_quorum() -> Lines:
    """Leader and followers: packets of type, zxid, data."""
    for n in range(6):
        yield n & 1, sized(struct.pack(">iq", 5 - n % 3, (1 << 32) + n) + sized(b"\0\0\0\1" * 3) + b"\xff\xff\xff\xff")


@talk
def thrift_framed() -> Lines:
    for n in range(6):
        yield (
            0,
            sized(b"\x80\1\0\1" + text("get", ">I") + struct.pack(">iBh", n, 11, 1) + text(f"key-{n}", ">I") + b"\0"),
        )
        yield 1, sized(b"\x80\1\0\2" + text("get", ">I") + struct.pack(">iBh", n, 11, 0) + text("value", ">I") + b"\0")


@talk
def thrift_framed_lax() -> Lines:
    """The older form: the name comes first, as a client_id would."""
    for n in range(6):
        yield 0, sized(text("get", ">I") + struct.pack(">BiBh", 1, n, 11, 1) + text(f"key-{n}", ">I") + b"\0")
        yield 1, sized(text("get", ">I") + struct.pack(">BiBh", 2, n, 11, 0) + text("value", ">I") + b"\0")


@talk
def thrift_header() -> Lines:
    for n in range(4):
        for end in (0, 1):
            yield end, sized(struct.pack(">HHIH", 0x0FFF, 0, n, 1) + b"\0\0\0\0" + b"\x82\x21\1\3get\x18\1a\0")


@talk
def pulsar() -> Lines:
    """total size, command size, command; a message has a magic, a checksum and metadata behind them."""
    connect = protobuf(2, protobuf(b"Pulsar-Java-v3.0", 0, b"", 19))
    yield 0, sized(sized(connect))
    yield 1, sized(sized(protobuf(3, protobuf(b"Pulsar Server", 19))))
    yield 0, sized(sized(protobuf(17, protobuf(b"persistent://public/default/t", 1))))
    yield 1, sized(sized(protobuf(18, protobuf(0, 1))))
    for n in range(4):
        yield 0, sized(sized(protobuf(6, protobuf(1, n))) + b"\x0e\1" + bytes(4) + sized(protobuf(b"p", n)) + b"hello")
        yield 1, sized(sized(protobuf(7, protobuf(1, n))))
    yield 0, sized(sized(protobuf(19)))
    yield 1, sized(sized(protobuf(20)))


@talk
def rocketmq() -> Lines:
    for n in range(5):
        for end in (0, 1):
            head = b'{"code":%d,"flag":%d,"language":"JAVA","opaque":%d,"version":435}' % (
                105 if end == 0 else 0,
                end,
                n,
            )
            yield end, sized(struct.pack(">I", len(head)) + head + (b'{"brokers":[]}' if end else b""))


@talk
def rocketmq_binary() -> Lines:
    """The other form of its header: code, language, version, opaque, flag."""
    for n in range(5):
        for end in (0, 1):
            head = struct.pack(">hBhiiii", 34 if end == 0 else 0, 0, 435, n, end, 0, 0)
            yield end, sized(struct.pack(">I", 1 << 24 | len(head)) + head + b"hello" * end)


@talk
def hadoop_rpc() -> Lines:
    """hrpc, then frames of delimited protobuf messages."""
    yield 0, b"hrpc\t\0\0"
    for n in range(5):
        head = protobuf(2, 0, n, b"0123456789abcdef", 0)
        yield 0, sized(varint(len(head)) + head + varint(12) + protobuf(b"getFileInfo"[:10]))
        back = protobuf(n, 0, 9, b"", b"", b"0123456789abcdef")
        yield 1, sized(varint(len(back)) + back + b"\2\x0a\0")


@talk
def hdfs_data_transfer() -> Lines:
    """Version, operation, a delimited message; then packets of data."""
    for n in range(3):
        yield 0, b"\0\x1c\x50" + (lambda m: varint(len(m)) + m)(protobuf(b"BP-1-127.0.0.1-1", n))
        yield 0, struct.pack(">IH", 4 + 8 + 64, 25) + protobuf(n, 1 << 20, 0) + bytes(8) + b"data" * 16
        yield 1, b"\x05\x08\x01\x10\x00\x18\x00"


@talk
def hbase_rpc() -> Lines:
    yield 0, b"HBas\0\x50"
    yield 0, sized(protobuf(protobuf(b"root"), b"ClientService", b"org.apache.hadoop.hbase.codec.KeyValueCodec"))
    for n in range(5):
        head = protobuf(n, b"", b"Get", 1)
        param = protobuf(protobuf(1, b"t,,1"), protobuf(b"row"))
        yield 0, sized(varint(len(head)) + head + varint(len(param)) + param)
        yield 1, sized(varint(2) + protobuf(n) + varint(4) + protobuf(b"hi"))


@talk
def smb_netbios() -> Lines:
    """A session service's length (0 and three bytes) and SMB2's header of 64 bytes, little-endian."""
    for n in range(5):
        for end in (0, 1):
            head = struct.pack("<4sHHIHHIIQIIQ16s", b"\xfeSMB", 64, 1, 0, n, 1, end, 0, n, 65_279, 1, 9, bytes(16))
            yield end, sized(head + struct.pack("<HHII", 36 + end, 2, 0, n) + bytes(24))


@talk
def netbios_session() -> Lines:
    yield 0, b"\x81\0\0\x44" + b"\x20" + b"CA" * 16 + b"\0\x20" + b"FE" * 16 + b"\0"
    yield 1, b"\x82\0\0\0"
    yield 0, sized(b"\xffSMB\x72" + bytes(27) + b"\0\x0c\0\2NT LM 0.12\0")


@talk
def kerberos_kdc() -> Lines:
    yield 0, sized(b"\x6a\x81\x50\x30\x81\x4d\xa1\3\2\1\5\xa2\3\2\1\x0a" + b"\x30\x10" * 31)
    yield 1, sized(b"\x7e\x81\x50\x30\x81\x4d\xa0\3\2\1\5\xa1\3\2\1\x1e" + b"\x30\x10" * 31)


@talk
def git_pack_lines() -> Lines:
    yield 0, b"0033git-upload-pack /r\0host=localhost\0\0version=2\0"
    yield 1, b"000eversion 2\n0015agent=git/2.39.5\n0000"
    yield 0, b"0014command=ls-refs\n0001" + b"0009peel\n" + b"0000"
    yield 1, b"003d" + b"0123456789abcdef" * 2 + b"01234567 HEAD symref-target:x\n0000"


@talk
def ssh_agent() -> Lines:
    for n in range(4):
        yield 0, sized(b"\x0b")
        yield 1, sized(b"\x0c" + struct.pack(">I", n % 2) + (sized(bytes(32)) + sized(b"key")) * (n % 2))


@talk
def ssh_binary() -> Lines:
    yield 0, b"SSH-2.0-OpenSSH_9.2\r\n"
    yield 1, b"SSH-2.0-OpenSSH_9.2\r\n"
    for end in (0, 1):
        yield end, sized(b"\6\x14" + bytes(range(16)) + text("curve25519-sha256", ">I") * 8 + bytes(13))
    for n in range(6):
        yield n & 1, random.Random(n).randbytes(60 + 16 * n)


@talk
def elasticsearch_transport() -> Lines:
    for n in range(5):
        for end in (0, 1):
            head = struct.pack(">qBiI", n, end, 8_110_099, 6) + b"\0\0\0\0\0\0"
            yield end, b"ES" + sized(head + text("indices:data/read/get" if end == 0 else "", ">B") + bytes(8))


@talk
def akka_remoting() -> Lines:
    """Artery: AKKA, a stream's number, then frames of little-endian lengths; the older one has big-endian ones."""
    yield 0, b"AKKA\1"
    for n in range(4):
        yield 0, struct.pack("<I", 40) + bytes([0, 0, 0, 0]) + struct.pack("<qiii", n, 1, 2, 3) + bytes(16)
    for n in range(4):
        yield n & 1, sized(protobuf(protobuf(n, b"akka.tcp://sys@127.0.0.1:2552"), b"ping"))


@talk
def flink_netty() -> Lines:
    """Frame length, a magic number, a message's number, then ids and sequence numbers."""
    for n in range(6):
        yield 0, struct.pack(">IIB", 9 + 16, 0xBADC0FFE, 2) + struct.pack(">iiq", n, 0, 0)
        yield 1, struct.pack(">IIB", 9 + 28 + 40, 0xBADC0FFE, 0) + struct.pack(">qqiiI", 1, n, n, 0, 40) + bytes(40)


@talk
def spark_rpc() -> Lines:
    """Frame length of eight bytes, a message's type, a request's number."""
    for n in range(5):
        yield 0, struct.pack(">qBqI", 9 + 8 + 4 + 20, 3, n, 20) + text("driver", ">H") + bytes(12)
        yield 1, struct.pack(">qBqI", 9 + 8 + 4 + 4, 4, n, 4) + b"true"


@talk
def ignite_thin() -> Lines:
    for n in range(5):
        yield 0, struct.pack("<IHqi", 14, 1_000 + n, n, 7)
        yield 1, struct.pack("<IqI", 12, n, 0)


@talk
def hazelcast() -> Lines:
    yield 0, b"CP2"
    for n in range(5):
        for end in (0, 1):
            yield end, struct.pack("<IHIqi", 22 + 16, 0xC000, 0x010100 + end, n, -1) + bytes(16)


@talk
def gossip_counts() -> Lines:
    """Members of a cluster send each other a size, a type and a counter, and everyone answers the same."""
    for n in range(8):
        yield n & 1, sized(struct.pack(">hhi", 3, 1, n // 2) + text("node-a") + struct.pack(">iq", 7, n))


@talk
def counted_json() -> Lines:
    for n in range(6):
        yield n & 1, sized(b'{"id": %d, "method": "get", "params": ["a", "b"]}' % n)


@talk
def counted_protobuf() -> Lines:
    for n in range(8):
        yield n & 1, sized(protobuf(n, b"some name", 1_700_000_000 + n, b"\0\0\0\1" * n))


@talk
def counted_msgpack() -> Lines:
    for n in range(8):
        yield n & 1, sized(b"\x94" + bytes([n & 1, n, 0xC0]) + b"\x92\xa3get\xa3key")


@talk
def counted_avro() -> Lines:
    """Avro's RPC: a serial number, a count of buffers, each with its size."""
    for n in range(5):
        yield 0, struct.pack(">II", n, 2) + sized(b"\2" + bytes(16)) + sized(b"\0\0\6get\2")
        yield 1, struct.pack(">II", n, 1) + sized(b"\0\0\0\x0ahello")


@talk
def counted_java() -> Lines:
    """Java's DataOutputStream: a size, a short, a short, a counter, a string with a short size."""
    for n in range(8):
        yield 0, sized(struct.pack(">hhi", 9, 2, n) + text("worker") + struct.pack(">qi", 12 * n, 3))
        yield 1, sized(struct.pack(">ih", n, 0) + text("done"))


@talk
def counted_small_numbers() -> Lines:
    for n in range(8):
        yield 0, sized(struct.pack(">6h", *range(n, n + 6)))
        yield 1, sized(struct.pack(">3i", n, 0, 0))


@talk
def counted_zeros() -> Lines:
    for n in range(12, 30, 3):
        yield 0, sized(bytes(n))
        yield 1, sized(bytes(n // 2))


@talk
def counted_ones() -> Lines:
    for n in range(12, 30, 3):
        yield 0, sized(b"\0\1" * n)
        yield 1, sized(b"\0\1" * 6)


@talk
def counted_noise() -> Lines:
    chance = random.Random(7)
    for n in range(12):
        yield n & 1, sized(chance.randbytes(chance.randrange(1, 90)))


@talk
def ntlm_rpc_counts() -> Lines:
    """The ids of requests are echoed as Kafka's are, behind the size; nothing else fits."""
    for n in range(8):
        yield 0, sized(struct.pack(">hhi", 0x0102, 0x0304, n) + b"\0\6client" + random.Random(n).randbytes(20))
        yield 1, sized(struct.pack(">i", n) + random.Random(-n).randbytes(12))


@talk
def teradata_lan() -> Lines:
    for n in range(4):
        for end in (0, 1):
            yield end, bytes([3, 1 + end, 5, 0]) + struct.pack(">HHIHH", 0, 40, n, 0, 0) + bytes(36) + b"select 1" * 5


@talk
def mdns_over_tcp() -> Lines:
    for n in range(5):
        for end in (0, 1):
            name = b"\7example\3com\0\0\1\0\1"
            answer = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\x0a\1\2\3" * end
            yield end, sized(struct.pack(">6H", n, 0x8180 if end else 0x0100, 1, end, 0, 0) + name + answer, ">H")


# ---------------------------------------------------------------- other sizes


@talk
def oncrpc_nfs() -> Lines:
    """A record mark (the last fragment's bit and a length), xid, call or reply, program, version, procedure."""
    for n in range(6):
        call = struct.pack(">10I", 0x1000 + n, 0, 2, 100_003, 3, n % 4, 0, 0, 0, 0) + sized(bytes(32))
        yield 0, struct.pack(">I", 1 << 31 | len(call)) + call
        reply = struct.pack(">6I", 0x1000 + n, 1, 0, 0, 0, 0) + struct.pack(">I", 0) + bytes(84)
        yield 1, struct.pack(">I", 1 << 31 | len(reply)) + reply


@talk
def iscsi() -> Lines:
    """Headers of 48 bytes: opcode, flags, lengths, LUN, task tag, sequence numbers."""
    text_ = b"InitiatorName=iqn.2024-01.a\0SessionType=Normal\0"
    yield 0, struct.pack(">BB2xI8sIIII16x", 0x43, 0x87, len(text_), b"\x40\0\1\x37\0\0\0\0", 0, 1, 1, 0) + text_
    yield 1, struct.pack(">BB2xI8sIIII16x", 0x23, 0x87, 0, b"\x40\0\1\x37\0\0\0\1", 0, 0, 1, 2)
    for n in range(5):
        yield 0, struct.pack(">BB2xI8sIIII16s", 1, 0xC1, 0, bytes(8), n, 512, n + 1, 1, b"\x28\0\0\0\0\1\0\0\1\0")
        yield 1, struct.pack(">BBBBI8sIIIIII8x", 0x25, 0x81, 0, 0, 512, bytes(8), n, 0xFFFFFFFF, n, n + 1, n + 33, 0)
        yield 1, bytes(512)


@talk
def x11() -> Lines:
    yield 0, struct.pack("<BBHHHHH", 0x6C, 0, 11, 0, 18, 16, 0) + b"MIT-MAGIC-COOKIE-1\0\0" + bytes(16)
    yield 1, struct.pack("<BBHHH", 1, 0, 11, 0, 40) + bytes(32) + b"The X.Org Foundation" + bytes(108)
    for n in range(5):
        yield 0, struct.pack("<BBHHH", 98, 0, 5, 12, 0) + b"BIG-REQUESTS" + struct.pack("<BBHI", 43, 0, 2, n)
        yield 1, struct.pack("<BBHI", 1, 0, n, 0) + bytes(24)


@talk
def rdp() -> Lines:
    """TPKT (version 3, 0, a length of two bytes) and X.224."""
    yield 0, b"\3\0\0\x2b\x26\xe0\0\0\0\0\0Cookie: mstshash=alice\r\n\1\0\x08\0\3\0\0\0"
    yield 1, b"\3\0\0\x13\x0e\xd0\0\0\x12\x34\0\2\x0f\x08\0\0\0\0\0"
    for n in range(4):
        yield n & 1, b"\3\0\0\x20\2\xf0\x80\x64\0\6\x03\xeb\x70" + bytes([n]) * 19


@talk
def dubbo() -> Lines:
    """A magic number, flags, a status, a request's number of eight bytes, a length; a body in Hessian."""
    for n in range(5):
        yield 0, struct.pack(">HBBqI", 0xDABB, 0xC2, 0, n, 30) + b"\x052.0.2\x30\x1ecom.example.Demo".ljust(30, b"N")
        yield 1, struct.pack(">HBBqI", 0xDABB, 0x02, 20, n, 8) + b"\x94\x05hello "


@talk
def java_rmi() -> Lines:
    yield 0, b"JRMI\0\2\x4b"
    yield 1, b"\x4e\0\x09127.0.0.1\0\0\x9c\x40"
    yield 0, b"\0\x09127.0.0.1\0\0\0\0"
    for n in range(3):
        yield (
            0,
            b"\x50\xac\xed\0\5\x77\x22"
            + bytes(16)
            + struct.pack(">i", 2)
            + b"\x44\x15\x4d\xc9\xd4\xe6\x3b\xdf\x74\0\4demo",
        )
        yield 1, b"\x51\xac\xed\0\5\x77\x0f\1" + bytes([n]) * 14 + b"\x73\x7d\0\0\0\1\0\x0fjava.rmi.Remote"


@talk
def aerospike() -> Lines:
    """Version, type, a length of six bytes, then counts of two bytes."""
    yield 0, b"\2\1\0\0\0\0\0\x06build\n"
    yield 1, b"\2\1\0\0\0\0\0\x0ebuild\t6.1.0.1\n"
    for n in range(5):
        fields = sized(b"\0test") + sized(b"\2" + bytes(19) + bytes([n]))
        head = struct.pack(">BBBBxBIIIHH", 22, 3, 0, 0, 0, 0, 0, 1_000, 2, 0)
        yield 0, b"\2\3" + (len(head) + len(fields)).to_bytes(6, "big") + head + fields
        back = struct.pack(">BBBBxBIIIHH", 22, 0, 0, 0, 0, n, 0, 0, 0, 0)
        yield 1, b"\2\3" + len(back).to_bytes(6, "big") + back


@talk
def tarantool() -> Lines:
    yield 1, b"Tarantool 2.11.0 (Binary) 0123\n".ljust(64, b" ") + b"c2FsdHNhbHRzYWx0c2FsdHNhbHRzYWx0\n".ljust(64, b" ")
    for n in range(5):
        yield 0, b"\xce\0\0\0\x0f\x82\0\x40\1" + bytes([n]) + b"\x82\x10\xcd\2\0\x20\x91" + bytes([n]) * 3
        yield 1, b"\xce\0\0\0\x18\x83\0\xce\0\0\0\0\1\xcf" + n.to_bytes(8, "big") + b"\5\xce\0\0\0\x50\x81\x30\x90"


@talk
def couchbase() -> Lines:
    """memcached's binary protocol with what a cluster's client sends first."""
    for n, (op, key, value) in enumerate(
        ((0x1F, b"", b"\0\1\0\4"), (0xB5, b"", b""), (0, b"user::1", b""), (1, b"k", b"v"))
    ):
        extras = bytes(8) if op == 1 else b""
        body = extras + key + value
        yield 0, struct.pack(">BBHBBHIIQ", 0x80, op, len(key), len(extras), 0, 7, len(body), n, 0) + body
        yield 1, struct.pack(">BBHBBHIIQ", 0x81, op, 0, 4, 0, 0, 4 + 5, n, 1) + bytes(4) + b"value"


@talk
def cassandra_cql() -> Lines:
    yield 0, b"\4\0\0\0\5" + sized(b"")
    yield (
        1,
        b"\x84\0\0\0\6"
        + sized(b"\0\2" + text("CQL_VERSION") + b"\0\1" + text("3.4.6") + text("COMPRESSION") + b"\0\0"),
    )
    yield 0, b"\4\0\0\0\1" + sized(b"\0\1" + text("CQL_VERSION") + text("3.4.6"))
    yield 1, b"\x84\0\0\0\2" + sized(b"")
    for n in range(5):
        yield 0, struct.pack(">BBHB", 4, 0, n, 7) + sized(text("select a from t", ">I") + b"\0\1\0")
        row = struct.pack(">III", 2, 1, 1) + text("k") + text("t") + text("a") + b"\0\x0d" + struct.pack(">I", 1)
        yield 1, struct.pack(">BBHB", 0x84, 0, n, 8) + sized(row + sized(b"hi"))


@talk
def mongodb() -> Lines:
    for n in range(6):
        document = b"\x10ping\0\1\0\0\0\2$db\0\6\0\0\0admin\0"
        body = struct.pack("<IB", 0, 0) + struct.pack("<I", len(document) + 5) + document + b"\0"
        yield 0, struct.pack("<4i", 16 + len(body), n, 0, 2_013) + body
        yield 1, struct.pack("<4i", 16 + 21, 900 + n, n, 2_013) + bytes(5) + b"\x10\0\0\0\1ok\0" + bytes(8) + b"\0"


@talk
def tds() -> Lines:
    """SQL Server: type, status, a length of two bytes, a session, a packet's number, a window."""
    yield 0, struct.pack(">BBHHBB", 0x12, 1, 47, 0, 1, 0) + bytes(range(39))
    yield 1, struct.pack(">BBHHBB", 4, 1, 43, 0, 1, 0) + bytes(range(35))
    for n in range(4):
        query = "select 1".encode("utf-16-le")
        yield (
            0,
            struct.pack(">BBHHBB", 1, 1, 8 + 22 + len(query), 0, 1, 0) + struct.pack("<IIHQI", 22, 18, 2, n, 1) + query,
        )
        yield (
            1,
            struct.pack(">BBHHBB", 4, 1, 8 + 22, 0, 1, 0)
            + b"\x81\1\0\0\0\0\0\x20\0\x38\0\xd1\1\0\0\0\xfd\x10\0\xc1\0\1",
        )


@talk
def oracle_tns() -> Lines:
    """A length of two bytes, a checksum, a type."""
    description = b"(DESCRIPTION=(CONNECT_DATA=(SERVICE_NAME=x))(ADDRESS=(PROTOCOL=TCP)(HOST=h)(PORT=1521)))"
    head = struct.pack(">HHHHHHHHHHI", 318, 300, 0xC01, 8_192, 65_535, 32_512, 1, len(description), 58, 0, 0)
    yield 0, struct.pack(">HHBBH", 8 + 50 + len(description), 0, 1, 0, 0) + head.ljust(50, b"\0") + description
    yield 1, struct.pack(">HHBBH", 8, 0, 11, 0, 0)
    yield 0, struct.pack(">HHBBH", 8 + 50 + len(description), 0, 1, 0, 0) + head.ljust(50, b"\0") + description
    yield 1, struct.pack(">HHBBH", 32, 0, 2, 0, 0) + struct.pack(">HHHH", 318, 1, 8_192, 65_535) + bytes(16)
    for n in range(4):
        yield n & 1, struct.pack(">HHBBHH", 10 + 20, 0, 6, 0, 0, 0) + bytes([3, 0x76, n, 1]) * 5


@talk
def bgp_keepalives() -> Lines:
    mark = b"\xff" * 16
    for end in (0, 1):
        yield end, mark + struct.pack(">HBBHHIB", 29, 1, 4, 65_001 + end, 180, 0x0A000001 + end, 0)
    for n in range(6):
        yield n & 1, mark + b"\0\x13\4"


@talk
def amqp_1_0() -> Lines:
    for end in (0, 1):
        yield end, b"AMQP\0\1\0\0"
    for end in (0, 1):
        yield end, sized(b"\2\0\0\0\0\x53\x10\xc0\x10\3\xa1\6client\xa1\4host\x40", extra=4)
    for n in range(5):
        yield (
            n & 1,
            sized(b"\2\0\0\0\0\x53\x14\xc0\x09\5\x43\x52" + bytes([n]) + b"\xa0\1\0\x43\0\x53\x75\xa0\3hey", extra=4),
        )
        yield 1 - (n & 1), struct.pack(">IBBH", 8, 2, 0, 0)


@talk
def amqp_0_9_1() -> Lines:
    yield 0, b"AMQP\0\0\x09\1"
    yield (
        1,
        b"\1\0\0"
        + sized(struct.pack(">HHBB", 10, 10, 0, 9) + sized(b"") + text("PLAIN", ">I") + text("en_US", ">I"))
        + b"\xce",
    )
    yield (
        0,
        b"\1\0\0"
        + sized(struct.pack(">HH", 10, 11) + sized(b"") + b"\5PLAIN" + text("\0a\0b", ">I") + b"\5en_US")
        + b"\xce",
    )
    for n in range(5):
        yield (
            0,
            b"\1\0\1"
            + sized(struct.pack(">HHH", 60, 40, 0) + b"\0\1q\0")
            + b"\xce\2\0\1"
            + sized(struct.pack(">HHQH", 60, 0, 5, 0))
            + b"\xce\3\0\1"
            + sized(b"hello")
            + b"\xce",
        )
        yield 1, b"\1\0\1" + sized(struct.pack(">HHQB", 60, 80, n, 0)) + b"\xce"
    yield 0, b"\x08\0\0\0\0\0\0\xce"


@talk
def mqtt_5() -> Lines:
    yield 0, b"\x10\x13\0\4MQTT\5\2\0\x3c\0\0\6client"
    yield 1, b"\x20\3\0\0\0"
    for n in range(6):
        yield 0, b"\x32\x0d\0\3a/b\0" + bytes([n + 1]) + b"\0hello"
        yield 1, b"\x40\2\0" + bytes([n + 1])
    yield 0, b"\xc0\0"
    yield 1, b"\xd0\0"


@talk
def ldap_search() -> Lines:
    for n in range(1, 6):
        yield 0, b"\x30\x25\2\1" + bytes([n]) + b"\x63\x20\4\4dc=x\x0a\1\0\x0a\1\0\2\1\0\2\1\0\1\1\0\x87\x0bobjectclass"
        yield 1, b"\x30\x0c\2\1" + bytes([n]) + b"\x65\7\x0a\1\0\4\0\4\0"


@talk
def postgres_extended() -> Lines:
    yield 0, sized(struct.pack(">I", 196_608) + b"user\0a\0database\0b\0\0", extra=4)
    yield 1, b"R\0\0\0\x08\0\0\0\0" + b"S" + sized(b"server_version\x0015.1\0", extra=4) + b"Z\0\0\0\5I"
    for n in range(5):
        yield (
            0,
            b"P"
            + sized(b"\0select $1\0\0\0", extra=4)
            + b"B"
            + sized(b"\0\0\0\0\0\1\0\0\0\1%d\0\0" % n, extra=4)
            + b"S\0\0\0\4",
        )
        yield 1, b"1\0\0\0\4" + b"2\0\0\0\4" + b"D" + sized(b"\0\1\0\0\0\1%d" % n, extra=4) + b"Z\0\0\0\5I"


@talk
def postgres_ssl_refused() -> Lines:
    yield 0, struct.pack(">II", 8, 80_877_103)
    yield 1, b"N"
    yield 0, sized(struct.pack(">I", 196_608) + b"user\0a\0\0", extra=4)
    yield 1, b"R\0\0\0\x0c\0\0\0\5salt"


@talk
def mysql_statements() -> Lines:
    """Lengths of three bytes, little-endian, and a sequence number."""
    yield (
        1,
        b"\x4a\0\0\0\x0a8.0.36\0"
        + struct.pack("<I", 8)
        + b"saltsalt\0\xff\xf7\xff\2\0\xff\xdf\x15"
        + bytes(10)
        + b"saltsaltsalt\0caching_sha2\0",
    )
    yield 0, b"\x20\0\0\1" + struct.pack("<II", 0xA685, 1 << 24) + bytes(24)
    yield 1, b"\7\0\0\2\0\0\0\2\0\0\0"
    for n in range(5):
        yield 0, b"\x09\0\0\0\3select %d" % n
        yield (
            1,
            b"\1\0\0\1\1\x17\0\0\2\3def\0\0\0\0011\0\x0c\x3f\0\1\0\0\0\x08\x81\0\0\0\0\2\0\0\3\1%d\7\0\0\4\xfe\0\0\2\0\0\0"
            % n,
        )


@talk
def clickhouse_native() -> Lines:
    """Varints and strings with varint lengths."""
    yield 0, b"\0\x11ClickHouse client\x16\x03\xac\xa9\3\0\7default\0"
    yield 1, b"\0\x0aClickHouse\x16\x03\xac\xa9\3\3UTC\4host\1"
    for n in range(4):
        yield (
            0,
            b"\1\x24"
            + b"0123456789abcdef0123456789abcdef0123"
            + b"\1\0\0\0\x090.0.0.0:0\1\0\0"
            + b"\0\2\0\x08select %d" % n
            + b"\2\0\1\0\2\xff\xff\xff\xff\0\0\0",
        )
        yield 1, b"\1\0\1\0\2\xff\xff\xff\xff\0\1\1\x011\5UInt8" + bytes([n])
        yield 1, b"\3\1\1\0\0\0\5"


@talk
def clickhouse_replication() -> Lines:
    """HTTP between replicas with a body of counts, little-endian."""
    yield 0, b"POST /?endpoint=DataPartsExchange&part=all_0_0_0 HTTP/1.1\r\nHost: a:9009\r\nContent-Length: 0\r\n\r\n"
    yield (
        1,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"40\r\n"
        + struct.pack("<8q", *range(8))
        + b"\r\n0\r\n\r\n",
    )


@talk
def redis_resp3() -> Lines:
    for n in range(6):
        yield 0, b"*3\r\n$3\r\nSET\r\n$5\r\nkey-%d\r\n$2\r\nhi\r\n" % n
        yield 1, b"+OK\r\n"
    yield 0, b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n"
    yield 1, b"%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n"


@talk
def memcached_binary() -> Lines:
    for n in range(6):
        yield 0, struct.pack(">BBHBBHIIQ", 0x80, 0, 3, 0, 0, 0, 3, n, 0) + b"key"
        yield 1, struct.pack(">BBHBBHIIQ", 0x81, 0, 0, 4, 0, 0, 9, n, 1) + bytes(4) + b"value"


@talk
def nats_lines() -> Lines:
    yield 1, b'INFO {"server_id":"N","version":"2.9.10","port":4222,"max_payload":1048576}\r\n'
    yield 0, b'CONNECT {"verbose":false,"lang":"python3"}\r\nPING\r\n'
    yield 1, b"PONG\r\n"
    for n in range(4):
        yield 0, b"PUB a.b 7\r\nhello %d\r\n" % n
        yield 1, b"MSG a.b 1 7\r\nhello %d\r\n" % n


# ---------------------------------------------------------------- games


@talk
def minecraft() -> Lines:
    """Varint lengths: handshake, status, ping."""
    yield 0, b"\x10\0\xff\5\x09127.0.0.1\x63\xdd\1" + b"\1\0"
    status = b'{"version":{"name":"1.20.4","protocol":765},"players":{"max":20,"online":0}}'
    yield 1, varint(len(status) + 2) + b"\0" + varint(len(status)) + status
    for n in range(4):
        yield 0, b"\x09\1" + struct.pack(">q", n)
        yield 1, b"\x09\1" + struct.pack(">q", n)


@talk
def minecraft_play() -> Lines:
    """A game: positions, keep-alives, chunks of which most is zeros."""
    for n in range(4):
        yield 0, b"\x1b\x18" + struct.pack(">ddd", 1.5 * n, 64.0, -3.5) + b"\1" + b"\x09\x15" + struct.pack(">q", n)
        yield 1, b"\xac\2\x25" + struct.pack(">ii", n, -n) + bytes(291)


@talk
def source_rcon() -> Lines:
    """Little-endian size, id, type; two zeros at the end."""
    for n, (kind, word) in enumerate(((3, b"password"), (2, b"status"), (2, b"maps *"), (2, b"users"))):
        yield 0, sized(struct.pack("<ii", n, kind) + word + b"\0\0", "<I")
        yield 1, sized(struct.pack("<ii", n, 0) + b"hostname: x\0\0", "<I")


@talk
def game_updates() -> Lines:
    """Big-endian sizes of two bytes, an opcode, positions."""
    for n in range(12):
        yield n & 1, sized(struct.pack(">HIff", 3 + n % 2, n, 0.5 * n, 1.0), ">H") * 3


@talk
def steam_like() -> Lines:
    """A little-endian size, a magic word, a message's number, a target of eight bytes."""
    for n in range(5):
        for end in (0, 1):
            yield end, sized(b"VT01" + struct.pack("<IIqq", 0x80000000 | 1_303 + end, 10, n, -1) + bytes(20), "<I", -4)


# ---------------------------------------------------------------- text


@talk
def http_pipeline() -> Lines:
    for n in range(4):
        yield 0, b"GET /api/v1/items/%d HTTP/1.1\r\nHost: localhost:9092\r\nAccept: */*\r\n\r\n" % n * 2
        yield 1, b"HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n" + struct.pack(">4i", 12, n, n, 0)


@talk
def http_upload() -> Lines:
    """A body of numbers in several segments: what a capture that begins in it sees."""
    yield 0, b"PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 4000\r\n\r\n"
    for n in range(4):
        yield 0, struct.pack(">250i", *range(250 * n, 250 * n + 250))
    yield 1, b"HTTP/1.1 204 No Content\r\n\r\n"


@talk
def http2_prior_knowledge() -> Lines:
    """h2c: frames have lengths of three bytes, a type, flags, a stream's number."""
    yield (
        0,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\x12\4\0\0\0\0\0" + struct.pack(">HIHIHI", 3, 100, 4, 65_535, 2, 0),
    )
    yield 1, b"\0\0\6\4\0\0\0\0\0" + struct.pack(">HI", 3, 128) + b"\0\0\0\4\1\0\0\0\0"
    for n in range(5):
        yield (
            0,
            b"\0\0\x0d\1\5" + struct.pack(">I", 2 * n + 1) + b"\x82\x86\x84\x41\x8a\x08\x9d\x5c\x0b\x81\x70\xdc\x78",
        )
        yield (
            1,
            b"\0\0\1\1\4"
            + struct.pack(">I", 2 * n + 1)
            + b"\x88"
            + b"\0\0\5\0\1"
            + struct.pack(">I", 2 * n + 1)
            + b"hello",
        )
        yield 0, b"\0\0\4\x08\0\0\0\0\0\0\0\0\5"
    yield 0, b"\0\0\x08\6\0\0\0\0\0" + bytes(8)
    yield 1, b"\0\0\x08\6\1\0\0\0\0" + bytes(8)


@talk
def http2_upgrade() -> Lines:
    yield (
        0,
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: AAMAAABk\r\n\r\n",
    )
    yield 1, b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"


@talk
def grpc_stream() -> Lines:
    """Data frames alone: a flag, a length of four bytes, a protobuf message."""
    for n in range(8):
        message = b"\0" + sized(protobuf(n, b"name", 7))
        yield n & 1, len(message).to_bytes(3, "big") + b"\0\0\0\0\0\1" + message


@talk
def sip() -> Lines:
    yield (
        0,
        b"REGISTER sip:a SIP/2.0\r\nVia: SIP/2.0/TCP 127.0.0.1:5060\r\nCSeq: 1 REGISTER\r\nContent-Length: 0\r\n\r\n",
    )
    yield 1, b"SIP/2.0 200 OK\r\nCSeq: 1 REGISTER\r\nContent-Length: 0\r\n\r\n"
    yield 0, b"\r\n\r\n"
    yield 1, b"\r\n"


@talk
def rtsp_interleaved() -> Lines:
    """Requests as text, then media: a dollar sign, a channel, a length of two bytes, RTP."""
    yield 0, b"SETUP rtsp://h/a RTSP/1.0\r\nCSeq: 1\r\nTransport: RTP/AVP/TCP;interleaved=0-1\r\n\r\n"
    yield 1, b"RTSP/1.0 200 OK\r\nCSeq: 1\r\nSession: 1\r\n\r\n"
    for n in range(5):
        yield 1, b"$\0\0\x20\x80\x60" + struct.pack(">HII", n, 3_000 * n, 7) + bytes(20)


@talk
def ftp_data() -> Lines:
    yield (
        1,
        b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\1\0\0\0\1\x08\6\0\0\0\x1f\x15\xc4\x89\0\0\0\x0dIDAT"
        + bytes(17)
        + b"\0\0\0\0IEND\xae\x42\x60\x82",
    )


@talk
def zip_download() -> Lines:
    for n in range(3):
        yield 1, b"PK\3\4\x14\0\0\0\x08\0" + bytes(16) + b"\5\0\0\0a.txt" + random.Random(n).randbytes(60)


@talk
def mp4_boxes() -> Lines:
    """A size of four bytes and a name of four letters, one in the other."""
    yield 1, sized(b"ftypisom\0\0\2\0isomiso2mp41", extra=4) + sized(b"free", extra=4)
    yield (
        1,
        sized(
            b"moov" + sized(b"mvhd" + struct.pack(">25I", 0, 0, 0, 1_000, 5_000, 65_536, *([0] * 18), 2), extra=4),
            extra=4,
        ),
    )
    for n in range(4):
        yield (
            1,
            sized(b"moof" + sized(b"mfhd" + struct.pack(">II", 0, n), extra=4), extra=4)
            + sized(b"mdat" + bytes(40), extra=4),
        )


@talk
def bittorrent() -> Lines:
    for end in (0, 1):
        yield end, b"\x13BitTorrent protocol" + bytes(8) + b"0123456789abcdefghij" + b"-TR3000-%012d" % end
    yield 0, sized(b"\5" + b"\xff" * 8)
    yield 1, sized(b"\2")
    yield 0, sized(b"\1")
    for n in range(5):
        yield 1, sized(b"\6" + struct.pack(">III", 0, 16_384 * n, 16_384))
        yield 0, sized(b"\7" + struct.pack(">II", 0, 16_384 * n) + bytes(100))
        yield 1, sized(b"\4" + struct.pack(">I", n))
    yield 0, sized(b"")
    yield 1, sized(b"")


@talk
def stomp() -> Lines:
    yield 0, b"CONNECT\naccept-version:1.2\nhost:/\n\n\0"
    yield 1, b"CONNECTED\nversion:1.2\n\n\0"
    for n in range(4):
        yield 0, b"SEND\ndestination:/queue/a\nreceipt:%d\n\nhello\0" % n
        yield 1, b"RECEIPT\nreceipt-id:%d\n\n\0" % n
    yield 0, b"\n"


@talk
def graphite_lines() -> Lines:
    for n in range(5):
        yield 0, b"servers.a.cpu %d 170406720%d\n" % (n, n) * 5


@talk
def graphite_pickle() -> Lines:
    for n in range(5):
        yield (
            0,
            sized(
                b"\x80\2]q\0(X\x0d\0\0\0servers.a.cpuq\1J"
                + struct.pack("<i", n)
                + b"G@\x45\0\0\0\0\0\0\x86q\2\x86q\3e."
            ),
        )


@talk
def fluentd_forward() -> Lines:
    for n in range(4):
        yield 0, b"\x93\xa7app.log\xce" + struct.pack(">I", 1_704_067_200 + n) + b"\x81\xa3msg\xa5hello"


@talk
def logstash_beats() -> Lines:
    """Lumberjack: 2, a letter, counts of four bytes."""
    for _ in range(4):
        events = b"".join(b"2J" + struct.pack(">I", k) + sized(b'{"message":"hello"}') for k in range(1, 4))
        yield 0, b"2W\0\0\0\3" + events
        yield 1, b"2A\0\0\0\3"


# ---------------------------------------------------------------- TLS and noise


def client_hello(extra: int = 64) -> bytes:
    hello = b"\1" + (38 + extra).to_bytes(3, "big") + b"\3\3" + random.Random(1).randbytes(32) + bytes(4) + bytes(extra)
    return b"\x16\3\1" + sized(hello, ">H")


@talk
def tls_1_3() -> Lines:
    chance = random.Random(3)
    yield 0, client_hello()
    yield 1, b"\x16\3\3" + sized(b"\2\0\0\x26\3\3" + chance.randbytes(36), ">H") + b"\x14\3\3\0\1\1"
    for n in range(10):
        yield n & 1, b"\x17\3\3" + sized(chance.randbytes(40 + 30 * n), ">H")


@talk
def tls_after_starttls() -> Lines:
    yield 1, b"220 mail.example.com ESMTP\r\n"
    yield 0, b"STARTTLS\r\n"
    yield 1, b"220 ready\r\n"
    yield 0, client_hello()
    for n in range(6):
        yield n & 1, b"\x17\3\3" + sized(random.Random(n).randbytes(90), ">H")


@talk
def noise() -> Lines:
    chance = random.Random(5)
    for n in range(16):
        yield n & 1, chance.randbytes(chance.randrange(1, 400))


@talk
def zeros() -> Lines:
    for n in range(12):
        yield n & 1, bytes((4, 12, 40, 100)[n % 4])


@talk
def all_ff() -> Lines:
    for n in range(8):
        yield n & 1, b"\xff" * (20 + 10 * n)


@talk
def counting_numbers() -> Lines:
    for n in range(10):
        yield n & 1, struct.pack(">20i", *range(20 * n, 20 * n + 20))


@talk
def counting_shorts() -> Lines:
    for n in range(10):
        yield n & 1, struct.pack(">20h", *range(20 * n, 20 * n + 20))


@talk
def counting_bytes() -> Lines:
    for n in range(8):
        yield n & 1, bytes(range(256))


@talk
def sparse_integers() -> Lines:
    """Small numbers with zeros between them, in both byte orders."""
    chance = random.Random(11)
    for n in range(12):
        form = ">16i" if n < 6 else "<16i"
        yield n & 1, struct.pack(form, *(chance.choice((0, 0, 0, 1, 2, 12, 20, 40)) for _ in range(16)))


@talk
def sparse_shorts() -> Lines:
    chance = random.Random(12)
    for n in range(12):
        yield n & 1, struct.pack(">30h", *(chance.choice((0, 0, 0, 1, 2, 3, 10, 16)) for _ in range(30)))


@talk
def single_bytes() -> Lines:
    for n in range(12):
        yield n & 1, bytes([n])


@talk
def http_proxied() -> Lines:
    """A PROXY header, and something else than Kafka behind it."""
    yield 0, b"PROXY TCP4 192.0.2.7 10.0.0.2 51234 9092\r\nGET / HTTP/1.1\r\nHost: localhost:9092\r\n\r\n"
    yield 1, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
