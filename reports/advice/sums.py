"""Sums that several signatures use: the time of each client, from the counts that every report has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import ORPHAN_RESPONSE, WAITS
from kafkatap.kernels.arrays import is_among

from ..counting import tally
from ..counting.rollup import group_columns, roll_up, value_columns
from ..section_parts.section import SectionInput

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


def work_of_clients(given: SectionInput) -> Mapping[Client, Work]:
    """The work of each client."""
    return given.once(_work_of_clients)


def _work_of_clients(given: SectionInput) -> dict[Client, Work]:
    counts = given.counts
    counts.finish()
    columns = group_columns(counts.groups, tally.GROUP_KEY)
    values = value_columns(counts.groups, tally.GROUP_VALUES)
    waits = is_among(columns["api_key"], WAITS)
    times = values["total_ns"] - np.where(waits, values["broker_ns"], 0) - values["hol_poll_wait_ns"]
    count = sum(values[name] for name in _OUTCOMES)
    found: dict[Client, tuple[int, dict[int, int]]] = {}
    keys = (columns[name].tolist() for name in ("client_id", "client_ip", "api_key"))
    for client, ip, api, requests, time in zip(*keys, np.asarray(count).tolist(), times.tolist(), strict=True):
        before, by_api = found.get((client, ip), (0, {}))
        if api >= 0 and requests:
            by_api[api] = by_api.get(api, 0) + requests
        found[client, ip] = (before + time, by_api)
    return {who: Work(*work) for who, work in found.items()}


def sums_of_clients(given: SectionInput, api_key: int) -> dict[Client, dict[str, int]]:
    """The values of `counting.tally.GROUP_VALUES` of an API by client."""
    counts = given.counts
    counts.finish()
    columns = group_columns(counts.groups, tally.GROUP_KEY)
    who = zip(*(columns[name].tolist() for name in ("client_id", "client_ip", "api_key")), strict=True)
    labels = [(client, ip) if api == api_key else None for client, ip, api in who]
    rolled = roll_up(counts.groups, tally.GROUP_VALUES, counts.histograms, labels)
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
