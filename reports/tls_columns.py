"""The columns of the table `connections` on TLS, and the numbers of CONNECTION_ROW that they are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .arrow_arrays import arrow_indices, arrow_numbers, arrow_texts
from .batch import D_NOT_TLS, DECRYPTIONS, TLS_SESSIONS, Array, decryptions
from .tls_names import ALERTS, SUITES, VERSIONS, alert_name, suite_name, version_name

#: Name and type of each column. All are null for connections without TLS. TIME: as in `tables`.
TLS_SPECS = (
    ("tls_version", "string?"),
    ("tls_cipher_suite", "string?"),
    ("tls_server_name", "string?"),
    ("tls_alpn", "string?"),
    ("tls_session", "string?"),
    ("tls_handshake_ns", "int64?"),
    ("tls_server_certificate", "string?"),
    ("tls_server_certificate_end", "TIME?"),
    ("tls_client_certificate", "string?"),
    ("tls_client_certificate_end", "TIME?"),
    ("tls_asks_certificate", "bool?"),
    ("tls_alert", "string?"),
    ("tls_alert_by", "string?"),
    ("tls_decryption", "string?"),
    ("tls_decrypted_bytes", "int64?"),
    ("tls_records", "int64?"),
    ("tls_failed_records", "int64?"),
    ("tls_lost_records", "int64?"),
    ("tls_estimated", "int64?"),
)
#: Columns that have another name in CONNECTION_ROW.
TLS_RENAMED = {"tls_cipher_suite": "tls_suite"}
#: Columns of CONNECTION_ROW that are 0 where the table has null.
TLS_ZERO_IF_NULL = frozenset((
    "tls_version", "tls_suite", "tls_session", "tls_server_certificate_end", "tls_client_certificate_end",
    "tls_asks_certificate", "tls_decryption", "tls_decrypted_bytes", "tls_records", "tls_failed_records",
    "tls_lost_records", "tls_estimated",
))  # fmt: skip
_TEXTS = ("tls_server_name", "tls_alpn", "tls_server_certificate", "tls_client_certificate")
_TIMES = ("tls_server_certificate_end", "tls_client_certificate_end")
_COUNTS = ("tls_decrypted_bytes", "tls_records", "tls_failed_records", "tls_lost_records", "tls_estimated")
_ENDS = ("client", "broker")


def tls_columns(c: Array, strings: Callable[[Array], Any], time: Any) -> dict[str, Any]:
    """The columns of CONNECTION_ROW rows. `strings` makes texts of their numbers. `time`: the type of times."""
    import pyarrow as pa

    decryption = decryptions(c)
    none = decryption == D_NOT_TLS
    is_untimed = none | (c["tls_handshake_ns"] < 0)
    columns = {
        "tls_version": _named(c["tls_version"], version_name, none | (c["tls_version"] == 0)),
        "tls_cipher_suite": _named(c["tls_suite"], suite_name, none | (c["tls_suite"] == 0)),
        "tls_session": _words(TLS_SESSIONS, c["tls_session"], is_untimed),
        "tls_handshake_ns": arrow_numbers(c["tls_handshake_ns"], pa.int64(), is_untimed),
        "tls_asks_certificate": arrow_numbers(c["tls_asks_certificate"] != 0, pa.bool_(), none),
        "tls_alert": _named(c["tls_alert"], alert_name, none | (c["tls_alert"] < 0)),
        "tls_alert_by": _words(_ENDS, c["tls_alert_by"], none | (c["tls_alert_by"] < 0)),
        "tls_decryption": _words(DECRYPTIONS, decryption, none),
    }
    columns |= {name: strings(np.where(none, -1, c[name])) for name in _TEXTS}
    columns |= {name: arrow_numbers(c[name], time, none | (c[name] == 0)) for name in _TIMES}
    return columns | {name: arrow_numbers(c[name], pa.int64(), none) for name in _COUNTS}


def _words(names: Sequence[str], numbers: Array, missing: Array) -> Any:
    return arrow_texts(names).take(arrow_indices(numbers, missing))


def _named(numbers: Array, name_of: Callable[[int], str | None], missing: Array) -> Any:
    """The names of numbers, of which there are few different ones."""
    distinct, inverse = np.unique(numbers, return_inverse=True)
    return _words([name_of(number) or "" for number in distinct.tolist()], inverse, missing)


#: The numbers of words, by column of CONNECTION_ROW.
_NUMBERS: dict[str, dict[str, int]] = {
    "tls_version": {name: number for number, name in VERSIONS.items()},
    "tls_suite": {name: number for number, name in SUITES.items()},
    "tls_alert": {name: number for number, name in ALERTS.items()},
    "tls_session": {name: number for number, name in enumerate(TLS_SESSIONS)},
    "tls_decryption": {name: number for number, name in enumerate(DECRYPTIONS)},
    "tls_alert_by": {name: number for number, name in enumerate(_ENDS)},
}


def is_tls_word(name: str) -> bool:
    """Whether a column of CONNECTION_ROW has numbers where the table has words."""
    return name in _NUMBERS


def tls_number(name: str, text: str) -> int:
    """The number of a word in a column of CONNECTION_ROW: of a name, or of `0x00ff` or `alert 200`."""
    found = _NUMBERS[name].get(text)
    if found is not None:
        return found
    return int(text, 16) if text.startswith("0x") else int(text.removeprefix("alert "))
