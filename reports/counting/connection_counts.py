"""Counts of TCP connections. Their memory does not grow with the number of connections."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..batch import ConnectionTotals, Context
from ..connection_columns import decryptions, failed_handshakes
from ..connection_words import D_NOT_TLS, O_HTTP, O_TLS, O_TLS_ALERT, P_KAFKA, P_TLS
from .count_forms import CountForm, CountStore, FormCounts, kinds_of
from .count_table import MAX, MIN, SUM, Array, CountTable
from .histogram import P50, Histograms, percentiles

#: `tls_ja4`: only of connections of Kafka or TLS whose client does not name its software.
KEY = ("client_id", "client_ip", "software", "software_version", "protocol", "tls_ja4")
#: Value columns: sums over both directions, except `client_zero_windows`.
VALUES = {
    "connections": SUM,
    "bytes": SUM,  # TCP payload without retransmissions
    "retransmitted_bytes": SUM,
    "retransmitted_packets": SUM,
    "spurious_retransmissions": SUM,  # of them, those that the other end did not need
    "client_zero_windows": SUM,
    "gap_bytes": SUM,
    "connections_with_gaps": SUM,  # connections with gaps
    "one_sided": SUM,  # connections with packets of one direction only
    "tls_connections": SUM,  # connections that use TLS, decrypted or not
    "rtt_max": MAX,  # ns
}
#: When the first and the last one of connections began, ns.
_SPAN = {"first": MIN, "last": MAX}
#: Keys of the TLS table. It has two kinds of rows. Those of connections have the last three empty, and the client and
#: its alert only if the handshake failed. Those of certificates have the decryption D_NOT_TLS.
TLS_KEY = (
    "tls_decryption", "client_ip", "tls_alert", "tls_alert_by", "broker_ip", "tls_server_certificate",
    "tls_server_certificate_end",
)  # fmt: skip
TLS_VALUES = {
    "connections": SUM,
    "bytes": SUM,  # TCP payload without retransmissions
    "tls_decrypted_bytes": SUM,
    **_SPAN,
}
#: Whether a port speaks TLS, and who used it otherwise. Rows of the first two values have no client.
PORT_KEY = ("broker_ip", "broker_port", "client_ip")
PORT_VALUES = {
    "tls": SUM,  # connections on which the broker answered with TLS
    "plain": SUM,  # connections on which it answered without
    "refused_tls": SUM,  # connections that began with TLS, and that it closed without an answer
    "refused_plain": SUM,  # connections that began without, and that it closed with a TLS alert at most
    "tls_answers": SUM,  # of them, those that it answered with one, or with a handshake
    "http_answers": SUM,  # connections on which it answered requests with HTTP
    "http_requests": SUM,  # connections that began with HTTP
    **_SPAN,  # of all but the first two
}
#: Bytes of a TLS alert.
_ALERT = 7
_NO_CERTIFICATE = {"broker_ip": -1, "tls_server_certificate": -1, "tls_server_certificate_end": 0}
_NO_CONNECTION = {"tls_decryption": D_NOT_TLS, "client_ip": -1, "tls_alert": -1, "tls_alert_by": -1}
_BOTH_DIRECTIONS = ("bytes", "retransmitted_bytes", "retransmitted_packets", "spurious_retransmissions", "gap_bytes")


CONNECTIONS = CountForm("connections", kinds_of(KEY), VALUES, {}, ("rtt",))
_TLS = CountForm("tls", kinds_of(TLS_KEY), TLS_VALUES, {})
_PORTS = CountForm("ports", kinds_of(PORT_KEY), PORT_VALUES, {"broker_ip": -1, "broker_port": -1, "client_ip": -1})


def without_twins(rows: Array) -> Array:
    """The connections (CONNECTION_ROW) that are not known to be others once more."""
    are_twins = rows["twin_of"] != 0
    return rows[~are_twins] if are_twins.any() else rows


class ConnectionCounts(CountStore):
    """Counts of connections by KEY. `table`: a CountTable of VALUES. `rtts`: handshake round trips of its rows, ns.
    `tls`: a CountTable of TLS_VALUES by TLS_KEY; `ports`: of PORT_VALUES by PORT_KEY."""

    def __init__(self) -> None:
        super().__init__(FormCounts(form) for form in (CONNECTIONS, _TLS, _PORTS))

    @property
    def table(self) -> CountTable:
        return self["connections"].table

    @property
    def rtts(self) -> Histograms:
        return self["connections"].histograms

    @property
    def tls(self) -> CountTable:
        return self["tls"].table

    @property
    def ports(self) -> CountTable:
        return self["ports"].table

    def add(self, rows: Array) -> None:
        """Add connections (CONNECTION_ROW records). Those that are others once more do not count."""
        rows = without_twins(rows)
        if len(rows):
            add_connections(self["connections"], rows)
            self._add_tls(rows)
            self._add_ports(rows)

    def _add_tls(self, rows: Array) -> None:
        """Add the TLS connections among some, and the certificates of their servers."""
        decryption = decryptions(rows)
        chosen = np.flatnonzero(decryption != D_NOT_TLS)
        if not len(chosen):
            return
        mine = rows[chosen]
        failed = failed_handshakes(mine)
        self["tls"].add_columns(
            {
                "tls_decryption": decryption[chosen],
                **{name: np.where(failed, mine[name], -1) for name in ("client_ip", "tls_alert", "tls_alert_by")},
                **_NO_CERTIFICATE,
            },
            {
                "connections": 1,
                "bytes": mine["client_bytes"].astype(np.int64) + mine["broker_bytes"],
                "tls_decrypted_bytes": mine["tls_decrypted_bytes"],
                **dict.fromkeys(_SPAN, mine["first"]),
            },
        )
        named = mine[mine["tls_server_certificate_end"] != 0]
        if len(named):
            self["tls"].add_columns(
                {**_NO_CONNECTION, **{name: named[name] for name in _NO_CERTIFICATE}}, {"connections": 1}
            )

    def _add_ports(self, rows: Array) -> None:
        """Add what the ports of brokers spoke."""
        sent, is_closed = rows["broker_bytes"], (rows["closed_by"] == 1) & (rows["broker_gap_bytes"] == 0)
        is_tls = decryptions(rows) != D_NOT_TLS
        is_plain = (rows["protocol"] == P_KAFKA) & ~is_tls
        answer = rows["broker_opening"]
        is_answered_by_tls = is_plain & ((answer == O_TLS_ALERT) | (answer == O_TLS))
        values = {
            "tls": is_tls & (rows["tls_version"] != 0),
            "plain": is_plain & (rows["exchanges"] > rows["unanswered"]),
            "refused_tls": is_tls & is_closed & (sent == 0) & (rows["client_bytes"] > 0),
            "refused_plain": is_plain & (rows["exchanges"] > 0) & (is_answered_by_tls | (is_closed & (sent <= _ALERT))),
            "tls_answers": is_answered_by_tls,
            "http_answers": is_plain & (answer == O_HTTP),
            "http_requests": rows["client_opening"] == O_HTTP,
        }
        is_refused = np.any([values[name] for name in values if name not in ("tls", "plain")], axis=0)
        chosen = np.flatnonzero(is_refused | values["tls"] | values["plain"])
        if len(chosen):
            keys = {name: rows[name][chosen] for name in PORT_KEY}
            keys["client_ip"] = np.where(is_refused[chosen], keys["client_ip"], -1)
            added = {name: column[chosen] for name, column in (values | dict.fromkeys(_SPAN, rows["first"])).items()}
            self["ports"].add_columns(keys, added)

    def total(self, value: str) -> int:
        """The sum of a value over all connections."""
        return int(self.table.value_rows()[:, list(VALUES).index(value)].sum())

    def of_protocol(self, protocol: int) -> int:
        """The number of connections of a protocol (`batch.PROTOCOLS`)."""
        chosen = self.table.key_rows()[:, KEY.index("protocol")] == protocol
        return int(self.table.value_rows()[chosen, list(VALUES).index("connections")].sum())

    def median_rtts(self, groups: Array, count: int) -> list[int | None]:
        """The median round trip of each of `count` groups of rows, ns; `groups`: int64, the group of each row."""
        top = np.full(count, -1, np.int64)
        np.maximum.at(top, groups, self.table.value_rows()[:, list(VALUES).index("rtt_max")])
        owner, bucket, times = self.rtts.of(0)
        found = percentiles(groups[owner], bucket, times, count, (P50,), top)[:, 0].tolist()
        return [rtt if rtt >= 0 else None for rtt in found]


def is_one_sided(rows: Array) -> Array:
    """Which connections carry payload and have packets of one direction only: bool (n,)."""
    without_client = (rows["client_packets"] == 0) & (rows["broker_bytes"] > 0)
    without_broker = (rows["broker_packets"] == 0) & (rows["client_bytes"] > 0)
    is_counted = rows["client_packets"] + rows["broker_packets"] > 0  # tables do not have these counts
    one_sided: Array = (without_client | without_broker) & is_counted
    return one_sided


def add_connections(counts: FormCounts, rows: Array, further: Mapping[str, Array] | None = None) -> None:
    """Add CONNECTION_ROW records, none of which is another one once more, to counts of CONNECTIONS. `further`: columns
    of more keys."""
    keys = {**(further or {}), **{name: rows[name] for name in KEY}}
    is_nameless = (rows["software"] < 0) & ((rows["protocol"] == P_KAFKA) | (rows["protocol"] == P_TLS))
    keys["tls_ja4"] = np.where(is_nameless, rows["tls_ja4"], -1)
    columns = {name: rows[f"client_{name}"].astype(np.int64) + rows[f"broker_{name}"] for name in _BOTH_DIRECTIONS}
    columns |= {
        "connections": 1,
        "client_zero_windows": rows["client_zero_windows"],
        "connections_with_gaps": (rows["client_gaps"] > 0) | (rows["broker_gaps"] > 0),
        "one_sided": is_one_sided(rows),
        "tls_connections": decryptions(rows) != D_NOT_TLS,
        "rtt_max": rows["handshake_rtt_ns"],
    }
    rtts = rows["handshake_rtt_ns"]
    counts.add_columns(keys, columns)
    seen = rtts >= 0
    counts.observe_columns({name: column[seen] for name, column in keys.items()}, "rtt", rtts[seen])


def count_connections(rows: Array) -> ConnectionCounts:
    """The counts of some connections (CONNECTION_ROW records)."""
    counts = ConnectionCounts()
    counts.add(rows)
    return counts


def connection_totals(context: Context) -> ConnectionTotals:
    """The counts of a run's connections, made from its rows if the run has only these."""
    return count_connections(context.connections) if context.counted is None else context.counted
