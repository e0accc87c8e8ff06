"""Record connections that something ends at an age: `session-expired`, `lifetime-limit`, and each with `-right`.

    python samples/advice/make_lifetimes.py [FOLDER]        (as root: it makes network namespaces)

session-expired  a broker with `connections.max.reauth.ms=4000`: `invoice` (aiokafka) does not authenticate again,
                 `stock` (kafka-python) does; then the same without this limit. The truth has when the broker closed
                 `invoice`'s connections, as aiokafka noticed it
lifetime-limit   a proxy before the broker closes each connection that is 12 s old; three writers of librdkafka connect
                 at different times; then the same with a proxy that does not. The truth has the proxy's connections:
                 when each began and ended, by the script's clock
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.cluster import CONTROLLER_PORT, PORT, Cluster  # noqa: E402
from tests.support.namespaces import Host, Network, recorded_at  # noqa: E402
from tests.support.question_scripts import client, main, publish  # noqa: E402

BROKER, PROXY = "10.77.0.1", "10.77.0.9"
#: Ports of the listeners: SASL with short sessions and with long ones; behind the proxy with a limit, and without.
SHORT, LONG, BEHIND, FREE = 9492, 9592, 9692, 9792
LIFETIME_MS, LIMIT, NO_LIMIT = 4000, 12.0, 3600.0
PASSWORD = "made-up-4711"
LOGIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_shop="{PASSWORD}";'
STARTS = (0.0, 3.5, 7.0)


def properties(_: int) -> dict[str, str]:
    listeners = {
        "PLAINTEXT": PORT,
        "SHORT": SHORT,
        "LONG": LONG,
        "BEHIND": BEHIND,
        "FREE": FREE,
        "CONTROLLER": CONTROLLER_PORT,
    }
    advertised = [f"{name}://{BROKER}:{listeners[name]}" for name in ("PLAINTEXT", "SHORT", "LONG")]
    kinds = {name: "SASL_PLAINTEXT" if name in ("SHORT", "LONG") else "PLAINTEXT" for name in listeners}
    return {
        "listeners": ",".join(f"{name}://{BROKER}:{port}" for name, port in listeners.items()),
        "advertised.listeners": ",".join(
            [*advertised, f"BEHIND://{PROXY}:{BEHIND}", f"FREE://{PROXY}:{FREE}"]
        ),
        "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in kinds.items()),
        "inter.broker.listener.name": "PLAINTEXT", "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.short.plain.sasl.jaas.config": LOGIN, "listener.name.long.plain.sasl.jaas.config": LOGIN,
        "listener.name.short.plain.connections.max.reauth.ms": str(LIFETIME_MS),
    }  # fmt: skip


def write_with_aiokafka(bootstrap: str, seconds: float) -> None:
    """`invoice`: prints the times at which its connections were closed, and how many records were written."""
    import aiokafka.conn

    closed: list[float] = []
    close = aiokafka.conn.AIOKafkaConnection.close

    def noted(self: object, reason: object = None, exc: object = None) -> object:
        if reason == aiokafka.conn.CloseReason.CONNECTION_BROKEN:
            closed.append(round(time.time(), 3))
        return close(self, reason, exc)

    aiokafka.conn.AIOKafkaConnection.close = noted

    async def write() -> int:
        count, end = 0, time.monotonic() + seconds
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, client_id="invoice", security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN", sasl_plain_username="shop", sasl_plain_password=PASSWORD,
        ) as producer:  # fmt: skip
            while time.monotonic() < end:
                await producer.send_and_wait("orders", b"x" * 60)
                count += 1
                await asyncio.sleep(0.3)
        return count

    count = asyncio.run(write())
    print(json.dumps({"written": count, "closed": closed}))


def write_with_kafka_python(bootstrap: str, seconds: float) -> None:
    """`stock`: prints how many records were written."""
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=bootstrap, client_id="stock", security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN",
        sasl_plain_username="shop", sasl_plain_password=PASSWORD,
    )  # fmt: skip
    count, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        producer.send("orders", b"x" * 60).get(10)
        count += 1
        time.sleep(0.3)
    producer.close(5)
    print(json.dumps({"written": count}))


def proxy(limit: float, port: int) -> None:
    """Pass on connections to the broker, and end each that is `limit` seconds old. Prints their begin and end."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        began = time.time()
        to_broker = await asyncio.open_connection(BROKER, port)
        tasks = [asyncio.ensure_future(copy(*pair)) for pair in ((reader, to_broker[1]), (to_broker[0], writer))]
        done, _ = await asyncio.wait(tasks, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        for one in tasks:
            one.cancel()
        writer.close()
        to_broker[1].close()
        ended = "a client or the broker" if done else "proxy"
        print(json.dumps({"began": round(began, 3), "ended": round(time.time(), 3), "by": ended}), flush=True)

    async def listen() -> None:
        server = await asyncio.start_server(serve, PROXY, port)
        await server.serve_forever()

    asyncio.run(listen())


def here(host: Host, *words: str) -> list[str]:
    """The command line of this script at a host."""
    return host.command([sys.executable, str(Path(__file__).resolve()), *words])


def sessions(shop: Host, work: Path, folder: Path) -> None:
    for name, port, seconds in (("session-expired", SHORT, 15.0), ("session-expired-right", LONG, 9.0)):
        with recorded_at(shop, work, f"tcp port {port}") as raw:
            runs = {
                who: subprocess.Popen(
                    here(shop, f"--{who}", f"{BROKER}:{port}", str(seconds)), stdout=subprocess.PIPE, text=True
                )
                for who in ("invoice", "stock")
            }
            seen = {who: json.loads(run.communicate(timeout=60)[0].splitlines()[-1]) for who, run in runs.items()}
        publish(folder, name, raw)
        lifetime = LIFETIME_MS if port == SHORT else None
        write_truth(folder, name, {"lifetime_ms": lifetime, "clients": seen})


def limits(shop: Host, balancer: Host, work: Path, folder: Path) -> None:
    for name, limit, port in (("lifetime-limit", LIMIT, BEHIND), ("lifetime-limit-right", NO_LIMIT, FREE)):
        log = work / f"{name}.proxy.log"
        process = balancer.start([sys.executable, str(Path(__file__).resolve()), "--proxy", str(limit), str(port)], log)
        time.sleep(1)
        with recorded_at(shop, work, f"tcp port {port}") as raw:
            began, runs = time.monotonic(), []
            for number, start in enumerate(STARTS):
                time.sleep(max(0.0, began + start - time.monotonic()))
                seconds = 44 - start
                settings = {"topic": "orders", "count": 10_000, "size": 60, "pause": 0.3, "seconds": seconds}
                settings |= {"bootstrap.servers": f"{PROXY}:{port}", "client.id": f"writer-{number}"}
                words = ["tests.support.run_client", "produce", json.dumps(settings)]
                command = shop.command([sys.executable, "-m", *words])
                runs.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT))
            seen = [json.loads(run.communicate(timeout=90)[0]) for run in runs]
        process.terminate()
        process.wait(10)
        publish(folder, name, raw)
        rows = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
        write_truth(folder, name, {"limit_s": limit, "connections": rows, "clients": seen})


def write_truth(folder: Path, name: str, truth: dict[str, object]) -> None:
    (folder / f"{name}.truth.json").write_text(json.dumps(truth, indent=1) + "\n")


def record(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as named, Network() as network:
        work = Path(named)
        broker, shop = network.host("broker1", BROKER), network.host("shop", "10.77.0.21")
        balancer = network.host("balancer", PROXY)
        with Cluster.start(work / "cluster", [broker], each=properties) as cluster:
            client(shop, "create", cluster.bootstrap, "ops-admin", {"topic": "orders", "replicas": [[1]]})
            sessions(shop, work, folder)
            limits(shop, balancer, work, folder)


def parts(words: Sequence[str]) -> None:
    """What this script runs at hosts."""
    kind, *rest = words
    if kind == "--proxy":
        proxy(float(rest[0]), int(rest[1]))
    elif kind == "--invoice":
        write_with_aiokafka(rest[0], float(rest[1]))
    else:
        write_with_kafka_python(rest[0], float(rest[1]))


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].startswith("--"):
        parts(sys.argv[1:])
        sys.exit()
    sys.exit(main(record, sys.argv[1:], FOLDER))
