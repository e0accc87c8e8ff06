"""A report with names that would do harm where a renderer forgot to escape them."""

from __future__ import annotations

from kafkatap.reports.build import build_report
from kafkatap.reports.model import Column, Report, ReportTable
from kafkatap.reports.section_parts.selected import Selected

from . import rows as made
from .rows import MS

HOSTILE = (
    '</script><img src=x onerror="window.hacked=1">', "{{7*7}}{% raw %}", "a\x00\x1b[31m\r\nb", "\u202eevil\u2066",
    "<svg onload=alert(1)>&amp;", "'\"><script>window.hacked=2</script>", "]]><!--", "$x^2$ \\frac{1}{2}", "漢字 🙂",
    "x" * 5000, " ", "javascript:alert(1)", "--help", "`id` $(id) ; id",
)  # fmt: skip


def hostile_report() -> Report:
    """A report with hostile names everywhere: clients, topics, groups, captures, the selection and warnings."""
    names = [name.encode() for name in HOSTILE]
    exchanges = [
        made.exchange(n, at=n * 100 * MS, broker=(n + 1) * MS, client_id=n % len(names), throttle_time_ms=n)
        for n in range(4 * len(names))
    ]
    results = [made.result(n, 6, topic=n % len(names)) for n in range(len(exchanges))]
    counts = made.counted(exchanges, results)
    context = made.context(strings=names)
    report = build_report(counts, context, by="client", curves=True, selected=Selected(f"--client {HOSTILE[0]}"))
    text = Column("client_id", "client", "text", HOSTILE[0])
    matrix = ReportTable("topic_clients", HOSTILE[5], (
        Column("topic", "topic", "text", "topic"), Column("role", HOSTILE[0], "text", ""), text,
        *(Column(name, name, "count", "") for name in ("requests", "batch_bytes", "records")),
    ), [(name, "reads", name, 1, 5, 1) for name in HOSTILE], notes=(HOSTILE[5],))  # fmt: skip
    groups = ReportTable("rebalances", "Rebalances", (
        Column("start", "start", "time", ""), Column("group", "group", "text", ""),
        Column("generation", "generation", "count", ""), Column("trigger", "cause", "text", ""),
        Column("who", "client", "text", ""), Column("reason", "reason", "text", ""),
        Column("duration_ns", "duration", "ns", ""), Column("stop_ns", "stop", "ns", ""),
    ), [(made.START + n * MS, name, 1, name, name, name, MS, MS) for n, name in enumerate(HOSTILE)])  # fmt: skip
    return report.replace(tables=(*report.tables, matrix, groups), warnings=HOSTILE)
