"""Estimated response times of encrypted connections against the true ones: the same capture with and without its keys.

    python -m benchmarks.tls_estimates [CAPTURE KEYLOG ...]        (without: the recordings in samples/tls)

Prints how many exchanges were answered, how many have an estimate, how many estimates belong to no exchange, and the
errors in ms. Then a Markdown table of connections: what part of their requests has an estimate, the true median and the
estimated one. The truth is the time from the last byte of a request to the first one of its response.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import NO_TIME
from kafkatap.engine.engine import Engine
from kafkatap.engine.read_options import ReadOptions
from kafkatap.engine.tls.estimates import FIRST_TURNS
from kafkatap.engine.tls.key_log import KeyLog
from kafkatap.kernels.arrays import distinct_values
from kafkatap.reports.batch import ESTIMATE, Context
from kafkatap.reports.sections.tls import COVERS
from kafkatap.reports.tls_names import TLS_1_3
from kafkatap.run import Run

Array = np.ndarray[Any, Any]
SAMPLES = Path(__file__).resolve().parent.parent / "samples" / "tls"
NAMES = ("libraries", "broker", "matrix")
_LEVELS = (("median", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))


class Errors(NamedTuple):
    """Estimates against the truth. `errors`: of each estimate whose request was found, ms."""

    answered: int
    estimates: int
    unmatched: int
    errors: Array

    def quantile(self, q: float) -> float:
        """A quantile of the errors, ms; 0 without any."""
        return float(np.quantile(self.errors, q)) if len(self.errors) else 0.0


class Client(NamedTuple):
    """A connection. `requests`: as its records show them; `true`, `estimated`: response times, ms."""

    name: str
    requests: int
    true: Array
    estimated: Array

    @property
    def coverage(self) -> float:
        """The part of the requests with an estimate."""
        return len(self.estimated) / self.requests if self.requests else 0.0


def _rows(path: str, key_log: KeyLog | None) -> tuple[Array, Array, Context]:
    engine = Engine(ReadOptions(key_log=key_log))
    run = Run([path], engine)
    batches = list(run.batches())
    exchanges = np.concatenate([b.exchanges for b in batches]) if batches else np.zeros(0)
    estimates = [b.estimates for b in batches if b.estimates is not None and len(b.estimates)]
    return exchanges, np.concatenate(estimates) if estimates else np.zeros(0, ESTIMATE), run.context()


def _answered(exchanges: Array, connections: Array) -> Array:
    """The answered exchanges of connections that were decrypted."""
    decrypted = connections["connection"][connections["tls_decrypted_bytes"] > 0]
    exchanges = exchanges[np.isin(exchanges["connection"], decrypted)]
    found: Array = exchanges[(exchanges["response_first"] != NO_TIME) & (exchanges["request_last"] != NO_TIME)]
    return found


def clients_of(path: str, keys: list[str]) -> list[Client]:
    """The connections of a capture with as many requests that estimates may exist, the longest names last."""
    exchanges, _, context = _rows(path, KeyLog(keys))
    _, estimates, blind = _rows(path, None)
    rows = blind.connections
    requests = dict(zip(rows["connection"].tolist(), rows["tls_requests"].tolist(), strict=True))
    versions = dict(zip(rows["connection"].tolist(), rows["tls_version"].tolist(), strict=True))
    found = []
    answered = _answered(exchanges, context.connections)
    for connection in distinct_values(answered["connection"]).tolist():
        mine = answered[answered["connection"] == connection]
        mine = mine[np.argsort(mine["request_last"])][FIRST_TURNS * (versions[connection] == TLS_1_3) :]
        if len(mine):
            name = context.text(int(mine["client_id"][0])) or "(none)"
            times = estimates["ns"][estimates["connection"] == connection]
            true = (mine["response_first"] - mine["request_last"]) / 1e6
            found.append(Client(name, requests.get(connection, 0), true, times / 1e6))
    return sorted(found, key=lambda client: client.name)


def errors_of(path: str, keys: list[str]) -> Errors:
    """The errors of a capture."""
    exchanges, _, context = _rows(path, KeyLog(keys))
    _, estimates, _ = _rows(path, None)
    answered = _answered(exchanges, context.connections)
    estimates = estimates[np.isin(estimates["connection"], answered["connection"])]
    truth = {
        (row["connection"].item(), row["request_last"].item()): (row["response_first"] - row["request_last"]).item()
        for row in answered
    }
    errors, unmatched = [], 0
    for row in estimates:
        true = truth.get((row["connection"].item(), row["at"].item()))
        if true is None:
            unmatched += 1
        else:
            errors.append(abs(row["ns"].item() - true) / 1e6)
    return Errors(len(answered), len(estimates), unmatched, np.array(errors))


def main() -> None:
    """Print the errors of the captures given."""
    path, *keys = sys.argv[1:] or ("",)
    given = (
        [(path, keys)] if path else [(str(SAMPLES / f"{n}.pcap.zst"), [str(SAMPLES / f"{n}.keys.log")]) for n in NAMES]
    )
    for capture, logs in given:
        found = errors_of(capture, logs)
        of = f"{found.answered:,} answered exchanges, {found.estimates:,} estimates, {found.unmatched:,} of no exchange"
        levels = ", ".join(f"{name} {found.quantile(q):.3f} ms" for name, q in _LEVELS)
        print(f"{capture}: {of}; error {levels}\n")
        print("| client | requests | coverage | true median, ms | estimated, ms | shown |")
        print("|---|---:|---:|---:|---:|---|")
        for client in clients_of(capture, logs):
            estimated = f"{np.median(client.estimated):.2f}" if len(client.estimated) else "-"
            shown = "yes" if client.coverage >= COVERS else "no"
            true = f"{np.median(client.true):.2f}"
            print(f"| {client.name} | {client.requests} | {client.coverage:.0%} | {true} | {estimated} | {shown} |")
        print()


if __name__ == "__main__":
    main()
