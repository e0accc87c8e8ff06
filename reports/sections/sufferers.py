"""Whose fault slow requests are, by counting who suffers: a broker, a host, all brokers, or the client if that cannot
be told.

A client of a host, at a broker, suffers if its share of slow requests is like that of the others that are slow, and it
has two. It is well if it has far fewer, and asked so often that they would show. Then:

broker    clients of several hosts suffer at it, few are well there, and at least two are well at other brokers
cluster   clients of several hosts suffer at two brokers or more, and few are well at any
host      packets to its clients, or these themselves, are slow; at least two of other hosts are well at its brokers

No broker is accused of what one client lost nearly alone. One client_id everywhere may be the reason itself, unless it
is well at other brokers, or at other hosts. Broker time begins when a request is whole, so no host of a client is the
reason of that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from kafkatap.kernels.arrays import is_among

from ..counting import tally
from ..counting.count_forms import NUMBER
from ..counting.rollup import group_columns, value_columns
from ..section_parts.cluster import Cluster
from ..section_parts.counted import PAIR, counted, is_slow, largest, total
from ..section_parts.section import SectionInput
from .slow_times import MEMBER_WAITS, slow_ns

#: Slow requests by who asked whom.
SUFFERED = counted(
    "events.suffered", PAIR | {"api_key": NUMBER}, lambda x: is_slow(x) & ~is_among(x.api_key, MEMBER_WAITS),
    last=largest("response_last"), requests=total(1), ns=total(slow_ns),
)  # fmt: skip
#: What holds for so many of those that suffer, or of their time, is the rule.
MOSTLY = 0.8
#: The least share of slow requests of one that suffers: that of a 99th percentile.
_LEAST_SHARE = 0.01
#: One that is well has less than this part of the slow requests that it would have as a sufferer, which are at least so
#: many: by chance it would have none once in twenty times.
_FEW, _EXPECTED = 0.25, 3.0
#: So many suffer, or are well on the other side, before somebody is accused.
_SEVERAL = 2


class Unit(NamedTuple):
    """The clients of a client_id at a host, and a broker that they ask."""

    client: str | None
    host: str | None
    broker: str


class Asked(NamedTuple):
    """How many answers a unit had of an API, how many of these were slow, and their time, ns."""

    answered: int
    slow: int = 0
    ns: int = 0


class Units(NamedTuple):
    """All that asked brokers: `asked` by API. `brokers`: the name of each end, by the numbers of address and port."""

    asked: Mapping[Unit, Mapping[int, Asked]]
    brokers: Mapping[tuple[int, int], str]

    def without(self, clients: Collection[str | None]) -> Units:
        asked = {unit: of for unit, of in self.asked.items() if unit.client not in clients}
        return self._replace(asked=asked)


def units(given: SectionInput) -> Units | None:
    """None if there were too many for the memory, or none was slow."""
    keys, values = given.keys(SUFFERED.name), given.values(SUFFERED.name)
    if not len(keys["api_key"]) or (keys["broker_ip"] < 0).any():
        return None
    found: dict[Unit, dict[int, Asked]] = defaultdict(dict)
    groups = group_columns(given.counts.groups, tally.GROUP_KEY)
    answered = value_columns(given.counts.groups, tally.GROUP_VALUES)["answered"]
    for unit, api, (count,) in _named(given, groups, answered[:, None]):
        found[unit][api] = Asked(found[unit].get(api, Asked(0)).answered + count)
    slow = np.stack((values["requests"], values["ns"]), axis=1)
    for unit, api, (requests, ns) in _named(given, keys, slow):
        before = found[unit].get(api, Asked(0))
        found[unit][api] = Asked(max(before.answered, requests), before.slow + requests, before.ns + ns)
    ends = set(zip(groups["broker_ip"].tolist(), groups["broker_port"].tolist(), strict=True))
    brokers, numbers = given.once(Cluster), np.array(sorted(ends), np.int64).reshape(-1, 2)
    at = brokers.of(numbers[:, 0], numbers[:, 1]).tolist()
    names = {end: brokers.name(one) for end, one in zip(sorted(ends), at, strict=True) if one >= 0}
    return Units(found, names)


def _named(
    given: SectionInput, keys: Mapping[str, np.ndarray], values: np.ndarray
) -> Iterable[tuple[Unit, int, list[int]]]:
    context, brokers = given.context, given.once(Cluster)
    at = brokers.of(keys["broker_ip"], keys["broker_port"])
    columns = (keys["client_id"].tolist(), keys["client_ip"].tolist(), at.tolist(), keys["api_key"].tolist())
    for client, host, broker, api, value in zip(*columns, values.tolist(), strict=True):
        if broker >= 0 and api >= 0:
            yield Unit(context.text(client), context.address(host), brokers.name(broker)), api, value


class Suffering(NamedTuple):
    """`every`: all units that asked. `brokers`: all of the capture. `hit`: those that suffer, with the time of their
    slow requests; `well`: those that do not."""

    every: frozenset[Unit]
    brokers: int
    hit: Mapping[Unit, int]
    well: frozenset[Unit]


def suffering(found: Units, apis: Collection[int], clients: Collection[str | None]) -> Suffering:
    """Who suffers of the slow requests of some clients and APIs, and who does not."""
    asked = {
        unit: {api: one for api, one in of.items() if api in apis and one.answered} for unit, of in found.asked.items()
    }
    asked = {unit: of for unit, of in asked.items() if of}
    share: dict[int, float] = {}
    for api in apis:
        slow = [
            of[api] for unit, of in asked.items()
            if unit.client in clients and api in of and of[api].slow >= _LEAST_SHARE * of[api].answered
        ]  # fmt: skip
        share[api] = sum(one.slow for one in slow) / max(sum(one.answered for one in slow), 1)
    hit, well = {}, set()
    for unit, of in asked.items():
        expected = sum(share[api] * one.answered for api, one in of.items())
        slow_ones = sum(one.slow for one in of.values())
        if slow_ones >= max(_SEVERAL, _FEW * expected):
            hit[unit] = sum(one.ns for one in of.values())
        elif expected >= _EXPECTED:
            well.add(unit)
    return Suffering(frozenset(asked), len({unit.broker for unit in found.asked}), hit, frozenset(well))


class Fault(NamedTuple):
    """Whose fault it is. `kind`: broker, host or cluster; `names`: of the broker, the host, or the brokers. `of`: the
    units that suffer of it; `well`: those on the other side that do not."""

    kind: str
    names: tuple[str, ...]
    of: frozenset[Unit]
    well: frozenset[Unit] = frozenset()


def fault(place: str, found: Suffering) -> Fault | None:
    """`place`: where the time went, as a verdict. None: whose fault it is cannot be told."""
    if len(_hosts(found.every)) < _SEVERAL or not found.hit:
        return None
    if len(_hosts(found.hit)) < _SEVERAL:
        return _of_host(found) if place in ("network", "client", "unknown") else None
    time: dict[tuple[str | None, str | None], int] = defaultdict(int)
    for unit, ns in found.hit.items():
        time[unit.client, unit.host] += ns
    if max(time.values()) > MOSTLY * sum(time.values()):
        return None  # one client lost nearly all of it
    return None if place == "client" else _of_broker(place, found) or _of_cluster(found)


def _of_broker(place: str, found: Suffering) -> Fault | None:
    time: dict[str, int] = defaultdict(int)
    for unit, ns in found.hit.items():
        time[unit.broker] += ns
    worst = max(time, key=lambda name: (time[name], name))
    hit, well = _at(found.hit, worst), _at(found.well, worst)
    others_hit, others_well = found.hit.keys() - hit, found.well - well
    if time[worst] < MOSTLY * sum(time.values()) or len(_hosts(hit)) < _SEVERAL or not _are_most(hit, well):
        return None
    if found.brokers == 1:
        is_told = place != "head-of-line" and len(_clients(hit)) >= _SEVERAL
    else:
        is_told = len(people(others_well)) >= _SEVERAL and _are_most(others_well, others_hit)
        is_told = is_told and (len(_clients(hit)) >= _SEVERAL or bool(_clients(hit) & _clients(others_well)))
    return Fault("broker", (worst,), hit, others_well) if is_told else None


def _of_cluster(found: Suffering) -> Fault | None:
    brokers = {unit.broker for unit in (*found.hit, *found.well)}
    several = [name for name in brokers if len(_hosts(_at(found.hit, name))) >= _SEVERAL]
    is_told = len(several) >= _SEVERAL and len(_clients(found.hit)) >= _SEVERAL
    if not is_told or not all(_are_most(_at(found.hit, name), _at(found.well, name)) for name in brokers):
        return None
    addresses = {name.rpartition(":")[0] for name in brokers}
    if len(addresses) == 1:
        return Fault("host", (addresses.pop().strip("[]"),), frozenset(found.hit))
    return Fault("cluster", tuple(sorted(brokers)), frozenset(found.hit))


def _of_host(found: Suffering) -> Fault | None:
    (host,) = _hosts(found.hit)
    brokers = {unit.broker for unit in found.hit}
    well = frozenset(unit for unit in found.well if unit.host != host and unit.broker in brokers)
    mine = frozenset(unit for unit in found.well if unit.host == host)
    is_told = len(_clients(found.hit)) >= _SEVERAL or bool(_clients(found.hit) & _clients(well))
    if host is None or not is_told or len(people(well)) < _SEVERAL or not _are_most(found.hit, mine):
        return None
    return Fault("host", (host,), frozenset(found.hit), well)


def _are_most(some: Collection[Unit], others: Collection[Unit]) -> bool:
    return len(some) >= MOSTLY * (len(some) + len(others))


def _at(found: Iterable[Unit], broker: str) -> frozenset[Unit]:
    return frozenset(unit for unit in found if unit.broker == broker)


def _hosts(found: Iterable[Unit]) -> set[str | None]:
    return {unit.host for unit in found}


def _clients(found: Iterable[Unit]) -> set[str | None]:
    return {unit.client for unit in found}


def people(found: Iterable[Unit]) -> set[tuple[str | None, str | None]]:
    return {(unit.client, unit.host) for unit in found}


def numbers_of(found: Suffering, of: Collection[Unit]) -> dict[str, int]:
    """How many hosts, clients and brokers suffer, and how many could have: those that made such requests."""
    made: dict[str, int] = {}
    for name, count in (("hosts", _hosts), ("clients", people)):
        made |= {name: len(count(of)), f"of_{name}": len(count(found.every))}
    return made | {"brokers": len({unit.broker for unit in of}), "of_brokers": len({u.broker for u in found.every})}
