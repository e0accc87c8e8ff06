"""A broker that leads nearly all partitions of a topic, while others lead none."""

from __future__ import annotations

from collections import Counter, defaultdict

from .. import units
from ..batch import endpoint
from ..counting.count_forms import NUMBER, TEXT
from ..findings import Finding, Party
from ..section_parts.cluster import Cluster
from ..section_parts.counted import BROKER, PLACE, counted, largest, latest, least, total
from ..section_parts.section import SectionInput
from .signature import Signature

#: Kafka spreads the leaders of a topic over its brokers in turns. So one with this share of them is no chance, if there
#: are as many partitions as brokers, and at least so many.
_SHARE, _LEAST_PARTITIONS, _LEAST_BROKERS = 0.8, 4, 3

LEADERS = counted(
    "advice.leaders", BROKER | PLACE, lambda x: (x.leader >= 0) & (x.partition >= 0), of=("metadata partition",),
    responses=total(1), first=least("response_first"), last=largest("response_last"), leader=latest("leader"),
    packet=least("response_packet_last"),
)  # fmt: skip
NODES = counted(
    "advice.nodes", BROKER | {"node": NUMBER, "host": TEXT, "port": NUMBER}, of=("metadata broker",),
    responses=total(1),
)  # fmt: skip
#: Topics in one line at most; the rest is counted.
_NAMED = 3

Rows = list[dict[str, int]]


def _clusters(given: SectionInput) -> dict[tuple[int, int], dict[int, str]]:
    """The nodes (id, address) of the cluster to which each broker belongs, by its address and port: one dict for each
    cluster. Brokers that list the same node are of one cluster: a capture may have several, with the same ids."""
    listed: dict[tuple[int, int], set[tuple[int, str]]] = defaultdict(set)
    for row in given.rows(NODES.name):
        if row["node"] >= 0:
            node = row["node"], f"{given.context.text(row['host'])}:{row['port']}"
            listed[row["broker_ip"], row["broker_port"]].add(node)
    clusters: list[tuple[set[tuple[int, int]], set[tuple[int, str]]]] = []
    for end, nodes in listed.items():
        same = [cluster for cluster in clusters if cluster[1] & nodes]
        clusters = [cluster for cluster in clusters if not cluster[1] & nodes]
        clusters.append(({end}.union(*(c[0] for c in same)), nodes.union(*(c[1] for c in same))))
    made = ((ends, dict(sorted(nodes))) for ends, nodes in clusters)
    return {end: nodes for ends, nodes in made for end in ends}


def led_by(given: SectionInput, node: int, address: str) -> dict[str, list[int]]:
    """The partitions that a node leads by the last answers of brokers that name its address, by topic. Without Kafka's
    own topics."""
    ends = {
        (row["broker_ip"], row["broker_port"])
        for row in given.rows(NODES.name)
        if row["node"] == node and endpoint(given.context.text(row["host"]), row["port"]) == address
    }
    leaders: dict[tuple[str, int], int] = {}
    for row in sorted(given.rows(LEADERS.name), key=lambda row: row["last"]):
        name = given.context.topic(row["topic"], row["topic_id"])
        if name and not name.startswith("__") and (row["broker_ip"], row["broker_port"]) in ends:
            leaders[name, row["partition"]] = row["leader"]
    found: dict[str, list[int]] = {}
    for (name, partition), leader in sorted(leaders.items()):
        if leader == node and partition >= 0:
            found.setdefault(name, []).append(partition)
    return found


def _findings(given: SectionInput) -> list[Finding]:
    """One finding for each leader."""
    clusters = _clusters(given)
    by_identity = {id(nodes): nodes for nodes in clusters.values()}
    topics: dict[tuple[int, str], Rows] = defaultdict(list)
    for row in given.rows(LEADERS.name):
        name = given.context.topic(row["topic"], row["topic_id"])
        nodes = clusters.get((row["broker_ip"], row["broker_port"]))
        if name and not name.startswith("__") and row["partition"] >= 0 and nodes is not None:
            topics[id(nodes), name].append(row)
    hot: dict[tuple[str, int], list[tuple[int, int, str, Rows, int]]] = defaultdict(list)
    for (cluster, name), rows in topics.items():
        nodes = by_identity[cluster]
        leaders = {row["partition"]: row["leader"] for row in sorted(rows, key=lambda row: row["last"])}
        if len(nodes) < _LEAST_BROKERS or len(leaders) < max(_LEAST_PARTITIONS, len(nodes)):
            continue
        leader, count = Counter(leaders.values()).most_common()[0]
        if count >= _SHARE * len(leaders):
            hot[nodes.get(leader, ""), leader].append((count, len(leaders), name, rows, len(nodes)))
    brokers = given.once(Cluster)
    return [
        _finding(brokers.listener_name(address) if address else "", leader, sorted(found, key=lambda o: (-o[0], o[2])))
        for (address, leader), found in hot.items()
    ]


def _finding(address: str, leader: int, found: list[tuple[int, int, str, Rows, int]]) -> Finding:
    count, partitions, topic, _, nodes = found[0]
    topics, rows = [one[2] for one in found], [row for one in found for row in one[3]]
    name = f"broker {leader}" + (f" ({address})" if address else "")
    others = len(topics) - 1
    too = f", and nearly all of {others:,} other topic{'' if others == 1 else 's'}" if others else ""
    text = (
        f"{name} leads {count} of {partitions} partitions of topic {topic} ({units.share(count / partitions)}){too}, "
        f"and there are {nodes} brokers: it does their work alone"
    )
    return HOT_LEADERS.rule.found(
        text, Party("broker", address or f"{leader}"), *(Party("topic", each) for each in topics[:_NAMED]),
        begin=min(row["first"] for row in rows), end=max(row["last"] for row in rows),
        packets=[min(row["packet"] for row in rows)], see=[("sections", "topics")], led=count, partitions=partitions,
        share=count / partitions, brokers=nodes, leader=leader, topics=len(topics),
    )  # fmt: skip


HOT_LEADERS = Signature(
    "hot_leader",
    "one broker leads nearly all partitions of a topic",
    "Metadata responses have one leader for nearly all partitions of a topic, and other brokers.",
    "partition reassignment, auto.leader.rebalance.enable, leader.imbalance.per.broker.percentage",
    "Elect the preferred leaders (`kafka-leader-election.sh --election-type preferred`). If the replicas are all on "
    "one broker, move some (`kafka-reassign-partitions.sh`).",
    f"it leads {_SHARE:.0%} of at least {_LEAST_PARTITIONS} partitions, and of as many as there are brokers, of which "
    f"there are {_LEAST_BROKERS} or more. Time lost: unknown.",
    _findings,
    counts=(LEADERS, NODES),
)
