"""Compare broker times from packets with the broker's own clock; print the differences.

    python benchmarks/check_broker_clock.py CAPTURE REQUEST_LOG...

REQUEST_LOG is the DEBUG output of Kafka's logger kafka.request.logger on the captured broker (also .gz and .zst). The
table is that of docs/accuracy.md: `kafkatap report --sections broker-times --request-log` in milliseconds.
"""

from __future__ import annotations

import sys

from kafkatap import analyze


def main(arguments: list[str]) -> int:
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    report = analyze(arguments[0]).report(sections=["broker-times"], request_log=arguments[1:])
    rows = report.table("broker_time_differences").rows
    print(f"{rows[0][1]:,} exchanges joined\n")
    print("| difference from the broker's clock, ms | median | mean | p90 | p99 |\n|---|---|---|---|---|")
    for name, _, *times in rows:
        p50, mean, p90, p99 = (int(ns) / 1e6 for ns in times)  # type: ignore[arg-type]
        print(f"| {name} | {p50:.2f} | {mean:.1f} | {p90:.1f} | {p99:.0f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
