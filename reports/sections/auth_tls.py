"""TLS connections of clients, and those whose handshake failed: with an alert, or without one that can be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..batch import Array
from ..connection_columns import failed_handshakes
from ..counting.count_forms import ADDRESS, NUMBER, CountForm
from ..counting.count_table import MAX, MIN, SUM
from ..section_parts.section import SectionInput
from ..section_parts.section_counts import Tally
from ..tls_names import HIDDEN, alert_name

#: `alert`: the description of the alert, or _NO_ALERT; `by`: the end that sent it, as in CONNECTION_ROW.
TLS = CountForm(
    "auth.tls",
    {"broker_ip": ADDRESS, "broker_port": NUMBER, "client_ip": ADDRESS, "alert": NUMBER, "by": NUMBER},
    {"connections": SUM, "failed": SUM, "first": MIN, "last": MAX},
    {"broker_ip": -1, "broker_port": -1, "client_ip": -1, "alert": -1, "by": -1},
)
_NO_ALERT = -1


class FailedTls(NamedTuple):
    """Failed TLS handshakes of a client at a broker, with one outcome. `connections`: all its TLS connections there."""

    client: int
    broker: tuple[int, int]  # address, port
    outcome: str
    sent_by: str
    connections: int
    failed: int
    first: int
    last: int


def count_tls(rows: Array, tally: Tally) -> None:
    """Count TLS connections (CONNECTION_ROW)."""
    if not len(rows):
        return
    failed = failed_handshakes(rows)
    keys = {
        **{name: rows[name] for name in ("broker_ip", "broker_port", "client_ip")},
        "alert": np.where(failed, rows["tls_alert"], _NO_ALERT), "by": np.where(failed, rows["tls_alert_by"], -1),
    }  # fmt: skip
    values = {
        "connections": 1, "failed": failed, "first": np.where(failed, rows["first"], 2**63 - 1),
        "last": np.where(failed, rows["last"], -(2**63)),
    }  # fmt: skip
    tally.add(TLS.name, keys, values)


def failed_tls(given: SectionInput) -> Iterator[FailedTls]:
    """The failed handshakes by client, broker and alert."""
    keys, values = given.keys(TLS.name), given.values(TLS.name)
    columns = [keys[name].tolist() for name in ("client_ip", "broker_ip", "broker_port", "alert", "by")]
    columns += [values[name].tolist() for name in ("connections", "failed", "first", "last")]
    rows = list(zip(*columns, strict=True))
    total: dict[tuple[int, ...], int] = {}
    for row in rows:
        total[row[:3]] = total.get(row[:3], 0) + row[5]
    for client, ip, port, alert, by, _, failed, first, last in rows:
        if failed:
            yield FailedTls(
                client, (ip, port), _outcome(alert), _sender(alert, by), total[client, ip, port], failed, first, last
            )


def _outcome(alert: int) -> str:
    return "TLS handshake failed" if alert < 0 else f"TLS {alert_name(alert)}"


def _sender(alert: int, by: int) -> str:
    if alert < 0:
        return "without an alert that can be read"
    kind = "encrypted alert" if alert in HIDDEN else "alert"
    return f"{kind} of the {'client' if by == 0 else 'broker'}" if by >= 0 else kind
