"""`traffic`: requests and broker times over time, by API, client and broker: what the picture of a page is made of.

Counts have a row for each interval, API, client, broker, and step of broker time (LEVELS_OF_DECADE on a logarithmic
axis). The broker time is without waits for data and members, so Fetch is comparable with other APIs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED, ORPHAN_RESPONSE, OUTCOMES, UNANSWERED
from kafkatap.kernels.arrays import distinct_values, is_among

from ..batch import Array, Batch, Context, endpoint
from ..model import Traffic
from .count_forms import ADDRESS, NUMBER, OTHER, TEXT, CountForm, FormCounts
from .count_table import SUM
from .histogram import middle
from .rollup import api_label

_KEYS = {
    "interval": NUMBER, "api_key": NUMBER, "client_id": TEXT, "broker_ip": ADDRESS, "broker_port": NUMBER,
    "level": NUMBER,
}  # fmt: skip
#: What each row adds up: `bytes` of requests and responses, responses with an error code, requests without a response,
#: and responses with throttle_time_ms above zero.
VALUES = ("requests", "bytes", "failed", "unanswered", "throttled")
FORM = CountForm(
    "traffic", _KEYS, dict.fromkeys(VALUES, SUM), {"client_id": OTHER}, further={"broker_ip": -1, "broker_port": 0}
)
#: Steps of broker time: from 1 µs to 1,000 s. What is shorter or longer is in the first or last one.
LEVELS_OF_DECADE = 10
_DECADES = 9
EDGES: Array = np.round(1000 * 10.0 ** (np.arange(LEVELS_OF_DECADE * _DECADES + 1) / LEVELS_OF_DECADE)).astype(np.int64)
#: Without a broker time: no response came, or all of the time was a wait.
UNTIMED = -1
#: Intervals, names of a kind, and cells of a picture at most.
SLOTS, _NAMES, CELLS = 150, 18, 12_000
_OTHERS = "(other)"
#: Round lengths of intervals, in tenths of a second.
_ROUND = (1, 2, 5, 10, 20, 50, 100, 150, 300, 600, 1200, 3000, 6000, 9000, 18000, 36000, 72000, 144000, 432000, 864000)


def _level(times: Array) -> Array:
    """The step of broker times, ns: int64 (n,)."""
    return np.clip(np.searchsorted(EDGES, times, "right") - 1, 0, len(EDGES) - 2)


def add_batch(counts: FormCounts, batch: Batch, interval: int) -> None:
    """Add the requests of a batch."""
    rows = batch.exchanges[batch.exchanges["outcome"] != ORPHAN_RESPONSE]
    if not len(rows):
        return
    results = batch.counted_results
    keys = {name: rows[name] for name in FORM.keys if name in rows.dtype.names}
    keys["interval"] = rows["request_first"] // interval
    times = rows["broker_ns"] - rows["waiting_ns"]
    is_timed = (rows["outcome"] == ANSWERED) & ((times >= EDGES[0]) | (rows["waiting_ns"] == 0))
    keys["level"] = np.where(is_timed, _level(times), UNTIMED)
    failed = distinct_values(results["exchange"][results["error_code"] != 0])
    counts.add_columns(keys, {
        "requests": 1,
        "bytes": np.maximum(rows["request_bytes"], 0).astype(np.int64) + np.maximum(rows["response_bytes"], 0),
        "failed": is_among(rows["exchange"], failed),
        "unanswered": rows["outcome"] == UNANSWERED,
        "throttled": rows["throttle_time_ms"] > 0,
    })  # fmt: skip


def add_groups(counts: FormCounts, groups: FormCounts, intervals: Array) -> None:
    """Add the counts of groups. `intervals`: the interval of each: int64 (groups,)."""
    if not len(groups):
        return
    group_keys, values = groups.keys(), groups.values()
    names = {name: group_keys[name] for name in FORM.keys if name in group_keys}
    owners, bucket, times = groups.buckets("broker")
    at = {name: column[owners] for name, column in (names | {"interval": intervals}).items()}
    counts.add_columns(at | {"level": _level(middle(bucket))}, {"requests": times})
    timed = np.bincount(owners, weights=times, minlength=len(groups)).astype(np.int64)
    requests = np.sum([values[name] for name in OUTCOMES[:ORPHAN_RESPONSE]], axis=0)
    counts.add_columns(names | {"interval": intervals, "level": UNTIMED}, {
        "requests": requests - timed, "bytes": values["request_bytes"] + values["response_bytes"],
        "failed": values["failed_exchanges"], "unanswered": values["unanswered"], "throttled": values["throttled"],
    })  # fmt: skip


def traffic(counts: FormCounts, interval: int, context: Context) -> Traffic | None:
    """The picture's data: at most SLOTS intervals, and CELLS cells. Names with little are added up as "(other)". None
    without a request."""
    if not len(counts):
        return None
    keys, values = counts.keys(), counts.values()
    first, last = int(keys["interval"].min()), int(keys["interval"].max())
    step = next(
        (n for n in (tenths * 100_000_000 // interval for tenths in _ROUND if tenths * 100_000_000 % interval == 0)
         if last // n - first // n < SLOTS),
        -(-(last - first + 1) // SLOTS),
    )  # fmt: skip
    brokers = keys["broker_ip"] * 65_536 + keys["broker_port"]

    def broker(number: int) -> str:
        return endpoint(context.address(number >> 16), number & 65_535)

    columns = np.stack(list(values.values()), axis=1)
    most = _NAMES
    while True:
        start = first - first % step
        places, names = [(keys["interval"] - start) // step], []
        for column, label in ((keys["api_key"], api_label), (keys["client_id"], context.text), (brokers, broker)):
            place, labels = _named(column, values, keys["level"], label, most)
            places.append(place)
            names.append(labels)
        rows, cell = np.unique(np.stack((*places, keys["level"]), axis=1), axis=0, return_inverse=True)
        if len(rows) <= CELLS or (most == 1 and last // step - first // step < SLOTS // 4):
            break
        most, step = (most // 2, step) if most > 1 else (most, 2 * step)
    sums = np.zeros((len(rows), columns.shape[1]), np.int64)
    np.add.at(sums, cell.reshape(-1), columns)
    apis, clients, named_brokers = map(tuple, names)
    cells = tuple(map(tuple, np.concatenate((rows, sums), axis=1).tolist()))
    return Traffic(start * interval, step * interval, tuple(EDGES.tolist()), apis, clients, named_brokers, cells)


def _named(
    column: Array, values: dict[str, Array], level: Array, label: Callable[[int], str | None], most: int
) -> tuple[Array, list[str | None]]:
    """The place of each row's name, and the names: those with the most requests, time and failures, then "(other)"."""
    distinct, inverse = np.unique(column, return_inverse=True)
    time = values["requests"] * np.where(level >= 0, EDGES[level], 0)
    trouble = values["failed"] + values["unanswered"] + values["throttled"]
    ranks = []
    for weights in (values["requests"], time, trouble):
        sums = np.bincount(inverse, weights=weights)
        ranks.append(np.argsort(-sums, kind="stable"))
    order = list(dict.fromkeys(n for place in zip(*(rank.tolist() for rank in ranks), strict=True) for n in place))
    texts = {n: label(int(distinct[n])) for n in order}
    names = list(dict.fromkeys(texts[n] for n in order))
    if len(names) > most + 1:
        names = [name for name in names[:most] if name != _OTHERS] + [_OTHERS]
    number = {name: n for n, name in enumerate(names)}
    places = np.array([number.get(texts[n], len(names) - 1) for n in range(len(distinct))])
    return places[inverse], names
