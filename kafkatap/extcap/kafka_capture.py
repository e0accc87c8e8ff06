"""The loop of an extcap capture: packets from interfaces, through the engine, to Wireshark's pipe.

Packets of connections that carry Kafka are written, from the first packet on. Those of connections that are not known
yet wait in bounded memory (`held_packets`). Every packet waits a moment (DELAY), because comments are known only when
the exchange is complete, and because the connections' packets are then in order of time. With a selection only the
packets of matching exchanges are written: all packets of the connection from the request's first to the response's
last one.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from kafkatap.dissector import dtypes as r
from kafkatap.dissector.time_parts import DURATIONS, parts_of
from kafkatap.kernels.arrays import taken
from kafkatap.reassembly import pcapng_blocks as blocks
from kafkatap.reassembly.pcap import LONGEST_PACKET
from kafkatap.reports import units
from kafkatap.reports.batch import Array, Batch
from kafkatap.reports.exchange_texts import (
    client_text,
    codes_text,
    exchange_name,
    host_text,
    outcome_text,
    parts_text,
    status_text,
)

from ..engine.engine import Engine
from ..engine.selection import Selection, Selector
from ..installation import own_version
from .held_packets import WANTED, ConnectionWatch, Group, HeldPackets
from .protocol import PacketPipe

SECOND = 1_000_000_000
#: Seconds for which each packet waits.
DELAY = 0.25
#: Comments that are kept: many more than packets wait for DELAY.
MOST_COMMENTS = 100_000
#: Seconds at most to read the waiting packets at the end: Wireshark waits for the end of its extcap programs.
LAST_PACKETS = 0.2
#: ns after which a silent connection ends, and a request counts as not answered.
IDLE, PATIENCE = 1_800 * SECOND, 600 * SECOND
_PACKETS = ("request_packet_first", "request_packet_last", "response_packet_first", "response_packet_last")
_FIELDS = [
    *_PACKETS, "exchange", "key", "outcome", "closed_by", "api_key", "api_version", "client_id", "total_ns",
    "throttle_time_ms", "client_ip", "broker_ip", "request_first", "response_first",
    "request_status", "response_status", *(name for name in DURATIONS if name != "total_ns"),
]  # fmt: skip
#: The fields of an exchange that this module reads, by name: numpy takes long for a field of a single row.
Values = Mapping[str, int]


class Source(Protocol):
    """Where packets come from: `kafkatap.live.capture.packet_source.Capture`, or a file in tests."""

    def wait(self, seconds: float) -> None: ...
    def blocks(self) -> Iterable[tuple[Array, Array, int]]: ...
    def counters(self) -> tuple[int, int]: ...
    def stop(self) -> None: ...


class Choice(NamedTuple):
    """What Wireshark gets. `exchanges`: only packets of exchanges that match it; empty: all of Kafka connections.
    `commented`: the exchanges with a comment; None: no comments. `snap_length`: bytes of each packet. `ring_size`:
    bytes of memory for packets that wait."""

    exchanges: Selection
    commented: Selection | None
    snap_length: int = LONGEST_PACKET
    ring_size: int = 64 << 20


class KafkaCapture:
    """`links`: the link types, with the names of their interfaces. `engine` must decode what the choice compares."""

    def __init__(
        self,
        source: Source,
        engine: Engine,
        pipe: PacketPipe,
        links: Mapping[int, str],
        choice: Choice,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source, self._engine, self._pipe = source, engine, pipe
        self._clock = clock
        self._watch = ConnectionWatch(engine)
        self._held = HeldPackets(list(links), choice.ring_size, choice.snap_length)
        self._wanted = Selector(choice.exchanges, engine) if choice.exchanges else None
        self._commented = None if choice.commented is None else Selector(choice.commented, engine)
        self._comments: dict[int, list[str]] = {}  # by packet, the newest last
        self._spans: list[tuple[int, int]] = []  # the packets of exchanges that matched
        self._swept = clock()
        pipe.write(blocks.section_header(f"kafkatap {own_version()}"))
        for link_type, name in links.items():
            pipe.write(blocks.captured_interface(link_type, name))

    def run(self, stop: Callable[[], bool]) -> None:
        """Capture until `stop` returns True or Wireshark closes the pipe. Then write what waits, and statistics."""
        while not stop() and self._pipe.has_reader():
            self._source.wait(0.1)
            self.step()
        self._source.stop()
        ended = time.monotonic()
        while self._pipe.has_reader() and time.monotonic() - ended < LAST_PACKETS:
            self._source.wait(0.02)
            self.step()
        self.finish()

    def step(self) -> None:
        """Read the packets that are there, and write those that are ready."""
        for buffer, packets, count in self._source.blocks():
            self._read(buffer, packets[:count])
        now = self._clock()
        if now - self._swept >= 1:
            self._swept = now
            self._add(self._engine.sweep(IDLE, PATIENCE))
            self._mark()
        self._write(now - DELAY)

    def finish(self) -> None:
        """Write all packets that can be, and the statistics of the interfaces."""
        self._add(self._engine.finish())
        self._mark()
        self._write(float("inf"))
        received, dropped = self._source.counters()
        self._pipe.write(blocks.interface_statistics(0, self._held.latest, received, dropped))

    def _read(self, buffer: Array, packets: Array) -> None:
        if not len(packets):
            return
        self._add(self._engine.take(buffer, packets, 0, len(packets)))
        seen = self._watch.seen(int(packets["number"][0]), len(packets))
        self._held.add(buffer, packets, seen, self._watch.may_be_kafka(seen.serials), self._clock())
        self._mark()

    def _add(self, batches: Iterable[Batch]) -> None:
        """Note the packets of matching exchanges, and the comments on exchanges."""
        for batch in batches:
            if self._commented is not None:
                self._comment(batch, self._commented.select(batch))
            if self._wanted is not None:
                self._spans += map(packets_of, values_of(batch.exchanges[self._wanted.select(batch)]))

    def _comment(self, batch: Batch, chosen: Array) -> None:
        """Note the comments on the chosen exchanges (bool) of a batch."""
        codes: dict[int, list[int]] = {}
        failed = taken(batch.results, np.flatnonzero(batch.results["error_code"] != 0))
        for exchange, code in zip(failed["exchange"].tolist(), failed["error_code"].tolist(), strict=True):
            codes.setdefault(exchange, []).append(code)
        for x in values_of(batch.exchanges[chosen]):
            text = comment_on(x, codes.get(x["exchange"], []), self._engine)
            self._comments.setdefault(commented_packet(x), []).append(text)
        while len(self._comments) > MOST_COMMENTS:
            del self._comments[next(iter(self._comments))]

    def _mark(self) -> None:
        """Want the packets of the exchanges that matched. Their packets are held by now."""
        for first, last in self._spans:
            self._held.want(first, last)
        self._spans.clear()

    def _write(self, until: float) -> None:
        has_news = self._watch.update() and self._wanted is None
        ready = self._held.ready(until, self._is_ready, self._may_wait, has_news, self._comments)
        self._pipe.write(b"".join(ready))

    def _is_ready(self, group: Group) -> Array:
        return group.states == WANTED if self._wanted is not None else self._watch.is_kafka(group.serials)

    def _may_wait(self, group: Group) -> Array:
        return self._watch.may_be_kafka(group.serials)


def values_of(rows: Array) -> Iterator[Values]:
    """The values of EXCHANGE rows."""
    return (dict(zip(_FIELDS, row, strict=True)) for row in rows[_FIELDS].tolist())


def packets_of(x: Values) -> tuple[int, int]:
    """The first and the last packet of an exchange, by number."""
    known = [x[name] for name in _PACKETS if x[name] > 0]
    return min(known, default=0), max(known, default=0)


def commented_packet(x: Values) -> int:
    """The packet that has the comment on an exchange: the last one of its response. It completes the exchange, so it is
    still there when the comment is known, and Wireshark shows the whole response there, too. Without a response it is
    the last one of the request, if that still waits."""
    return x["response_packet_last"] or x["request_packet_last"] or x["request_packet_first"]


def comment_on(x: Values, codes: Sequence[int], engine: Engine) -> str:
    """The comment on an exchange, with the non-zero error codes of its response. Client ids are other people's text:
    they are escaped and cut."""
    text = f"kafkatap: {_name(x, engine)}{_hosts(x, engine)}, exchange {x['key']}: "
    if x["outcome"] != r.ANSWERED:
        return text + outcome_text(x["outcome"], x["closed_by"])
    text += units.duration(x["total_ns"]) + parts_text(parts_of(x))
    text += f"; {codes_text(sorted(Counter(codes).items()))}" if codes else ""
    if x["throttle_time_ms"] > 0:
        text += f"; throttle_time_ms {x['throttle_time_ms']}"
    return text + "".join(status_text(x[f"{message}_status"], f"{message} ") for message in ("request", "response"))


def _hosts(x: Values, engine: Engine) -> str:
    """`, from (payments-7f9) to (kafka-1)`, as far as they have names."""
    if engine.hosts is None:
        return ""
    at = x["response_first"] if x["outcome"] == r.ORPHAN_RESPONSE else x["request_first"]
    ends = ((word, x[f"{end}_ip"]) for word, end in (("from", "client"), ("to", "broker")))
    found = [(word, host_text(engine.hosts.name_at(engine.addresses[ip], at))) for word, ip in ends if ip >= 0]
    shown = " ".join(word + text for word, text in found if text)
    return f", {shown}" if shown else ""


def _name(x: Values, engine: Engine) -> str:
    raw = engine.strings[x["client_id"]] if x["client_id"] >= 0 else None
    client = None if raw is None else raw.decode("utf-8", "replace")
    if x["outcome"] == r.ORPHAN_RESPONSE:
        return "response" + client_text(client)
    return exchange_name(x["api_key"], x["api_version"], client)
