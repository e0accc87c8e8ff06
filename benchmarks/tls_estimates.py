"""Estimated response times of encrypted connections against the true ones: the same capture with and without its keys.

    python -m benchmarks.tls_estimates CAPTURE KEYLOG ...

Prints, for each capture, how many exchanges were answered, how many have an estimate, how many estimates belong to no
exchange, and the errors in ms. The truth is the time from the last byte of a request to the first one of its response.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import NO_TIME
from kafkatap.engine.engine import Engine
from kafkatap.engine.read_options import ReadOptions
from kafkatap.engine.tls.key_log import KeyLog
from kafkatap.run import Run

Array = np.ndarray[Any, Any]
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


def _rows(path: str, key_log: KeyLog | None) -> tuple[Array, Array, Array]:
    engine = Engine(ReadOptions(key_log=key_log))
    batches = list(Run([path], engine).batches())
    exchanges = np.concatenate([b.exchanges for b in batches])
    estimates = [b.estimates for b in batches if b.estimates is not None]
    return exchanges, np.concatenate(estimates) if estimates else np.zeros(0), engine.connections


def errors_of(path: str, keys: list[str]) -> Errors:
    """The errors of a capture."""
    exchanges, _, connections = _rows(path, KeyLog(keys))
    _, estimates, _ = _rows(path, None)
    decrypted = connections["connection"][connections["tls_decrypted_bytes"] > 0]
    exchanges = exchanges[np.isin(exchanges["connection"], decrypted)]
    answered = exchanges[(exchanges["response_first"] != NO_TIME) & (exchanges["request_last"] != NO_TIME)]
    if len(estimates):
        estimates = estimates[np.isin(estimates["connection"], decrypted)]
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
    path, *keys = sys.argv[1:]
    found = errors_of(path, keys)
    of = f"{found.answered:,} answered exchanges, {found.estimates:,} estimates, {found.unmatched:,} of no exchange"
    levels = ", ".join(f"{name} {found.quantile(q):.3f} ms" for name, q in _LEVELS)
    print(f"{path}: {of}; error {levels}")


if __name__ == "__main__":
    main()
