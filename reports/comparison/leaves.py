"""The counts of both sides beside each other: `Leaves`, one for each key that either side has.

A leaf is the finest key that is compared: an API of a client at a broker, or with a topic. Numbers of strings differ
between sides, so leaves are matched by their names. Parts of client ids that look like a UUID or a long hexadecimal
number are `*`: such ids change with every start of a client.

Arrays are (blocks, leaves), one for each side. The blocks of the two sides have their own length and number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..batch import Array, Context, endpoint
from ..counting.count_forms import OTHER, FormCounts
from ..counting.count_table import distinct_rows
from ..findings import Finding
from ..section_parts.selected import Selected
from ..tls_software import ja4_pattern
from .names import OTHERS, masked
from .side_counts import MOST_BLOCKS, SideCounts

#: Leaves that are compared at most; beyond that those with the fewest exchanges are left out.
MOST_LEAVES = 20_000


class Side(NamedTuple):
    """One side: its counts, what their numbers mean, and from when to when it was captured, ns. `events`: what happened
    to brokers. `selected`: what its exchanges were selected by; None: all of them."""

    counts: SideCounts
    context: Context
    first: int
    last: int
    events: tuple[Finding, ...] = ()
    selected: Selected | None = None

    @property
    def seconds(self) -> float:
        return max(self.last - self.first, 1) / 1e9


class Key(NamedTuple):
    """A leaf. None: not a part of the key, or (client) null on the wire."""

    api: int | None = None
    client: str | None = None
    broker: str | None = None
    topic: str | None = None
    code: int | None = None
    version: int | None = None
    ja4: str | None = None


class Values(NamedTuple):
    """Values of a histogram: one row for each side, block, leaf and bucket, int64 (n,) each, by leaf."""

    side: Array
    block: Array
    leaf: Array
    bucket: Array
    times: Array


class Leaves:
    """`keys`: of the leaves. `seconds`: how much of each block was captured, float (blocks,) for each side."""

    def __init__(self, form: str, sides: tuple[Side, Side]) -> None:
        self.form, self.sides = form, sides
        self._names: list[tuple[int, int]] = []  # the first block of each side, and the number of blocks
        numbers: dict[Key, int] = {}
        self._leaf, self._block = [], []
        weight: list[Array] = []
        for side in sides:
            counts = side.counts.forms[form]
            place, keys = keys_of(counts, side.context)
            found = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)[place]
            first, blocks = blocks_of(side, form)
            self._names.append((first, blocks))
            self._leaf.append(found)
            self._block.append(counts.keys()["block"] - first)
            weight.append(np.bincount(found, weights=counts.table.value_rows()[:, 0], minlength=0))
        self.keys = list(numbers)
        if len(self.keys) > MOST_LEAVES:
            self._keep_largest(weight)
        self._keep(np.flatnonzero([self._is_selected(key) for key in self.keys]))
        self.seconds = tuple(_seconds(side, *at) for side, at in zip(sides, self._names, strict=True))

    def __len__(self) -> int:
        return len(self.keys)

    def _keep_largest(self, weight: list[Array]) -> None:
        total = sum(np.pad(w, (0, len(self.keys) - len(w))) for w in weight)
        self._keep(np.sort(np.argsort(-np.asarray(total), kind="stable")[:MOST_LEAVES]))

    def _is_selected(self, key: Key) -> bool:
        """Whether a leaf is on no topic, or on one that a side has selected: its exchanges may be on others, too."""
        if key.topic is None:
            return True
        return any(side.selected is None or side.selected.may_have({"topic": (key.topic,)}) for side in self.sides)

    def _keep(self, kept: Array) -> None:
        """Keep some leaves, by their numbers, ascending."""
        if len(kept) == len(self.keys):
            return
        number = np.full(len(self.keys), -1, np.int64)
        number[kept] = np.arange(len(kept))
        self._leaf = [np.where(leaf >= 0, number[leaf], -1) for leaf in self._leaf]
        self.keys = [self.keys[i] for i in kept.tolist()]

    def value(self, name: str) -> tuple[Array, Array]:
        """A value of each block and leaf, float (blocks, leaves), of both sides."""
        found = []
        for number, side in enumerate(self.sides):
            column = side.counts.forms[self.form].values()[name]
            used = self._leaf[number] >= 0
            found.append(self._added_up(number, self._block[number][used], self._leaf[number][used], column[used]))
        return found[0], found[1]

    def _added_up(self, side: int, block: Array, leaf: Array, numbers: Array) -> Array:
        """The sums of some numbers by block and leaf, float (blocks, leaves)."""
        blocks, leaves = self._names[side][1], len(self.keys)
        made = np.bincount(block * leaves + leaf, weights=numbers, minlength=blocks * leaves)
        return made.reshape(blocks, leaves)

    def values(self, metric: str) -> Values:
        """The histograms of a metric."""
        parts = []
        for number, side in enumerate(self.sides):
            row, bucket, count = side.counts.forms[self.form].buckets(metric)
            leaf = self._leaf[number][row]
            used = leaf >= 0
            block = self._block[number][row]
            parts.append([np.full(int(used.sum()), number), block[used], leaf[used], bucket[used], count[used]])
        columns = [np.concatenate(several) for several in zip(*parts, strict=True)]
        order = np.argsort(columns[2], kind="stable")
        return Values(*(column[order] for column in columns))

    def sums(self, values: Values, of: Array) -> tuple[Array, Array]:
        """The sums of a number of each row of a histogram, float (blocks, leaves), of both sides."""
        found = []
        for number in range(len(self._names)):
            mine = values.side == number
            found.append(self._added_up(number, values.block[mine], values.leaf[mine], of[mine]))
        return found[0], found[1]


class Forms:
    """The leaves of both sides by form, each made once."""

    def __init__(self, sides: tuple[Side, Side]) -> None:
        self.sides = sides
        self._made: dict[str, Leaves] = {}

    def __getitem__(self, form: str) -> Leaves:
        if form not in self._made:
            self._made[form] = Leaves(form, self.sides)
        return self._made[form]


def keys_of(counts: FormCounts, context: Context) -> tuple[Array, list[Key]]:
    """The keys of a form without their block, in order of their first rows; and the place of each row's key there."""
    at = {name: number for number, name in enumerate(counts.form.keys) if name != "block"}
    distinct, place = distinct_rows(counts.table.key_rows()[:, list(at.values())])
    columns = dict(zip(at, distinct.T, strict=True))
    parts: dict[str, list[int | str | None]] = {}
    if "api_key" in columns:
        parts["api"] = list(columns["api_key"].tolist())
    if "client_id" in columns:
        parts["client"] = _mapped(columns["client_id"], lambda n: OTHERS if n == OTHER else masked(context.text(n)))
    if "ja4" in columns:
        parts["ja4"] = _mapped(columns["ja4"], lambda n: ja4_pattern(context.text(n) or ""))
    if "broker_ip" in columns:
        pairs = columns["broker_ip"] << 16 | columns["broker_port"]
        parts["broker"] = _mapped(pairs, lambda n: endpoint(context.address(n >> 16), n & 0xFFFF))
    if "topic" in columns:
        pairs = ((columns["topic"] + 1) << 32) | (columns["topic_id"] + 1)
        parts["topic"] = _mapped(pairs, lambda n: _topic(context, (n >> 32) - 1, (n & 0xFFFFFFFF) - 1))
    for column, name in (("error_code", "code"), ("api_version", "version")):
        if column in columns:
            parts[name] = list(columns[column].tolist())
    names = list(parts)
    keys = [Key(**dict(zip(names, row, strict=True))) for row in zip(*parts.values(), strict=True)]
    return place, keys


def _mapped(numbers: Array, text: Callable[[int], str | None]) -> list[int | str | None]:
    distinct, place = np.unique(numbers, return_inverse=True)
    texts = [text(n) for n in distinct.tolist()]
    return [texts[i] for i in place.reshape(-1).tolist()]


def _topic(context: Context, topic: int, topic_id: int) -> str | None:
    return OTHERS if topic == OTHER else context.topic(topic, topic_id)


def blocks_of(side: Side, form: str) -> tuple[int, int]:
    """The first block of a side, and their number: at most 3 * MOST_BLOCKS, however long nothing was counted. The first
    and the last one have all time of the side before and after."""
    if form == "traffic":
        return 0, MOST_BLOCKS
    length, counts = side.counts.length, side.counts
    first, last = (
        (side.first, side.first) if counts.first is None or counts.last is None else (counts.first, counts.last)
    )
    begin = max(min(first, side.first) // length, first // length - MOST_BLOCKS)
    return begin, min(max(last, side.last) // length, last // length + MOST_BLOCKS) - begin + 1


def _seconds(side: Side, first: int, blocks: int) -> Array:
    """How much of each block was captured."""
    length = side.counts.length
    edges = np.clip((first + np.arange(blocks + 1)) * length, side.first, side.last)
    edges[0], edges[-1] = side.first, side.last
    seconds: Array = np.diff(edges) / 1e9
    return seconds
