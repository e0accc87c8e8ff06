"""Record requests that time out on connections with losses: `patience.pcap.zst`, with the clients' lines beside it.

    python samples/questions/make_patience.py [FOLDER]        (as root: tcpdump records loopback)

The clients wait 1.5 s for a response. A firewall drops the packets of `steady` (producer) and `hasty` (consumer) for
0.7 s, so that they send data again, and all of it arrives. 2 s later the broker stops for 4 s (SIGSTOP): `steady` gives
up requests that the broker's host acknowledged. `hasty` closes while a Fetch waits. Then the packets of `cut-off` are
dropped for good: nothing acknowledges its request, and its retry on another connection is answered. All runs in a
network namespace of its own. `patience.client.log.tsv` has the clients' lines (time in ms, text),
`patience.truth.json` the steps.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from samples.questions import make_timeouts  # noqa: E402
from samples.questions.make_timeouts import LINES, PLAIN, TIMEOUTS, drop, ports_of, stopped  # noqa: E402
from tests.support.questions import Scene, log_lines, now_ms, scene  # noqa: E402


def play(made: Scene) -> None:
    made.create_topics({"orders": 1, "refunds": 1, "empty": 1})
    shell = made.java_clients()
    ports: dict[str, set[int]] = {}
    for client, topic in (("steady", "orders"), ("cut-off", "refunds")):
        before = ports_of(made)
        shell.do(client, "producer", TIMEOUTS | PLAIN)
        shell.do(client, "send", topic=topic, bytes=60, count=2)
        ports[client] = ports_of(made) - before
    before = ports_of(made)
    shell.do("hasty", "consumer", {"topics": "empty", "group.id": "hasty", "fetch.max.wait.ms": 500})
    writing = shell.start("steady", "send", topic="orders", count=40, bytes=60, interval_ms=250)
    time.sleep(2)
    ports["hasty"] = ports_of(made) - before - ports["steady"]
    made.truth["ports"] = {client: sorted(found) for client, found in ports.items()}
    start = now_ms()
    drop("-A", made, ports["steady"] | ports["hasty"])
    time.sleep(0.7)
    drop("-D", made, ports["steady"] | ports["hasty"])
    made.truth["steps"] = [{"step": "dropped", "from_ms": start, "to_ms": now_ms()}]
    time.sleep(2)
    stopped(made, "stopped", 4)
    time.sleep(1)
    made.truth["steps"].append({"step": "closed", "from_ms": now_ms()})
    shell.do("hasty", "close")
    made.truth["steps"].append({"step": "cut off", "from_ms": now_ms()})
    drop("-A", made, ports["cut-off"])
    shell.do("cut-off", "send", topic="refunds", count=1, bytes=60)
    writing.result()
    time.sleep(1)
    kept = sorted(log_lines(shell.log, LINES))
    made.files["client.log.tsv"] = "".join(f"{at}\t{text}\n" for at, text in kept)


def record(folder: Path) -> None:
    with scene("patience", folder, client_loggers={"org.apache.kafka.clients": "info"}) as made:
        play(made)


if __name__ == "__main__":
    sys.exit(make_timeouts.main(sys.argv[1:], record))
