"""The engine: packets in, finished tables out, the same for the command line, live capture and cluster jobs.

`Engine.take(buffer, packets, first, count)` runs reassembly and dissection over packets that lie in `buffer` and yields
`Batch`es of finished rows; `finish()` gives what is left. No result depends on how packets are cut into blocks.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np

from kafkatap.dissector import dialogs as dialog_rows
from kafkatap.dissector.dissector import Dissector, Finished
from kafkatap.dissector.program import load_programs
from kafkatap.kernels import store
from kafkatap.reassembly import headers
from kafkatap.reassembly.assembler import Assembler
from kafkatap.reports.batch import CONNECTION_ROW, Batch

Array = np.ndarray[Any, Any]

#: The modules whose kernels are compiled and kept together.
KERNEL_MODULES = (
    "kafkatap.dissector.framing",
    "kafkatap.dissector.exchanges",
    "kafkatap.dissector.machine",
    "kafkatap.dissector.buffers",
    "kafkatap.reassembly.pcap",
    "kafkatap.reassembly.pcapng",
    "kafkatap.reassembly.headers",
    "kafkatap.reassembly.streams",
    "kafkatap.reports.count_table",
    "kafkatap.reports.histogram",
    "kafkatap.reports.tally",
)
#: Blocks between two looks for connections that are over.
REAP_EVERY = 16


class Strings(Sequence[bytes | None]):
    """The interned strings by number. They grow while the engine runs."""

    def __init__(self, dissector: Dissector) -> None:
        self._dissector = dissector

    def __len__(self) -> int:
        return int(self._dissector.state[dialog_rows.STRINGS])

    @overload
    def __getitem__(self, number: int) -> bytes: ...
    @overload
    def __getitem__(self, number: slice) -> list[bytes | None]: ...
    def __getitem__(self, number: int | slice) -> bytes | list[bytes | None]:
        if isinstance(number, slice):
            return [self._dissector.string(n) for n in range(len(self))[number]]
        if not 0 <= number < len(self):
            raise IndexError(number)
        return self._dissector.string(number)


class Engine:
    """One run over one sequence of packets.

    `all_results`: decode every body for its topics and results, not only what failed. `ports`: hints that brokers listen
    there, for connections that begin in the middle.
    """

    def __init__(self, all_results: bool = False, ports: Sequence[int] = ()) -> None:
        store.use(KERNEL_MODULES)
        self.assembler = Assembler()
        self.dissector = Dissector(load_programs("summary"), load_programs("results"), all_results)
        self.addresses: list[str] = []
        self.strings = Strings(self.dissector)
        self._ports = np.array(ports, np.int32)
        self.packets = 0
        self.first: int | None = None
        self.last: int | None = None
        self._address_numbers: dict[tuple[int, int], int] = {}
        self._known = np.full(len(self.assembler.connections), -1, np.int64)
        self._ends = np.zeros((len(self._known), 4), np.int32)
        self._connections: list[Array] = []
        self._topics: list[Array] = []
        self._blocks = 0
        self._bytes = dict.fromkeys(
            ("kafka_frames", "sasl_tokens", "encrypted", "not_kafka", "skipped", "retransmitted", "out_of_window"), 0
        )
        self.not_captured = 0

    def take(self, buffer: Array, packets: Array, first: int, count: int) -> Iterator[Batch]:
        """Take packets[first:count], whose bytes lie in `buffer`; yield batches of what is finished."""
        times = packets["ts"][first:count]
        low, high = int(times.min()), int(times.max())
        self.first = low if self.first is None else min(self.first, low)
        self.last = high if self.last is None else max(self.last, high)
        self.packets += count - first
        assembler = self.assembler
        for chunks in assembler.feed(buffer, packets, first, count):
            yield from self._dissect(buffer, chunks)
        yield from self._deliver(self.dissector.drain(buffer, assembler.pool))
        assembler.end_block()
        self._blocks += 1
        if self._blocks % REAP_EVERY == 0:
            yield from self._end(buffer, everything=False)

    def finish(self) -> Iterator[Batch]:
        """The input is over: end every connection and yield what that finishes."""
        yield from self._end(np.zeros(1, np.uint8), everything=True)

    def _dissect(self, buffer: Array, chunks: int) -> Iterator[Batch]:
        assembler = self.assembler
        if len(self._ports):
            self._hint(assembler.chunks[:chunks])
        for finished in self.dissector.feed(
            buffer, assembler.pool, assembler.chunks, chunks, len(assembler.connections)
        ):
            yield from self._deliver(finished)

    def _hint(self, chunks: Array) -> None:
        """Tell the client's direction of connections without a SYN whose one end has a broker's port."""
        starts = chunks[(chunks["kind"] == dialog_rows.START) & (chunks["captured"] == 0)]
        if not len(starts):
            return
        flows = self.assembler.flows[self.assembler.connections["flow"][starts["connection"]]]
        at_a, at_b = np.isin(flows["a_port"], self._ports), np.isin(flows["b_port"], self._ports)
        where = np.flatnonzero((chunks["kind"] == dialog_rows.START) & (chunks["captured"] == 0))[at_a != at_b]
        chunks["direction"][where] = at_a[at_a != at_b]
        chunks["captured"][where] = 2

    def _end(self, buffer: Array, everything: bool) -> Iterator[Batch]:
        assembler = self.assembler
        for chunks, ended in assembler.finish(self.last or 0, everything):
            yield from self._dissect(buffer, chunks)
            yield from self._deliver(self.dissector.drain(buffer, assembler.pool))
            if len(ended):
                self._close(ended)
                assembler.release(ended)

    def _deliver(self, finished: Finished) -> Iterator[Batch]:
        if len(finished.topics):
            self._topics.append(finished.topics)
        rows = finished.exchanges
        if not len(rows):
            return
        client_ip, client_port, broker_ip, broker_port = self._endpoints(finished.owners)
        rows["client_ip"] = client_ip
        rows["client_port"] = client_port
        rows["broker_ip"] = broker_ip
        rows["broker_port"] = broker_port
        yield Batch(rows, finished.results)

    def _endpoints(self, connections: Array) -> tuple[Array, Array, Array, Array]:
        """Address number and port of the client's and the broker's end (of end a as client where it is not known)."""
        table = self.assembler.connections
        if len(self._known) < len(table):
            known = np.full(len(table), -1, np.int64)
            known[: len(self._known)] = self._known
            ends = np.zeros((len(table), 4), np.int32)
            ends[: len(self._ends)] = self._ends
            self._known, self._ends = known, ends
        new = np.unique(connections[self._known[connections] != table["serial"][connections]])
        for c in new.tolist():
            flow = self.assembler.flows[table["flow"][c]]
            self._ends[c] = (
                self._address(int(flow["a_high"]), int(flow["a_low"])), flow["a_port"],
                self._address(int(flow["b_high"]), int(flow["b_low"])), flow["b_port"],
            )  # fmt: skip
            self._known[c] = table["serial"][c]
        ends = self._ends[connections]
        swap = (self.dissector.dialogs["client"][connections] == 1)[:, None]
        ends = np.where(swap, ends[:, [2, 3, 0, 1]], ends)
        return ends[:, 0], ends[:, 1], ends[:, 2], ends[:, 3]

    def _address(self, high: int, low: int) -> int:
        number = self._address_numbers.get((high, low))
        if number is None:
            value = (high & (1 << 64) - 1) << 64 | (low & (1 << 64) - 1)
            address = ipaddress.IPv6Address(value)
            number = self._address_numbers[high, low] = len(self.addresses)
            self.addresses.append(str(address.ipv4_mapped or address))
        return number

    def _close(self, ended: Array) -> None:
        """Keep a row of each connection that is over, and count its bytes in the ledger."""
        ended = ended.astype(np.int64)
        table = self.assembler.connections[ended]
        dialogs = self.dissector.dialogs[ended]
        rows = np.zeros(len(ended), CONNECTION_ROW)
        rows["connection"] = table["serial"]
        for name in ("first", "last", "handshake_rtt_ns", "packets"):
            rows[name] = table[name]
        rows["client_ip"], rows["client_port"], rows["broker_ip"], rows["broker_port"] = self._endpoints(ended)
        for name in ("client_id", "software", "software_version", "protocol"):
            rows[name] = dialogs[name]
        rows["sasl_mechanism"] = dialogs["mechanism"]
        rows["orientation_known"] = dialogs["client"] >= 0
        client = np.maximum(dialogs["client"], 0)
        for prefix, side in (("client_", client), ("broker_", 1 - client)):
            ways = self.assembler.directions[2 * ended + side]
            for name in (
                "retransmitted_bytes", "retransmitted_packets", "out_of_order", "hole_bytes", "holes", "zero_windows",
            ):  # fmt: skip
                rows[prefix + name] = ways[name]
            rows[prefix + "bytes"] = ways["bytes"] - ways["retransmitted_bytes"] - ways["stray_bytes"]
        self._connections.append(rows)
        encrypted = dialogs["protocol"] == dialog_rows.TLS
        kafka = dialogs["protocol"] == dialog_rows.KAFKA
        parts = self._bytes
        for d in (0, 1):
            ways = self.assembler.directions[2 * ended + d]
            streams = self.dissector.streams[2 * ended + d]
            skipped = streams["skipped_bytes"]
            parts["kafka_frames"] += int((streams["frame_bytes"] - streams["token_bytes"]).sum())
            parts["sasl_tokens"] += int(streams["token_bytes"].sum())
            parts["encrypted"] += int(skipped[encrypted].sum())
            parts["skipped"] += int(skipped[kafka].sum())
            parts["not_kafka"] += int(skipped[~encrypted & ~kafka].sum())
            parts["retransmitted"] += int(ways["retransmitted_bytes"].sum())
            parts["out_of_window"] += int(ways["stray_bytes"].sum())
            self.not_captured += int(ways["cut_bytes"].sum())

    @property
    def connections(self) -> Array:
        """CONNECTION_ROW of every connection that is over."""
        return np.concatenate(self._connections) if self._connections else np.zeros(0, CONNECTION_ROW)

    @property
    def topics(self) -> Array:
        """EXCHANGE_TOPIC rows so far (all_results only)."""
        from kafkatap.dissector.exchanges import EXCHANGE_TOPIC

        return np.concatenate(self._topics) if self._topics else np.zeros(0, EXCHANGE_TOPIC)

    @property
    def encrypted_share(self) -> float:
        """The part of the TCP payload that was TLS, 0 to 1."""
        total = sum(self._bytes.values())
        return self._bytes["encrypted"] / total if total else 0.0

    @property
    def topic_names(self) -> dict[int, int]:
        """String number of a topic id -> that of its name, as Metadata and CreateTopics responses told."""
        return self.dissector.topic_names

    def ledger(self) -> dict[str, dict[str, int]]:
        """Every packet, payload byte, request and response in exactly one named place; the parts sum to "total"."""
        state = self.dissector.state
        counts = self.assembler.counts
        packets = {name: int(counts[i]) for i, name in enumerate(headers.CATEGORIES)}
        requests = {
            "answered": int(state[dialog_rows.ANSWERED_COUNT]),
            "no_reply_expected": int(state[dialog_rows.NO_REPLY_COUNT]),
            "unanswered": int(state[dialog_rows.UNANSWERED_COUNT]),
            "response_lost": int(state[dialog_rows.LOST_COUNT]),
            "sasl_tokens": int(state[dialog_rows.REQUEST_TOKENS]),
            "header_not_captured": int(state[dialog_rows.REQUESTS_HEADERLESS]),
        }
        responses = {
            "matched": int(state[dialog_rows.ANSWERED_COUNT]),
            "orphan": int(state[dialog_rows.ORPHANS]),
            "sasl_tokens": int(state[dialog_rows.RESPONSE_TOKENS]),
            "header_not_captured": int(state[dialog_rows.RESPONSES_HEADERLESS]),
        }
        return {
            "packets": {**packets, "total": self.packets},
            "payload bytes": {**self._bytes, "total": self._payload_bytes()},
            "requests": {**requests, "total": int(state[dialog_rows.REQUESTS])},
            "responses": {**responses, "total": int(state[dialog_rows.RESPONSES])},
        }

    def _payload_bytes(self) -> int:
        """TCP payload on the wire, as the headers tell it: counted where segments are read, apart from all the parts."""
        return int(self.assembler.counts[headers.PAYLOAD])
