"""Loads made by hand: requests of clients to APIs of brokers, with times that vary from second to second."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from kafkatap.dissector import dtypes as r
from kafkatap.reports.batch import Array, Batch, Context
from kafkatap.reports.comparison.leaves import Side
from kafkatap.reports.comparison.side_counts import SideCounts

START = 1_795_236_239 * 1_000_000_000
SECOND = 1_000_000_000
PRODUCE, METADATA, COMMIT, HEARTBEAT = 0, 3, 8, 12
APIS = (PRODUCE, METADATA, COMMIT, HEARTBEAT)
TOPICS = ("orders", "payments")


class Request(NamedTuple):
    """What decides a request's time and answer."""

    client: str
    api: int
    broker: int
    topic: str


def same(_: Request) -> float:
    """Every request takes as long as it does."""
    return 1.0


class Load(NamedTuple):
    """Some clients, each with all APIs, brokers and topics. `rates`: requests in a second of each by client.

    `slower`: a factor for the time of a request. `failing`: the share of requests that get error code 6. `busier`: a
    factor for the number of requests.
    """

    rates: dict[str, float]
    brokers: int = 2
    apis: tuple[int, ...] = APIS
    seconds: int = 60
    slower: Callable[[Request], float] = same
    failing: Callable[[Request], float] = lambda _: 0.0
    busier: Callable[[Request], float] = same

    def batches(self, seed: int, start: int = START) -> tuple[list[Batch], list[bytes | None]]:
        """A batch for each client, and the strings."""
        rng = np.random.default_rng(seed)
        weather = rng.lognormal(0, 0.15, self.seconds + 1)  # a slow second slows all of its requests
        strings: list[bytes | None] = [*(name.encode() for name in self.rates), *(t.encode() for t in TOPICS)]
        made, number = [], 0
        for client, name in enumerate(self.rates):
            parts, results = [], []
            for api in self.apis:
                for broker in range(self.brokers):
                    for topic, topic_name in enumerate(TOPICS):
                        request = Request(name, api, broker, topic_name)
                        count = rng.poisson(
                            self.rates[name] * self.busier(request) * self.seconds / len(TOPICS) / self.brokers
                        )
                        rows = self._rows(rng, count, request, weather, start)
                        rows["exchange"] = rows["key"] = number + np.arange(count)
                        number += count
                        rows["client_id"], rows["broker_port"], rows["api_key"] = client, 9092 + broker, api
                        parts.append(rows)
                        own = np.zeros(count, r.RESULT)
                        own["exchange"], own["topic"], own["topic_id"] = rows["exchange"], len(self.rates) + topic, -1
                        own["kind"], own["records"], own["bytes"] = r.KIND_PARTITION, 3, 300
                        own["error_code"] = np.where(rng.random(count) < self.failing(request), 6, 0)
                        results.append(own)
            made.append(Batch(np.concatenate(parts), np.concatenate(results)))
        return made, strings

    def _rows(self, rng: np.random.Generator, count: int, request: Request, weather: Array, start: int) -> Array:
        rows = np.zeros(count, r.EXCHANGE)
        at = rng.uniform(0, self.seconds, count)
        times = rng.lognormal(1 + request.api / 10, 0.5, count) * weather[at.astype(int)] * self.slower(request) * 1e6
        rows["request_first"] = rows["request_last"] = start + (at * SECOND).astype(np.int64)
        rows["broker_ns"] = times.astype(np.int64)
        rows["total_ns"] = rows["broker_ns"] + 100_000
        rows["response_first"] = rows["response_last"] = rows["request_last"] + rows["total_ns"]
        rows["request_bytes"], rows["response_bytes"] = rng.integers(400, 600, count), 60
        rows["client_software"] = rows["client_software_version"] = -1
        rows["client_ip"], rows["broker_ip"], rows["api_version"] = 0, 1, 9
        return rows

    def side(self, seed: int, start: int = START) -> Side:
        """The side of a comparison that this load makes."""
        batches, strings = self.batches(seed, start)
        counts = SideCounts()
        for batch in batches:
            counts.add(batch)
        return Side(counts, context_of(strings, start), start, start + self.seconds * SECOND)


def context_of(strings: list[bytes | None], start: int = START) -> Context:
    return Context(strings=strings, addresses=["10.0.0.1", "10.0.0.2"], first=start)
