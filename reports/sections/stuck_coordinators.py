"""Who names a broker as a coordinator that refuses (NOT_COORDINATOR): clients ask again, and are sent back to it."""

from __future__ import annotations

from collections import Counter, defaultdict

from ..finding_words import counted, listed
from ..section_parts.cluster import Cluster
from ..section_parts.section import SectionInput
from .event_counts import COORDINATOR, ERRORS

NOT_COORDINATOR = 16
#: So often after it refused: clients ask a broker that has not heard of a move once or twice.
_LEAST = 3


def stuck_coordinator(given: SectionInput) -> str | None:
    """`FindCoordinator at 10.0.0.2:9092 named broker 1 (10.0.0.1:9092) 9 times meanwhile, which refuses`: of the broker
    that was named most often after it refused the same client; None if that client was sent to another one."""
    given = given.learned_by("events")
    cluster = given.once(Cluster)
    refused: dict[tuple[int, int], dict[int, list[int]]] = defaultdict(dict)  # by client: the brokers, first and last
    keys, values = given.keys(ERRORS.name), given.values(ERRORS.name)
    is_mine = keys["error_code"] == NOT_COORDINATOR
    brokers = cluster.of(keys["broker_ip"][is_mine], keys["broker_port"][is_mine]).tolist()
    columns = (keys["client_ip"], keys["client_id"], values["first"], values["last"])
    for broker, ip, client, first, last in zip(brokers, *(c[is_mine].tolist() for c in columns), strict=True):
        span = refused[ip, client].setdefault(broker, [first, last])
        span[:] = min(span[0], first), max(span[1], last)
    if not refused:
        return None
    rows = COORDINATOR.among(given.events("events"))
    by = cluster.of(rows["broker_ip"].astype("i8"), rows["broker_port"].astype("i8")).tolist()
    names = ("time", "node", "client_ip", "client_id")
    named: dict[int, Counter[str]] = defaultdict(Counter)
    others: Counter[int] = Counter()
    for answering, time, node, ip, client in zip(by, *(rows[name].tolist() for name in names), strict=True):
        for broker, (first, last) in refused.get((ip, client), {}).items():
            if first < time <= last and answering >= 0:
                if cluster.nodes[broker] == node:
                    named[broker][cluster.name(answering)] += 1
                else:
                    others[broker] += 1
    found = [(times.total(), broker) for broker, times in named.items() if not others[broker]]
    most, broker = max(found, default=(0, -1))
    if most < _LEAST:
        return None
    who = listed([name for name, _ in named[broker].most_common()])
    return f"FindCoordinator at {who} named {cluster.label(broker)} {counted(most, 'time')} meanwhile, which refuses"
