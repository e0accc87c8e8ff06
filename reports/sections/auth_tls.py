"""TLS connections of clients, and those whose handshake failed: with an alert, or without one that can be read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..connection_columns import decryptions, failed_handshakes
from ..connection_words import D_NOT_TLS
from ..counting.count_forms import ADDRESS
from ..section_parts.counted import BROKER, CONNECTIONS, counted, largest, largest_where, least, least_where, total
from ..section_parts.section import SectionInput
from ..tls_names import HIDDEN, alert_name

_NO_ALERT = -1
#: `alert`: the description of the alert, or _NO_ALERT; `by`: the end that sent it, as in CONNECTION_ROW.
TLS = counted(
    "auth.tls", {**BROKER, "client_ip": ADDRESS}, lambda x: decryptions(x) != D_NOT_TLS, of=CONNECTIONS,
    more={"alert": lambda x: np.where(failed_handshakes(x), x.tls_alert, _NO_ALERT),
          "by": lambda x: np.where(failed_handshakes(x), x.tls_alert_by, -1)},
    connections=total(1), failed=total(failed_handshakes),
    first=least(lambda x: least_where(failed_handshakes(x), x.first)),
    last=largest(lambda x: largest_where(failed_handshakes(x), x.last)),
)  # fmt: skip


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


def failed_tls(given: SectionInput) -> Iterator[FailedTls]:
    """The failed handshakes by client, broker and alert."""
    connections = defaultdict[tuple[int, ...], int](int)
    for row in given.rows(TLS.name):
        connections[_pair(row)] += row["connections"]
    for row in given.rows(TLS.name):
        if row["failed"]:
            client, ip, port = _pair(row)
            yield FailedTls(
                client, (ip, port), _outcome(row["alert"]), _sender(row["alert"], row["by"]),
                connections[_pair(row)], row["failed"], row["first"], row["last"],
            )  # fmt: skip


def _pair(row: dict[str, int]) -> tuple[int, int, int]:
    return row["client_ip"], row["broker_ip"], row["broker_port"]


def _outcome(alert: int) -> str:
    return "TLS handshake failed" if alert < 0 else f"TLS {alert_name(alert)}"


def _sender(alert: int, by: int) -> str:
    if alert < 0:
        return "without an alert that can be read"
    kind = "encrypted alert" if alert in HIDDEN else "alert"
    return f"{kind} of the {'client' if by == 0 else 'broker'}" if by >= 0 else kind
