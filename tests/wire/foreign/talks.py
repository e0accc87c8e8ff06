"""Both ends of a protocol, or a client against a program that listens and says nothing: `python talks.py NAME`.

Called by `record.py`; each talk needs its library (README.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging.handlers
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

HOST = "127.0.0.1"
TALKS: dict[str, Callable[[], Any]] = {}


def named(name: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    def keep(function: Callable[[], Any]) -> Callable[[], Any]:
        TALKS[name] = function
        return function

    return keep


@contextlib.contextmanager
def background(function: Callable[[], Any], wait: float = 1.0) -> Iterator[None]:
    threading.Thread(target=function, daemon=True).start()
    time.sleep(wait)
    yield


def answering(port: int, answer: Callable[[bytes], bytes]) -> Callable[[], None]:
    """A server that gives each thing it reads to `answer`, and sends what that returns."""

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(65_536):
                connection.sendall(answer(data))

    def listen() -> None:
        with socket.create_server((HOST, port)) as server:
            while True:
                threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()

    return listen


def silent(port: int) -> Callable[[], None]:
    return answering(port, lambda data: b"")


def lines(port: int, *texts: str) -> None:
    with socket.create_connection((HOST, port)) as s:
        s.settimeout(1)
        for text in texts:
            s.sendall(text.encode())
            with contextlib.suppress(TimeoutError):
                s.recv(4_096)


def patiently(call: Callable[[], Any], seconds: float = 4.0) -> None:
    """Call a client that may never come back, for some seconds."""
    thread = threading.Thread(target=lambda: contextlib.suppress(Exception).__enter__() or attempt(call), daemon=True)
    thread.start()
    thread.join(seconds)


def attempt(call: Callable[[], Any]) -> None:
    try:
        call()
    except Exception as error:
        print(type(error).__name__, error)


# ---------------------------------------------------------------- clients of real servers


@named("amqp")
def amqp() -> None:
    import pika

    with pika.BlockingConnection(pika.ConnectionParameters(HOST, heartbeat=2)) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        for n in range(3):
            channel.basic_publish("", "q", b"hello %d" % n)
        connection.process_data_events(3)
        print(channel.basic_get("q", auto_ack=True))


@named("beanstalkd")
def beanstalkd() -> None:
    lines(11_300, "put 1 0 60 5\r\nhello\r\n", "reserve\r\n", "stats\r\n", "delete 1\r\n")


@named("dns")
def dns() -> None:
    import dns.message
    import dns.query

    for name in ("example.com", "a.example.com", "b.example.com"):
        dns.query.tcp(dns.message.make_query(name, "A"), HOST, port=5_353, timeout=3)
    import dnslib

    with socket.create_connection((HOST, 5_353)) as s:
        for kind in ("A", "AAAA", "MX", "TXT"):
            data = dnslib.DNSRecord.question("example.com", kind).pack()
            s.sendall(len(data).to_bytes(2, "big") + data)
            s.recv(4_096)


@named("irc")
def irc() -> None:
    lines(6_667, "NICK alice\r\nUSER alice 0 * :Alice\r\n", "JOIN #a\r\n", "PRIVMSG #a :hello\r\n", "QUIT\r\n")


@named("memcached")
def memcached() -> None:
    from pymemcache.client.base import Client

    client = Client((HOST, 11_211))
    client.set("a", "b" * 100)
    client.get("a")
    client.stats()
    client.close()
    # The binary protocol: no-op, set, get (magic, opcode, key length, extras length, type, status, body length ...).
    with socket.create_connection((HOST, 11_211)) as s:
        for op, extras, key, value in ((10, b"", b"", b""), (1, bytes(8), b"key", b"value"), (0, b"", b"key", b"")):
            body = extras + key + value
            head = bytes((0x80, op)) + len(key).to_bytes(2, "big") + bytes((len(extras), 0, 0, 0))
            s.sendall(head + len(body).to_bytes(4, "big") + bytes(12) + body)
            s.recv(4_096)


@named("mysql")
def mysql() -> None:
    import pymysql

    with pymysql.connect(host=HOST, port=3_307, user="root") as connection, connection.cursor() as cursor:
        for statement in ("select 1", "show databases", "create database d", "create table d.t (a int)"):
            cursor.execute(statement)
            cursor.fetchall()


@named("nats")
def nats() -> None:
    async def talk() -> None:
        import nats as library

        client = await library.connect(f"nats://{HOST}:4222")
        subscription = await client.subscribe("a.b")
        for n in range(3):
            await client.publish("a.b", b"hello %d" % n)
        await subscription.next_msg()
        await client.drain()

    asyncio.run(talk())


@named("rfb")
def rfb() -> None:
    with socket.create_connection((HOST, 5_907)) as s:
        s.settimeout(2)
        for data in (b"RFB 003.008\n", b"\1", b"\1", b"\2\0\0\1\0\0\0\0", b"\3\0\0\0\0\0\0\x40\0\x40"):
            s.recv(4_096)
            s.sendall(data)
        s.recv(65_536)


@named("zookeeper")
def zookeeper() -> None:
    from kazoo.client import KazooClient

    client = KazooClient(hosts=f"{HOST}:21810")
    client.start(timeout=10)
    client.create("/a", b"hello")
    client.get("/a")
    client.get_children("/")
    client.stop()
    client.close()
    lines(21_810, "ruok")


# ---------------------------------------------------------------- both ends


@named("dask")
def dask() -> None:
    from distributed import Client, LocalCluster

    options = {"n_workers": 1, "processes": False, "dashboard_address": None, "protocol": "tcp"}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        print(client.submit(sum, [1, 2]).result())


@named("dcerpc")
def dcerpc() -> None:
    from impacket.dcerpc.v5 import epm, transport
    from impacket.dcerpc.v5.rpcrt import DCERPCServer
    from impacket.uuid import uuidtup_to_bin

    class Server(DCERPCServer):
        def __init__(self) -> None:
            super().__init__()
            self.setListenPort(13_500)
            self.addCallbacks(("E1AF8308-5D1F-11C9-91A4-08002B14A0FA", "3.0"), "\\PIPE\\x", {2: lambda data: bytes(24)})

    server = Server()
    server.start()
    time.sleep(1)
    for _ in range(2):
        client = transport.DCERPCTransportFactory(f"ncacn_ip_tcp:{HOST}[13500]").get_dce_rpc()
        client.connect()
        client.bind(uuidtup_to_bin(("E1AF8308-5D1F-11C9-91A4-08002B14A0FA", "3.0")))
        for _ in range(3):
            request = epm.ept_lookup()
            request["inquiry_type"] = 0
            request["object"] = request["Ifid"] = epm.NULL
            request["vers_option"] = 1
            request["max_ents"] = 5
            patiently(lambda r=request, c=client: c.request(r), 1.0)  # type: ignore[misc]
        client.disconnect()


@named("dicom")
def dicom() -> None:
    from pynetdicom import AE, evt

    verification = "1.2.840.10008.1.1"
    server = AE()
    server.add_supported_context(verification)
    listening = server.start_server((HOST, 11_112), block=False, evt_handlers=[(evt.EVT_C_ECHO, lambda event: 0)])
    client = AE()
    client.add_requested_context(verification)
    association = client.associate(HOST, 11_112)
    for _ in range(3):
        association.send_c_echo()
    association.release()
    listening.shutdown()


@named("echo")
def echo() -> None:
    """Whatever comes is sent back: numbers, lengths and text."""
    with background(answering(7_007, lambda data: data)):
        for data in (
            b"\0\0\0\x10" + bytes(16), b"\0\0\0\x14\0\1\0\2\0\0\0\3\0\4abcd\0\0\0\0\0\0", b"hello\r\n" * 9,
            bytes(range(256)),
            b"\0\0\0\x0c\0\0\0\1\0\0\0\1hi\0\0", b"\0\0\1\0" + b"\0\0\0\1" * 64, bytes(100),
        ):  # fmt: skip
            with socket.create_connection((HOST, 7_007)) as s:
                for _ in range(3):
                    s.sendall(data)
                    s.recv(4_096)


@named("ftp")
def ftp() -> None:
    from ftplib import FTP

    from pyftpdlib.authorizers import DummyAuthorizer
    from pyftpdlib.handlers import FTPHandler
    from pyftpdlib.servers import FTPServer

    FTPHandler.authorizer = DummyAuthorizer()
    FTPHandler.authorizer.add_anonymous(".")
    server = FTPServer((HOST, 2_121), FTPHandler)
    with background(server.serve_forever):
        client = FTP()
        client.connect(HOST, 2_121)
        client.login()
        client.dir()
        client.quit()


@named("grpc")
def grpc() -> None:
    from concurrent import futures

    import grpc as library

    def answer(request: bytes, context: Any) -> bytes:
        return request * 2

    handler = library.method_handlers_generic_handler(
        "shop.Orders", {"Add": library.unary_unary_rpc_method_handler(answer)}
    )
    server = library.server(futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"{HOST}:50051")
    server.start()
    with library.insecure_channel(f"{HOST}:50051") as channel:
        for n in range(5):
            channel.unary_unary("/shop.Orders/Add")(bytes((10, n, *range(n))))
    server.stop(0)


@named("iec104")
def iec104() -> None:
    import c104

    server = c104.Server(ip=HOST, port=2_404)
    point = server.add_station(common_address=47).add_point(io_address=11, type=c104.Type.M_ME_NC_1)
    point.value = 1.5
    client = c104.Client()
    connection = client.add_connection(ip=HOST, port=2_404, init=c104.Init.ALL)
    connection.add_station(common_address=47).add_point(io_address=11, type=c104.Type.M_ME_NC_1)
    server.start()
    client.start()
    time.sleep(4)
    client.stop()
    server.stop()


@named("mllp")
def mllp() -> None:
    import hl7
    from hl7.client import MLLPClient

    message = hl7.parse("MSH|^~\\&|A|B|C|D|20240101||ADT^A01|1|P|2.5\rPID|1||123||Doe^John")

    answer = b"\x0b" + str(message.create_ack()).encode() + b"\x1c\r"
    with background(answering(2_575, lambda data: answer)), MLLPClient(HOST, 2_575) as client:
        for _ in range(3):
            client.send_message(message)


@named("modbus")
def modbus() -> None:
    import struct

    from pymodbus.client import ModbusTcpClient

    def answer(data: bytes) -> bytes:
        transaction, protocol, _, unit, function = struct.unpack_from("!HHHBB", data)
        body = bytes((unit, function, 4, 0, 1, 0, 2)) if function == 3 else data[6:12]
        return struct.pack("!HHH", transaction, protocol, len(body)) + body

    with background(answering(5_020, answer)):
        client = ModbusTcpClient(HOST, port=5_020)
        client.connect()
        for n in range(5):
            client.read_holding_registers(n, count=2)
            client.write_register(n, 7)
        client.close()


@named("opcua")
def opcua() -> None:
    async def talk() -> None:
        from asyncua import Client, Server

        server = Server()
        await server.init()
        server.set_endpoint(f"opc.tcp://{HOST}:4840/")
        async with server, Client(f"opc.tcp://{HOST}:4840/") as client:
            print(await client.get_namespace_array())

    asyncio.run(talk())


@named("openflow")
def openflow() -> None:
    from os_ken.ofproto import ofproto_v1_3, ofproto_v1_3_parser
    from os_ken.ofproto.ofproto_protocol import ProtocolDesc

    protocol = ProtocolDesc(version=ofproto_v1_3.OFP_VERSION)
    parser = ofproto_v1_3_parser

    def message(made: Any, xid: int) -> bytes:
        made.set_xid(xid)
        made.serialize()
        return bytes(made.buf)

    def answer(data: bytes) -> bytes:
        """What a switch says: a hello and an echo are returned, other things are answered by features."""
        kind, xid = data[1], int.from_bytes(data[4:8], "big")
        if kind == ofproto_v1_3.OFPT_HELLO:
            return message(parser.OFPHello(protocol), xid)
        if kind == ofproto_v1_3.OFPT_ECHO_REQUEST:
            return message(parser.OFPEchoReply(protocol, data[8:]), xid)
        return message(parser.OFPSwitchFeatures(protocol, 1, 256, 254, 0, 79), xid)

    makers: tuple[Callable[[], Any], ...] = (
        lambda: parser.OFPHello(protocol), lambda: parser.OFPFeaturesRequest(protocol),
        lambda: parser.OFPEchoRequest(protocol, b"x" * 20), lambda: parser.OFPBarrierRequest(protocol),
        lambda: parser.OFPEchoRequest(protocol),
    )  # fmt: skip
    for port, first in enumerate((0, 1, 0x80001, 0x12345678), 6_653):
        with background(answering(port, answer), 0.3), socket.create_connection((HOST, port)) as s:
            for n, make in enumerate(makers):
                s.sendall(message(make(), first + n))
                s.recv(4_096)


@named("pyro")
def pyro() -> None:
    import Pyro5.api

    @Pyro5.api.expose
    class Shop:
        def price(self, name: str) -> int:
            return len(name)

    daemon = Pyro5.api.Daemon(host=HOST, port=9_099)
    address = daemon.register(Shop, "shop")
    with background(daemon.requestLoop), Pyro5.api.Proxy(address) as shop:
        for name in ("tea", "coffee"):
            shop.price(name)


@named("pysyncobj-raft")
def pysyncobj() -> None:
    from pysyncobj import SyncObj, SyncObjConf, replicated

    class Counter(SyncObj):  # type: ignore[misc]
        def __init__(self, own: str, others: list[str]) -> None:
            super().__init__(own, others, SyncObjConf(autoTick=True))
            self.value = 0

        @replicated  # type: ignore[untyped-decorator]
        def add(self, n: int) -> int:
            self.value += n
            return self.value

    ends = [f"{HOST}:{port}" for port in (4_321, 4_322, 4_323)]
    nodes = [Counter(end, [other for other in ends if other != end]) for end in ends]
    time.sleep(3)
    for n in range(3):
        attempt(lambda n=n: nodes[0].add(n, sync=True, timeout=2))  # type: ignore[misc]


@named("rpyc")
def rpyc() -> None:
    import rpyc as library
    from rpyc.utils.server import ThreadedServer

    class Shop(library.Service):  # type: ignore[misc]
        def exposed_price(self, name: str) -> int:
            return len(name)

    server = ThreadedServer(Shop, hostname=HOST, port=18_861)
    with background(server.start):
        client = library.connect(HOST, 18_861)
        print(client.root.price("tea"), client.root.price("coffee"))
        client.close()


@named("s7")
def s7() -> None:
    import snap7

    server = snap7.Server()
    server.register_area(snap7.SrvArea.DB, 1, bytearray(64))
    server.start(tcp_port=10_102)
    time.sleep(1)
    client = snap7.Client()
    client.connect(HOST, 0, 1, 10_102)
    for n in range(3):
        attempt(lambda n=n: client.db_read(1, n, 8))  # type: ignore[misc]
    client.disconnect()
    server.stop()


@named("smpp")
def smpp() -> None:
    """A client's library on both ends: PDUs that it makes, answered by their headers."""
    import struct

    import smpplib.client

    def answer(data: bytes) -> bytes:
        answers = b""
        while len(data) >= 16:
            length, command, _, sequence = struct.unpack_from("!IIII", data)
            body = {9: b"smsc\0", 2: b"smsc\0", 1: b"smsc\0", 4: b"%d\0" % sequence}.get(command, b"")
            answers += struct.pack("!IIII", 16 + len(body), command | 1 << 31, 0, sequence) + body
            data = data[length:]
        return answers

    for n, bind in enumerate(("bind_transceiver", "bind_transmitter", "bind_receiver")):
        with background(answering(2_775 + n, answer), 0.3):
            client = smpplib.client.Client(HOST, 2_775 + n, timeout=1)
            client.connect()
            getattr(client, bind)(system_id="shop", password="pw")
            for k in range(3 if n < 2 else 0):
                client.send_message(
                    source_addr="100", destination_addr=f"2000{k}", short_message=b"hello there", source_addr_ton=1,
                    dest_addr_ton=1, source_addr_npi=1, dest_addr_npi=1,
                )  # fmt: skip
                attempt(client.read_once)
            attempt(client.unbind)
            attempt(client.disconnect)


@named("smtp")
def smtp() -> None:
    import smtplib

    from aiosmtpd.controller import Controller
    from aiosmtpd.handlers import Sink

    controller = Controller(Sink(), hostname=HOST, port=2_525)
    controller.start()
    with smtplib.SMTP(HOST, 2_525) as client:
        client.sendmail("a@example.com", ["b@example.com"], "Subject: hello\r\n\r\nhello\r\n")
    controller.stop()


@named("syslog")
def syslog() -> None:
    with background(silent(6_514)):
        handler = logging.handlers.SysLogHandler((HOST, 6_514), socktype=socket.SOCK_STREAM)
        for n in range(5):
            handler.emit(logging.makeLogRecord({"msg": f"hello {n}", "levelno": 20}))


@named("thrift")
def thrift() -> None:
    """A framed transport (a size before each message), with and without the strict binary protocol."""
    from thrift.protocol import TBinaryProtocol, TCompactProtocol
    from thrift.Thrift import TMessageType, TType
    from thrift.transport import TSocket, TTransport

    def make(strict: bool, compact: bool, transport: Any) -> Any:
        if compact:
            return TCompactProtocol.TCompactProtocol(transport)
        return TBinaryProtocol.TBinaryProtocol(transport, strictRead=False, strictWrite=strict)

    def say(protocol: Any, name: str, kind: int, number: int, text: str) -> None:
        protocol.writeMessageBegin(name, kind, number)
        protocol.writeStructBegin("args")
        protocol.writeFieldBegin("key", TType.STRING, 1)
        protocol.writeString(text)
        protocol.writeFieldEnd()
        protocol.writeFieldStop()
        protocol.writeStructEnd()
        protocol.writeMessageEnd()
        protocol.trans.flush()

    for port, (strict, compact) in enumerate(((True, False), (False, False), (True, True)), 9_190):

        def answer(data: bytes, strict: bool = strict, compact: bool = compact) -> bytes:
            name, _, number = make(
                strict, compact, TTransport.TFramedTransport(TTransport.TMemoryBuffer(data))
            ).readMessageBegin()
            memory = TTransport.TMemoryBuffer()
            say(make(strict, compact, TTransport.TFramedTransport(memory)), name, TMessageType.REPLY, number, "hello")
            return bytes(memory.getvalue())

        with background(answering(port, answer), 0.3):
            transport = TTransport.TFramedTransport(TSocket.TSocket(HOST, port))
            transport.open()
            for n in range(5):
                protocol = make(strict, compact, transport)
                say(protocol, "get", TMessageType.CALL, n, f"key-{n}")
                protocol.readMessageBegin()
                protocol.skip(TType.STRUCT)
            transport.close()


@named("websocket")
def websocket() -> None:
    async def talk() -> None:
        import websockets

        async def each(connection: Any) -> None:
            async for message in connection:
                await connection.send(message)

        async with websockets.serve(each, HOST, 8_765), websockets.connect(f"ws://{HOST}:8765") as client:
            for text in ("hello", "x" * 300, b"\0\0\0\x10\0\3\0\1"):
                await client.send(text)
                await client.recv()

    asyncio.run(talk())


@named("zeromq")
def zeromq() -> None:
    import zmq

    context = zmq.Context()
    server, client = context.socket(zmq.REP), context.socket(zmq.REQ)
    server.bind(f"tcp://{HOST}:5566")
    client.connect(f"tcp://{HOST}:5566")
    for n in range(3):
        client.send(b"hello %d" % n)
        server.send(server.recv())
        client.recv()


# ---------------------------------------------------------------- clients that nobody answers


@named("bolt-lone")
def bolt() -> None:
    from neo4j import GraphDatabase

    with background(silent(7_687)):
        patiently(lambda: GraphDatabase.driver(f"bolt://{HOST}:7687", auth=("a", "b")).verify_connectivity())


@named("cassandra-lone")
def cassandra() -> None:
    from cassandra.cluster import Cluster

    with background(silent(9_042)):
        patiently(lambda: Cluster([HOST], connect_timeout=2).connect())


@named("clickhouse-lone")
def clickhouse() -> None:
    from clickhouse_driver import Client

    with background(silent(9_000)):
        patiently(lambda: Client(HOST, connect_timeout=2).execute("select 1"))


@named("firebird-lone")
def firebird() -> None:
    import firebirdsql

    with background(silent(3_050)):
        patiently(lambda: firebirdsql.connect(host=HOST, database="/a", user="u", password="p"))


@named("mongodb-lone")
def mongodb() -> None:
    import pymongo

    with background(silent(27_018)):
        patiently(lambda: pymongo.MongoClient(HOST, 27_018, serverSelectionTimeoutMS=2_000).server_info())


@named("oracle-lone")
def oracle() -> None:
    import oracledb

    with background(silent(1_521)):
        patiently(lambda: oracledb.connect(user="a", password="b", dsn=f"{HOST}:1521/x", tcp_connect_timeout=2))


@named("pulsar-lone")
def pulsar() -> None:
    import pulsar as library

    with background(silent(6_650)):
        patiently(lambda: library.Client(f"pulsar://{HOST}:6650", operation_timeout_seconds=2).create_producer("t"))


@named("stomp-lone")
def stomp() -> None:
    import stomp as library

    with background(silent(61_613)):
        patiently(lambda: library.Connection([(HOST, 61_613)]).connect("a", "b", wait=True))


@named("tds-lone")
def tds() -> None:
    import pytds

    with background(silent(1_433)):
        patiently(lambda: pytds.connect(HOST, "d", "u", "p", port=1_433, login_timeout=2))


@named("xmpp-lone")
def xmpp() -> None:
    with background(silent(5_222)):
        lines(5_222, "<?xml version='1.0'?><stream:stream to='example.com' xmlns='jabber:client' version='1.0'>")


if __name__ == "__main__":
    TALKS[sys.argv[1]]()
