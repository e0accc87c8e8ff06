"""Sums that several signatures use: the time of each client, from the counts that every report has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import ORPHAN_RESPONSE, WAITS
from kafkatap.kernels.arrays import is_among

from ..counting import tally
from ..counting.count_table import CountTable, distinct_rows
from ..counting.rollup import add_up, group_columns, numbered_rows, value_columns
from ..section_parts.section import SectionInput

_FETCH = 1
#: A quota is the reason why a reader falls back if its throttle time is this part of that time.
THROTTLED = 0.5
#: Columns of requests, with or without a response.
_OUTCOMES = ("answered", "no_reply_expected", "in_flight", "unanswered", "response_lost")
#: A client by the numbers of its client_id and its address.
Client = tuple[int, int]


class Work(NamedTuple):
    """Of one client. `time_ns`: the summed total time of its answered exchanges without their waits for data and
    members. `requests`: by api_key, with or without a response."""

    time_ns: int
    requests: Mapping[int, int]

    @property
    def api_keys(self) -> frozenset[int]:
        """The APIs of its requests."""
        return frozenset(self.requests)

    def requests_of(self, *api_keys: int) -> int:
        """How many requests of some APIs it sent."""
        return sum(self.requests.get(key, 0) for key in api_keys)


class WorkOfClients(Mapping[Client, Work]):
    """The work of each client, from the groups of a report's counts (`counting.tally`)."""

    def __init__(self, groups: CountTable) -> None:
        columns = group_columns(groups, tally.GROUP_KEY)
        values = value_columns(groups, tally.GROUP_VALUES)
        waits = is_among(columns["api_key"], WAITS)
        times = values["total_ns"] - np.where(waits, values["broker_ns"], 0) - values["hol_poll_wait_ns"]
        clients, number = distinct_rows(np.stack((columns["client_id"], columns["client_ip"]), axis=1))
        order = np.argsort(number, kind="stable")
        self._numbers = {(client, ip): n for n, (client, ip) in enumerate(clients.tolist())}
        self._ends = [0, *np.cumsum(np.bincount(number)).tolist()]  # of the groups of each client, in order
        self._times = times[order].tolist()
        self._api_keys = columns["api_key"][order].tolist()
        self._requests = np.asarray(sum(values[name] for name in _OUTCOMES))[order].tolist()

    def __getitem__(self, client: Client) -> Work:
        number = self._numbers[client]
        groups = range(self._ends[number], self._ends[number + 1])
        requests: dict[int, int] = {}
        for group in groups:
            api_key, count = self._api_keys[group], self._requests[group]
            if api_key >= 0 and count:
                requests[api_key] = requests.get(api_key, 0) + count
        return Work(sum(self._times[group] for group in groups), requests)

    def __contains__(self, client: object) -> bool:
        return client in self._numbers

    def __iter__(self) -> Iterator[Client]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


def work_of_clients(given: SectionInput) -> Mapping[Client, Work]:
    """The work of each client."""
    return given.once(_work_of_clients)


def _work_of_clients(given: SectionInput) -> WorkOfClients:
    given.counts.finish()
    return WorkOfClients(given.counts.groups)


def sums_of_clients(given: SectionInput, api_key: int, least: int) -> dict[Client, dict[str, int]]:
    """The values of `counting.tally.GROUP_VALUES` of an API by client, of clients with so many requests at least that
    have a response or expect none. Without small clients, which are added up as one."""
    counts = given.counts
    counts.finish()
    columns = group_columns(counts.groups, tally.GROUP_KEY)
    clients, number = distinct_rows(np.stack((columns["client_id"], columns["client_ip"]), axis=1))
    values = value_columns(counts.groups, tally.GROUP_VALUES)
    is_own = columns["api_key"] == api_key
    requests = np.where(is_own, values["answered"] + values["no_reply_expected"], 0)
    has_many = np.bincount(number, weights=requests, minlength=len(clients)) >= least
    kept = is_own & has_many[number] & (columns["client_ip"] >= 0)
    keys, row_of = numbered_rows(clients[number[kept]])
    rows = np.full(len(number), -1, np.int64)
    rows[kept] = row_of
    rolled = add_up(counts.groups, tally.GROUP_VALUES, counts.histograms, keys, rows)
    return {
        (int(client or 0), int(ip or 0)): {name: int(column[row]) for name, column in rolled.values.items()}
        for row, (client, ip) in enumerate(rolled.keys)
    }


def exchanges_of_clients(given: SectionInput) -> Counter[Client]:
    """How many exchanges of each client were read, with responses of which the request was not captured."""
    counts = given.counts
    counts.finish()
    columns = group_columns(counts.groups, tally.GROUP_KEY)
    sums = counts.groups.value_rows()[:, : ORPHAN_RESPONSE + 1].sum(axis=1)
    found = Counter[Client]()
    for client, ip, exchanges in zip(
        columns["client_id"].tolist(), columns["client_ip"].tolist(), sums.tolist(), strict=True
    ):
        found[client, ip] += exchanges
    return found


def throttle_times(given: SectionInput) -> dict[tuple[str | None, str | None], int]:
    """The summed throttle time of the Fetch responses of each client (address, client_id), ns."""
    context = given.context
    return {
        (context.address(ip), context.text(client)): sums["throttle_time_ms"] * 1_000_000
        for (client, ip), sums in sums_of_clients(given, _FETCH, 1).items()
    }
