"""The ends that are known to be brokers': their connections had a request and its response.

A connection with such an end, or with a port that was named beforehand, is expected to be Kafka, so one request
suffices. Ends have keys that are the same in every run. Both tables are open-addressed and of one size. At most half of
each is used: later ends are not added.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.decorator import helper

#: Places of a table: a power of two.
PLACES = 1 << 13


@helper
def add_key(keys, key):  # type: ignore[no-untyped-def]
    """Add a key to a table. keys[0] counts them."""
    at = _place(keys, key)
    if keys[at] == 0 and 2 * np.int64(keys[0]) < PLACES:
        keys[at] = key
        keys[0] += 1


@helper
def _place(keys, key):  # type: ignore[no-untyped-def]
    """The place of a key, or the empty one where it belongs."""
    at = key & (PLACES - 1)
    while at == 0 or (keys[at] != key and keys[at] != 0):
        at = (at + 1) & (PLACES - 1)
    return at


@helper
def _broker_end(connection, client):  # type: ignore[no-untyped-def]
    """The key of the broker's end, if direction `client` is the client's."""
    return np.int64(connection.end_a if client == 1 else connection.end_b)


@helper
def note_broker(t, connection):  # type: ignore[no-untyped-def]
    """Note that a connection has shown its broker's end."""
    add_key(t.brokers, _broker_end(connection, np.int64(connection.client)))


@helper
def note_missed(t, connection, client):  # type: ignore[no-untyped-def]
    """Note that a connection is none of Kafka only because its broker's end is not known."""
    add_key(t.missed, _broker_end(connection, client))


@helper
def is_at_broker(t, connection, client):  # type: ignore[no-untyped-def]
    """Whether the broker's end is known, if direction `client` is the client's."""
    key = _broker_end(connection, client)
    return t.brokers[_place(t.brokers, key)] == key


@helper
def note_expected(t, connection):  # type: ignore[no-untyped-def]
    """Note whether a connection is expected to be Kafka from now on."""
    if connection.is_expected == 0 and t.brokers[0] > 0:
        for d in range(2):
            if connection.client < 0 or d == np.int64(connection.client):
                connection.is_expected |= is_at_broker(t, connection, np.int64(d))
