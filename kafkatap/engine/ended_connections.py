"""Connections that are over: their rows, and where their payload bytes went."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from kafkatap.dissector.framing.connections import PROTOCOL_KAFKA, PROTOCOL_TLS
from kafkatap.dissector.framing.samples import SAMPLES
from kafkatap.kernels.arrays import taken
from kafkatap.reassembly.stalls import STUCK_NS
from kafkatap.reports.connection_columns import CONNECTION_ROW, MEASURED_COLUMNS, TLS_COLUMNS, TLS_UNKNOWN
from kafkatap.reports.connection_words import (
    D_FAILED_HANDSHAKE,
    D_NO_HANDSHAKE,
    D_NO_KEY_LOG,
    H_COMPLETE,
    H_NOT_CAPTURED,
    H_REFUSED,
    H_UNANSWERED,
    H_UNFINISHED,
    NOT_CLOSED,
    P_TLS,
    P_UNKNOWN,
    WITH_FIN,
    WITH_RST,
)
from kafkatap.reports.counting.connection_counts import ConnectionCounts

from .assembly import Assembled
from .known_twins import NO_TWINS, SEEN_TWICE, KnownTwins

Array = np.ndarray[Any, Any]
#: Where a payload byte ends up: the part "payload bytes" of the ledger.
BYTE_PLACES = (
    "kafka_frames", "sasl_tokens", "proxy_headers", "tls_overhead", "encrypted", "not_kafka", "skipped",
    "retransmitted", "duplicate", "out_of_window", SEEN_TWICE,
)  # fmt: skip
#: The places that have it twins or not.
_OF_COPIES = ("retransmitted", "duplicate", "out_of_window")
#: Clients have ports from here on (Linux: net.ipv4.ip_local_port_range).
_EPHEMERAL = 32_768
_OF_DIRECTION = (
    "packets", "retransmitted_bytes", "retransmitted_packets", "out_of_order", "gap_bytes", "gaps", "zero_windows",
    "mss", "sack_permitted", "timestamps",
)  # fmt: skip


class Counted(NamedTuple):
    """Where the bytes of n connections went. `serials`: of the connections. `packets`: of each. `counts`:
    int64 (n, BYTE_PLACES and one more), the bytes in each place, and the packets that were captured twice."""

    serials: Array
    packets: Array
    counts: Array

    @staticmethod
    def none() -> Counted:
        """No connection."""
        return Counted(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, len(BYTE_PLACES) + 1), np.int64))

    @staticmethod
    def of(part: Assembled, protocol: Array, streams: Array, tls: Array | None, are_twins: Array) -> Counted:
        """The connections that ended with a part. `protocol`: PROTOCOL_* (n,); `tls`: their TLS_BYTES, as of
        `EndedConnections.add`, like the others; `are_twins`: of `KnownTwins`, bool (n,)."""

        def both(rows: Array, name: str) -> Array:
            found: Array = rows[name].reshape(-1, 2).sum(axis=1)
            return found

        skipped, is_tls, is_kafka = both(streams, "skipped_bytes"), protocol == PROTOCOL_TLS, protocol == PROTOCOL_KAFKA
        tokens, none = both(streams, "token_bytes"), np.zeros(len(protocol), np.int64)
        places = {
            "kafka_frames": both(streams, "frame_bytes") - tokens,
            "sasl_tokens": tokens,
            "proxy_headers": both(streams, "proxy_bytes"),
            "tls_overhead": none if tls is None else tls["overhead"],
            "encrypted": np.where(is_tls, skipped, 0) + (none if tls is None else tls["encrypted"]),
            "not_kafka": np.where(is_tls | is_kafka, 0, skipped) + both(streams, "foreign_bytes"),
            "skipped": np.where(is_kafka, skipped, 0),
            "retransmitted": both(part.ended_directions, "retransmitted_bytes"),
            "duplicate": both(part.ended_directions, "duplicate_bytes"),
            "out_of_window": both(part.ended_directions, "stray_bytes"),
        }
        places[SEEN_TWICE] = none
        if are_twins.any():
            of_messages = {name: counts for name, counts in places.items() if name not in _OF_COPIES}
            places |= {name: np.where(are_twins, 0, counts) for name, counts in of_messages.items()}
            places[SEEN_TWICE] = np.where(are_twins, sum(of_messages.values()), 0)
        counts = [*(places[name] for name in BYTE_PLACES), both(part.ended_directions, "duplicate_packets")]
        rows = part.ended_rows
        return Counted(rows["serial"], rows["packets"], np.stack(counts, axis=1).astype(np.int64))

    def in_order(self) -> Counted:
        """The same connections, by ascending serial."""
        order = np.argsort(self.serials)
        return Counted(*(column[order] for column in self))

    def places_of(self, serials: Array) -> Array:
        """The places of connections among these, which are `in_order`; -1 for others."""
        if not len(self.serials):
            return np.full(len(serials), -1, np.int64)
        at = np.minimum(np.searchsorted(self.serials, serials), len(self.serials) - 1)
        return np.where(self.serials[at] == serials, at, -1)

    def without(self, places: Array) -> Counted:
        """The other connections."""
        return Counted(*(np.delete(column, places, axis=0) for column in self))


class EndedConnections:
    """Counts connections as they end. `tables`: also keep a row of each. `twins`: those that only have a place in the
    ledger."""

    def __init__(self, tables: bool, twins: KnownTwins = NO_TWINS) -> None:
        self._twins = twins
        self.counted = None if tables else ConnectionCounts()
        self.bytes = dict.fromkeys(BYTE_PLACES, 0)
        self.decrypted = 0  # payload of TLS connections that were decrypted, without records that were not
        self.not_captured = 0  # bytes that the snap length cut off
        self.duplicates = 0  # packets that were captured twice
        self._rows: list[Array] = []
        #: Called with the CONNECTION_ROWs of connections that ended.
        self.on_ended: Callable[[Array], None] | None = None
        #: Called with their counts.
        self.on_counted: Callable[[Counted], None] | None = None

    def copy(self) -> EndedConnections:
        """The same counts and rows, to which more can be added."""
        made = EndedConnections(self.counted is None, self._twins)
        made.counted = None if self.counted is None else self.counted.copy()
        made.bytes = dict(self.bytes)
        made.not_captured, made.decrypted, made.duplicates = self.not_captured, self.decrypted, self.duplicates
        made._rows = list(self._rows)
        return made

    @property
    def rows(self) -> Array:
        """CONNECTION_ROW of every connection that ended. Empty without `tables`."""
        return np.concatenate(self._rows) if self._rows else np.zeros(0, CONNECTION_ROW)

    def clear_rows(self) -> None:
        """Drop the rows so far."""
        self._rows.clear()

    def discount(self) -> None:
        """Drop the rows and counts so far: another run has them."""
        self._rows.clear()
        self.bytes = dict.fromkeys(BYTE_PLACES, 0)
        self.not_captured = self.duplicates = self.decrypted = 0

    def add(
        self, part: Assembled, known: Array, samples: Array, streams: Array, silences: Array, ends: Array,
        proxies: Array,
        tls: Array | None = None, has_keys: bool = False,
    ) -> None:  # fmt: skip
        """Add the connections that ended with a part.

        `known`: the dissector's CONNECTION rows of them; `samples`: their SAMPLE rows (n, SAMPLES). `streams`: STREAM
        (2n,), two for each; `silences`: their SILENCE rows. `ends`: int32 (n, 4), address number and port of the
        client, then of the broker; if it is not known which is which, a port from _EPHEMERAL on is the client's beside
        a lower one. `proxies`: int32 (n, 2), those of a proxy, -1. `tls`: TLS_ROW, one for each; None if the TLS layer
        found none among them. `has_keys`: the run has a key log.
        """
        is_oriented = known["client"] >= 0
        is_turned = ~is_oriented & (ends[:, 1] < _EPHEMERAL) & (ends[:, 3] >= _EPHEMERAL)
        if is_turned.any():
            known, ends = known.copy(), np.where(is_turned[:, None], ends[:, [2, 3, 0, 1]], ends)
            known["client"][is_turned] = 1
        rows = self._made(part, known, ends)
        rows["orientation_known"] = is_oriented
        client = 2 * np.arange(len(known)) + np.maximum(known["client"], 0)
        rows["client_opening"], rows["broker_opening"] = streams["opening"][client], streams["opening"][client ^ 1]
        _add_tls(rows, tls, has_keys)
        _add_sums(rows, known, streams, silences)
        _add_samples(rows, known, samples)
        if len(part.ended_measures):
            _add_measures(rows, part, known)
        rows["proxy_ip"], rows["proxy_port"] = proxies.T
        self._twins.mark(rows)
        if self.on_ended is not None:
            self.on_ended(rows)
        if self.counted is None:
            self._rows.append(rows)
        else:
            self.counted.add(rows)
        counted = Counted.of(part, known["protocol"], streams, tls, rows["twin_of"] != 0)
        *places, duplicates = counted.counts.sum(axis=0).tolist()
        for name, count in zip(BYTE_PLACES, places, strict=True):
            self.bytes[name] += count
        self.duplicates += duplicates
        self.not_captured += int(part.ended_directions["cut_bytes"].sum())
        if self.on_counted is not None:
            self.on_counted(counted)
        if tls is not None:
            rows, tls = rows[rows["twin_of"] == 0], tls[rows["twin_of"] == 0]
            mine = rows[tls["is_decrypted"] != 0]
            self.decrypted += int((mine["client_bytes"] + mine["broker_bytes"]).sum() - tls["encrypted"].sum())

    def _made(self, part: Assembled, known: Array, ends: Array) -> Array:
        rows = np.zeros(len(known), CONNECTION_ROW)
        rows["connection"] = known["key"]
        for name in ("first", "last", "handshake_rtt_ns", "packets", "first_packet"):
            rows[name] = part.ended_rows[name]
        set_ends(rows, ends)
        for name in ("client_id", "software", "software_version", "protocol"):
            rows[name] = known[name]
        rows["sasl_mechanism"] = known["mechanism"]
        for name in TLS_UNKNOWN:
            rows[name] = -1
        client = np.maximum(known["client"], 0)
        first = 2 * np.arange(len(known))
        for prefix, direction in (("client_", client), ("broker_", 1 - client)):
            sent = taken(part.ended_directions, first + direction)
            more = taken(part.ended_recoveries, first + direction)
            for name in _OF_DIRECTION:
                rows[prefix + name] = sent[name]
            rows[prefix + "duplicates"] = sent["duplicate_packets"]
            rows[prefix + "spurious_retransmissions"] = more["spurious_packets"]
            rows[prefix + "window_scale"] = sent["shift"]
            rows[prefix + "sequence"] = np.where(sent["started"], sent["base_seq"] + 1, 0)
            rows[prefix + "unacknowledged_bytes"] = np.maximum(
                np.maximum(sent["next"], more["sent"]) - sent["acked"], 0
            )
            rows[prefix + "bytes"] = sent["bytes"] - sent["retransmitted_bytes"] - sent["stray_bytes"]
        mine, more = taken(part.ended_directions, first + client), taken(part.ended_recoveries, first + client)
        is_lost = more["copy_end"] != 0
        rows["client_lost_bytes"] = np.where(is_lost, np.maximum(mine["next"] - more["copy_from"], 0), 0)
        rows["client_lost_at"] = np.where(is_lost, more["copy_at"], 0)
        _add_stuck(rows, taken(part.ended_recoveries, first + 1 - client))
        _add_ending(rows, part, client)
        return rows


def _add_tls(rows: Array, tls: Array | None, has_keys: bool) -> None:
    """Write the TLS columns of connections that are TLS."""
    is_tls = rows["protocol"] == P_TLS
    rows["tls_decryption"][is_tls] = D_NO_HANDSHAKE if has_keys else D_NO_KEY_LOG
    if tls is not None:
        known = (is_tls | (tls["is_decrypted"] != 0)) & (tls["tls_decryption"] != 0)
        for name in TLS_COLUMNS:
            rows[name][known] = tls[name][known]
        rows["protocol"][(rows["protocol"] == P_UNKNOWN) & (tls["is_silent"] != 0)] = P_TLS
        is_failed = known & (tls["is_unfinished"] != 0) & (rows["closed_with"] != NOT_CLOSED)
        is_rejected = known & (tls["hidden_alert"] >= 0) & (rows["closed_with"] != NOT_CLOSED)
        rows["tls_decryption"][is_failed | is_rejected] = D_FAILED_HANDSHAKE
        rows["tls_alert"][is_rejected] = tls["hidden_alert"][is_rejected]
        rows["tls_alert_by"][is_rejected] = tls["hidden_alert_by"][is_rejected]


def _add_stuck(rows: Array, more: Array) -> None:
    """Write how long nothing acknowledged what brokers sent again. `more`: RECOVERY, of the brokers. What nothing
    acknowledged to the end counts to the last packet."""
    ended = rows["last"] - more["copy_since"]
    is_stuck = (more["copy_end"] != 0) & (more["copies"] > 1) & (ended >= STUCK_NS)
    rows["broker_stuck_ns"] = np.where(is_stuck, ended, more["stuck_ns"])
    rows["broker_stuck_at"] = np.where(is_stuck, more["copy_since"], more["stuck_at"])


def _add_ending(rows: Array, part: Assembled, client: Array) -> None:
    """Write how connections began and ended. `client`: by connection, the client's direction."""
    ended = part.ended_rows
    fin, reset = ended["fin_by"], ended["reset_by"]
    by = np.where(fin >= 0, fin, reset)
    rows["closed_by"] = np.where(by >= 0, by != client, -1)
    rows["closed_with"] = np.where(fin >= 0, WITH_FIN, np.where(reset >= 0, WITH_RST, NOT_CLOSED))
    rows["closed_at"] = np.where(fin >= 0, ended["fin_at"], np.where(reset >= 0, ended["closed_at"], -1))
    rows["closed_packet"] = np.where(by >= 0, ended["closed_packet"], -1)
    rows["reset_by"] = np.where(reset >= 0, reset != client, -1)
    has_syn, has_answer = ended["syn_at"] != 0, ended["syn_ack_at"] != 0
    is_complete = (ended["handshake_rtt_ns"] >= 0) | (has_answer & (rows["client_bytes"] > 0))
    is_reset = (reset >= 0) & (reset != client)
    is_refused = has_syn & ~has_answer & (is_reset | (ended["is_unreachable"] != 0))
    rows["handshake"] = np.select(
        [is_complete, is_refused, has_answer, has_syn],
        [H_COMPLETE, H_REFUSED, H_UNFINISHED, H_UNANSWERED],
        H_NOT_CAPTURED,
    )


def _add_sums(rows: Array, known: Array, streams: Array, silences: Array) -> None:
    """Write the sums over the exchanges of connections, and over their messages. What a mute cost requests is throttle
    wait."""
    client, first = np.maximum(known["client"], 0), 2 * np.arange(len(known))
    for message, direction in (("request", client), ("response", 1 - client)):
        rows[f"{message}_transfer_ns"] = streams["transfer_sum_ns"][first + direction]
        for name in ("loss", "receiver", "sender", "unexplained"):
            rows[f"{message}_{name}_ns"] = silences[f"{name}_sum_ns"][first + direction]
    rows["response_resent_ns"] = streams["resent_sum_ns"][first + 1 - client]
    for name in ("request_transfer_ns", "request_receiver_ns"):
        rows[name] -= known["muted_sum_ns"]
    for name in ("exchanges", "unanswered"):
        rows[name] = known[name]
    for name in ("total", "hol_wait", "throttle_wait", "broker", "wait_loss"):
        rows[f"{name}_ns"] = known[f"{name}_sum_ns"]


def _add_samples(rows: Array, known: Array, samples: Array) -> None:
    """Write the samples of connections that have some."""
    some = known["is_sampled"] != 0
    rows["sample_sequence"] = np.where(some, known["sample_sequence"], 0)
    if some.any():
        for message in ("request", "response"):
            for n in range(SAMPLES):
                rows[f"{message}_sample_{n}"] = samples[message][:, n]


#: Columns of MEASURE under other names in CONNECTION_ROW.
_RENAMED = {
    "retransmission_wait_sum_ns": "retransmission_wait_sum",
    "retransmission_wait_max_ns": "retransmission_wait_max",
    "rtt_sum_ns": "rtt_sum",
    "rtt_min_ns": "rtt_min",
    "rtt_max_ns": "rtt_max",
}


def _add_measures(rows: Array, part: Assembled, known: Array) -> None:
    """Write what was measured of connections. Round trips to an end are those of the data of the other one."""
    rows["is_measured"] = 1
    client, first = np.maximum(known["client"], 0), 2 * np.arange(len(known))
    of = np.repeat(part.ended_rows["serial"] + 1, 2)
    for end, direction in (("client", client), ("broker", 1 - client)):
        mine, other = first + direction, first + 1 - direction
        for name in MEASURED_COLUMNS:
            source = other if name.startswith("rtt_") else mine
            values = part.ended_measures[_RENAMED.get(name, name)][source]
            is_known = part.ended_measures["serial"][source] == of[source]
            rows[f"{end}_{name}"] = np.where(is_known, values, 0)
        since = part.ended_measures["zero_since"][mine]
        still_closed = (since != 0) & (part.ended_measures["serial"][mine] == of[mine])
        until = np.maximum(part.ended_rows["last"] - since, 0)
        rows[f"{end}_zero_window_ns"] += np.where(still_closed, until, 0)


def set_ends(rows: Array, ends: Array) -> None:
    """Write the ends of connections, int32 (n, 4), to rows of exchanges or connections."""
    for column, name in enumerate(("client_ip", "client_port", "broker_ip", "broker_port")):
        rows[name] = ends[:, column]
