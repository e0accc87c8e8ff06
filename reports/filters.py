"""Which part of the traffic is asked for.

Texts become numbers as the tables of strings and addresses grow: `Wanted` looks at each string once.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .batch import Array, Names

ALWAYS = -(2**63)
NEVER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Filters:
    """What passes. Empty: no condition. Conditions of one kind are alternatives, kinds hold together.

    `start` <= begin of the exchange < `end`, ns since the epoch. `clients`: client ids or IP addresses, `*` and `?` as
    wildcards. `brokers`: `ADDRESS`, `ADDRESS:PORT`, `[ADDRESS]:PORT` or `:PORT`. `topics`: names or ids, wildcards too.
    """

    start: int = ALWAYS
    end: int = NEVER
    clients: tuple[str, ...] = ()
    brokers: tuple[str, ...] = ()
    apis: frozenset[int] = frozenset()
    topics: tuple[str, ...] = ()


def _pattern(globs: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(fnmatch.translate(g) for g in globs) if globs else r"(?!)", re.DOTALL)


def split_broker(text: str) -> tuple[str, int]:
    """(address or "", port or -1) of a broker; ValueError where it is neither."""
    if text.startswith("["):
        address, bracket, rest = text[1:].partition("]")
        port = rest[1:] if rest.startswith(":") else ""
        if not bracket or (rest and not port):
            raise ValueError(f"{text!r} is no address and port")
    elif text.count(":") == 1:
        address, _, port = text.partition(":")
    else:
        address, port = text, ""
    if not (address or port) or (text.endswith(":") and text.count(":") == 1):
        raise ValueError(f"{text!r} is no address and port")
    if port and (not port.isdigit() or not 0 < int(port) < 65536):
        raise ValueError(f"{port!r} is no port number")
    return check_address(address) if address else "", int(port) if port else -1


def check_address(text: str) -> str:
    """An IP address as reports show it; ValueError where it is none."""
    from ipaddress import ip_address

    if text.isdigit():
        raise ValueError(f"{text!r} is no address; a port alone is written :{text}")
    try:
        return str(ip_address(text))
    except ValueError:
        raise ValueError(f"{text!r} is no IP address, and a capture holds no host names") from None


class Wanted:
    """The filters as arrays for the kernels, kept up with names that grow.

    `apis`: uint8 (65,536,) by api_key + 32,768, or empty; `clients`: uint8 by string number; `ips`: uint8 by address
    number; `brokers`: int64 (2n,) pairs of address number and port (-1: any; -2: an address not seen).
    """

    def __init__(self, filters: Filters) -> None:
        self.filters = filters
        self.apis: Array = np.zeros(65536 if filters.apis else 0, np.uint8)
        for key in filters.apis:
            self.apis[key + 32768] = 1
        self.clients: Array = np.zeros(0, np.uint8)
        self.ips: Array = np.zeros(0, np.uint8)
        self.topics: Array = np.zeros(0, np.uint8)
        self._pairs = [split_broker(b) for b in filters.brokers]
        self.brokers: Array = np.full(2 * len(self._pairs), -2, np.int64)
        self._client = _pattern(filters.clients)
        self._topic = _pattern(filters.topics)

    def update(self, names: Names | None) -> None:
        """Look at what is new in the tables of names."""
        asked = self.filters
        if not (asked.clients or asked.brokers or asked.topics):
            return
        if names is None:
            raise ValueError("filters by client, broker or topic need the names")
        if asked.clients:
            self.clients = _grown(self.clients, names.strings, self._client)
        if asked.topics:
            self.topics = _grown(self.topics, names.strings, self._topic)
        if asked.clients or asked.brokers:
            new = names.addresses[len(self.ips) : len(names.addresses)]
            self.ips = np.concatenate((self.ips, np.array([self._client.match(a) is not None for a in new], np.uint8)))
            for i, (address, port) in enumerate(self._pairs):
                self.brokers[2 * i + 1] = port
                if not address:
                    self.brokers[2 * i] = -1
                elif self.brokers[2 * i] == -2 and address in new:
                    self.brokers[2 * i] = names.addresses.index(address)


def _grown(known: Array, strings: Sequence[bytes | None], pattern: re.Pattern[str]) -> Array:
    from .batch import uuid_text

    fresh = []
    for number in range(len(known), len(strings)):
        value = strings[number]
        if value is None:
            fresh.append(False)
            continue
        text = value.decode("utf-8", "replace")
        asked = pattern.match(text) is not None
        if not asked and len(value) == 16:
            asked = pattern.match(uuid_text(value) or "") is not None
        fresh.append(asked)
    return np.concatenate((known, np.array(fresh, np.uint8)))
