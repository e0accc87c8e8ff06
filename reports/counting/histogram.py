"""Log-linear histograms: 64 buckets for each octave. The middle of a bucket is within 0.8 % of its values.

Values are int64 >= 0 (nanoseconds, milliseconds and so on). Each value below 128 has its own bucket. `bucket_of` is
monotonic and below BUCKETS for every int64. To add two histograms, add their counts in any order.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import helper, kernel
from kafkatap.kernels.arrays import starts_of, value_counts

from .count_table import Array

#: A number above all buckets. Bucket numbers fit in 12 bits.
BUCKETS = 4096
BUCKET_BITS = 12
#: A key of `Histograms` is owner << OWNER_SHIFT | metric << BUCKET_BITS | bucket.
OWNER_SHIFT = 20
#: Number of values that are noted before they are counted.
NOTED = 1 << 17

#: Percentiles as parts of 10,000.
P50, P90, P99, P999 = 5000, 9000, 9900, 9990


@helper
def bucket_of(value):  # type: ignore[no-untyped-def]
    """The bucket of a value: the value itself below 64, else 64 * shift + its top seven bits."""
    v = value
    if v < 0:
        v = 0
    high = v
    shift = 0
    if high >> 39 != 0:  # 7 + 32 bits
        high >>= 32
        shift += 32
    if high >> 23 != 0:
        high >>= 16
        shift += 16
    if high >> 15 != 0:
        high >>= 8
        shift += 8
    if high >> 11 != 0:
        high >>= 4
        shift += 4
    if high >> 9 != 0:
        high >>= 2
        shift += 2
    while high >> 7 != 0:
        high >>= 1
        shift += 1
    return (shift << 6) + high


@kernel(np.int64, np.int64)
def buckets_into(values, out):  # type: ignore[no-untyped-def]
    """Write the bucket of each value."""
    for i in range(len(values)):
        out[i] = bucket_of(values[i])
    return len(values)


@kernel(np.int64, np.int64, np.int64, np.int64, np.int64, np.int64)
def sum_into(keys, counts, more_keys, more_counts, out_keys, out_counts):  # type: ignore[no-untyped-def]
    """Write the sum of two histograms, each with ascending and distinct keys, as one; return the number of its keys."""
    i = np.int64(0)
    j = np.int64(0)
    n = np.int64(0)
    while i < len(keys) or j < len(more_keys):
        is_mine = j == len(more_keys) or (i < len(keys) and keys[i] <= more_keys[j])
        is_theirs = i == len(keys) or (j < len(more_keys) and more_keys[j] <= keys[i])
        out_keys[n] = keys[i] if is_mine else more_keys[j]
        out_counts[n] = (counts[i] if is_mine else 0) + (more_counts[j] if is_theirs else 0)
        i += is_mine
        j += is_theirs
        n += 1
    return n


def buckets(values: Array) -> Array:
    """The bucket of each value: int64 (n,) -> int64 (n,)."""
    out = np.empty(len(values), np.int64)
    buckets_into(np.require(values, np.int64, ["C", "W"]), out)  # without the store, kernels take no read-only array
    return out


def keys_of(owners: Array, metric: int, bucket: Array) -> Array:
    """The keys of `Histograms` for buckets of a metric: int64 (n,) each."""
    found: Array = owners << OWNER_SHIFT | metric << BUCKET_BITS | bucket
    return found


def middle(bucket: Array) -> Array:
    """The middle value of each bucket: int64 (n,) -> int64 (n,)."""
    shift = np.maximum(bucket // 64 - 1, 0)
    low = (bucket - 64 * shift) << shift
    result: Array = low + ((np.int64(1) << shift) - 1) // 2
    return result


def largest(bucket: Array) -> Array:
    """The largest value of each bucket: int64 (n,) -> int64 (n,)."""
    shift = np.maximum(bucket // 64 - 1, 0)
    result: Array = ((bucket - 64 * shift + 1) << shift) - 1
    return result


def percentiles(owner: Array, bucket: Array, count: Array, owners: int, parts: tuple[int, ...], top: Array) -> Array:
    """Percentiles of many histograms at once.

    `owner`, `bucket`, `count`: int64 (n,), one row for each bucket, in any order. A bucket can have several rows.
    `parts`: percentiles as parts of 10,000. `top`: int64 (owners,), the exact maximum of each owner. No percentile
    exceeds it.
    Return int64 (owners, len(parts)): percentiles by nearest rank, as the middle of their bucket. -1 for an owner
    without counts.
    """
    result = np.full((owners, len(parts)), -1, np.int64)
    if len(owner) == 0 or owners == 0:
        return result
    key = owner << BUCKET_BITS | bucket
    if (key[1:] < key[:-1]).any():
        order = np.argsort(key, kind="stable")
        owner, bucket, count = owner[order], bucket[order], count[order]
    running = np.cumsum(count)
    total = np.bincount(owner, weights=None, minlength=owners)
    ends = np.cumsum(total)
    after = np.concatenate(([0], running))
    before = after[ends - total]  # counts of earlier owners
    own = after[ends] - before
    full = own > 0
    for column, part in enumerate(parts):
        rank = (own * part + 9999) // 10000
        at = np.searchsorted(running, before[full] + np.maximum(rank[full], 1), side="left")
        result[full, column] = np.minimum(middle(bucket[at]), top[full])
    return result


class Histograms:
    """Sparse histograms of many owners and metrics: the count of each key (OWNER_SHIFT).

    `keys`: int64 (n,), ascending and distinct. `counts`: int64 (n,). Kernels write single keys to `noted` (int64) and
    their number to `used` (int64 (1,)). Python sorts and adds them from time to time. That is much faster than a
    lookup for each key.
    """

    __slots__ = ("_added", "_counts", "_keys", "_waiting", "noted", "used")

    def __init__(self, noted: int = NOTED) -> None:
        self._keys: Array = np.zeros(0, np.int64)
        self._counts: Array = np.zeros(0, np.int64)
        self._added: list[tuple[Array, Array]] = []
        self._waiting = 0
        self.noted: Array = np.empty(noted, np.int64)
        self.used: Array = np.zeros(1, np.int64)

    def set_counts(self, keys: Array, counts: Array) -> None:
        """Take the counts of another histogram, instead of those here: `keys` ascending and distinct."""
        self._keys, self._counts, self._added, self._waiting = keys, counts, [], 0

    def clear(self) -> None:
        """Remove all counts. `noted` stays the same array."""
        self.set_counts(np.zeros(0, np.int64), np.zeros(0, np.int64))
        self.used[0] = 0

    def __len__(self) -> int:
        """The number of merged keys. Keys that are not merged yet do not count."""
        return len(self._keys)

    def reserve(self, free: int) -> None:
        """Make room for at least `free` more noted keys."""
        if len(self.noted) - int(self.used[0]) < free:
            self._count_noted()

    def merge_noted(self) -> None:
        """Count the noted keys."""
        self._count_noted()
        self._merge()

    def seal(self) -> None:
        """`merge_noted`, and release the memory of `noted`. Afterwards kernels cannot note keys."""
        self.merge_noted()
        self.noted = self.noted[:0].copy()

    def _count_noted(self) -> None:
        keys, counts = value_counts(self.noted[: int(self.used[0])])
        self.used[0] = 0
        self.add(keys, counts)

    def add(self, keys: Array, counts: Array) -> None:
        """Add counts: int64 (n,) each. Keys can be in any order and can repeat."""
        if len(keys):
            self._added.append((keys, counts))
            self._waiting += len(keys)
        if self._waiting > len(self._keys):  # the total cost of all merges is that of the last one
            self._merge()

    def _merge(self) -> None:
        if not self._waiting:
            return
        keys, counts = (np.concatenate(parts) for parts in zip(*self._added, strict=True))
        self._added, self._waiting = [], 0
        if (keys[1:] <= keys[:-1]).any():
            order = np.argsort(keys, kind="stable")  # a stable sort merges ascending runs
            keys = keys[order]
            starts = starts_of(keys)
            keys, counts = keys[starts], np.add.reduceat(counts[order], starts)
        self._keys, self._counts = _sum(self._keys, self._counts, keys, counts)

    def with_owners(self, numbers: Array) -> Histograms:
        """The same counts with other owners: int64, the new number of each old one, or -1 to leave it out."""
        self.merge_noted()
        made = Histograms(len(self.noted))
        owners, low = numbers[self.keys >> OWNER_SHIFT], self.keys & ((1 << OWNER_SHIFT) - 1)
        kept = owners >= 0
        made.add((owners << OWNER_SHIFT | low)[kept], self.counts[kept])
        return made

    @property
    def keys(self) -> Array:
        self._merge()
        return self._keys

    @property
    def counts(self) -> Array:
        self._merge()
        return self._counts

    def of(self, metric: int) -> tuple[Array, Array, Array]:
        """(owner, bucket, count) of one metric, ascending: int64 (n,) each."""
        self.merge_noted()
        chosen = (self.keys >> BUCKET_BITS) & 0xFF == metric
        keys = self.keys[chosen]
        return keys >> OWNER_SHIFT, keys & (BUCKETS - 1), self.counts[chosen]


def _sum(keys: Array, counts: Array, more_keys: Array, more_counts: Array) -> tuple[Array, Array]:
    """The keys and counts of `sum_into`."""
    sizes = len(keys) + len(more_keys)
    out = np.empty(sizes, np.int64), np.empty(sizes, np.int64)
    used = sum_into(keys, counts, more_keys, more_counts, *out)
    return out[0][:used].copy(), out[1][:used].copy()
