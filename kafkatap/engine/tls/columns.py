"""What the layer knows of connections, as the TLS columns of CONNECTION_ROW."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.reports.connection_columns import CONNECTION_ROW, TLS_COLUMNS, TLS_UNKNOWN

from .record_tables import DECRYPTED

if TYPE_CHECKING:
    from .layer import TlsLayer
    from .tracked import Tracked

Array = np.ndarray[Any, Any]
#: The payload of a connection that is TLS around plain bytes, and that was not decrypted.
TLS_BYTES = np.dtype([("overhead", "i8"), ("encrypted", "i8")])
#: TLS columns of a connection, and what else the engine needs: whether it was decrypted, the direction of its client
#: (-1: unknown), and TLS_BYTES.
TLS_ROW = np.dtype([
    *((name, CONNECTION_ROW[name]) for name in TLS_COLUMNS),
    ("is_decrypted", "u1"),
    ("is_silent", "u1"),  # it was decrypted, and there was no data
    ("is_unfinished", "u1"),  # its handshake was not completed so far
    ("hidden_alert", "i2"),  # of HIDDEN, if the connection was closed; -1
    ("hidden_alert_by", "i1"),  # the end that sent it: 0 client, 1 broker; -1
    ("client", "i1"),
    *((name, TLS_BYTES[name]) for name in TLS_BYTES.names or ()),
])  # fmt: skip


def tls_rows(layer: TlsLayer, connections: Array, number_of: Callable[[bytes], int]) -> Array | None:
    """TLS_ROW of connections by number; None if none of them is TLS. `number_of`: the number of a string."""
    found = _tracked(layer, connections)
    if not found:
        return None
    rows = np.zeros(len(connections), TLS_ROW)
    for name in (*TLS_UNKNOWN, "hidden_alert", "hidden_alert_by", "client"):
        rows[name] = -1
    for i, tracked in found:
        _fill(rows[i], layer, tracked, number_of)
    return rows


def tls_bytes(layer: TlsLayer, connections: Array) -> Array | None:
    """TLS_BYTES of connections by number; None if none of them is TLS."""
    found = _tracked(layer, connections)
    rows = np.zeros(len(connections), TLS_BYTES)
    for i, tracked in found:
        _fill_bytes(rows[i], layer, tracked)
    return rows if found else None


def _tracked(layer: TlsLayer, connections: Array) -> list[tuple[int, Tracked]]:
    return [(i, layer.tracked[c]) for i, c in enumerate(connections.tolist()) if c in layer.tracked]


def _fill_bytes(row: Any, layer: TlsLayer, tracked: Tracked) -> None:
    payload, _, _ = tracked.counts = layer.counts(tracked)
    if tracked.mode == DECRYPTED:
        row["encrypted"] = max(0, payload - tracked.read_bytes)
        row["overhead"] = payload - row["encrypted"] - tracked.plain_bytes


def _fill(row: Any, layer: TlsLayer, tracked: Tracked, number_of: Callable[[bytes], int]) -> None:
    facts = tracked.facts
    row["tls_handshake_ns"] = max(tracked.handshake_ns, -1)
    row["tls_decrypted_bytes"] = tracked.decrypted_bytes
    row["tls_failed_records"] = tracked.failed
    if tracked.mode != DECRYPTED:
        row["tls_estimated"], row["tls_requests"] = tracked.estimated, layer.messages(tracked)
    _fill_bytes(row, layer, tracked)
    _, records, lost = tracked.counts
    row["tls_records"], row["tls_lost_records"] = records, max(lost, tracked.lost)
    row["tls_server_certificate_end"] = facts.server_certificate_end
    row["tls_client_certificate_end"] = facts.client_certificate_end
    for column, text in (
        ("tls_server_name", facts.server_name),
        ("tls_alpn", facts.alpn),
        ("tls_ja4", facts.ja4),
        ("tls_server_certificate", facts.server_certificate),
        ("tls_client_certificate", facts.client_certificate),
    ):
        row[column] = number_of(text.encode("utf-8", "replace")) if text else -1
    row["tls_version"], row["tls_suite"] = facts.version, facts.suite
    row["tls_alert"] = facts.alert
    if facts.alert_by >= 0 and facts.client >= 0:
        row["tls_alert_by"] = facts.alert_by != facts.client
    row["tls_decryption"] = tracked.decryption(layer.key_log)
    row["tls_session"] = facts.session
    row["tls_asks_certificate"] = facts.asks_certificate
    row["client"] = facts.client
    row["is_unfinished"] = tracked.is_unfinished
    if tracked.mode != DECRYPTED and not lost and tracked.outline is not None:
        alert, by = tracked.outline.verdict(facts, layer.records(tracked)[1 - facts.client])
        row["hidden_alert"], row["hidden_alert_by"] = alert, by if by < 0 else by != facts.client
    if tracked.mode == DECRYPTED:
        row["is_decrypted"] = 1
        row["is_silent"] = not tracked.plain_bytes
