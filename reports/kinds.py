"""Kinds of findings, by their ids: those that the report, the page, `live` and `compare` treat alike.

What follows from what is declared in `sections.folds`. Elsewhere an id stands only where its findings are made.
"""

from __future__ import annotations

from .findings import Finding

#: A host that packets do not reach; a broker that does not answer, and all outages: of a broker, or of the path to it.
CUT_OFF = "hosts_cut_off"
SILENCES = frozenset(("broker_hung", "broker_unreachable"))
STOPPED = "broker_stopped"
OUTAGES = SILENCES | {STOPPED, CUT_OFF}
RETURNED = "broker_returned"
#: A broker that answers nobody again and again, each time for less than a silence.
FROZE = "broker_froze"
LEADERS, REBALANCED, BURST, STORM, QUOTA = (
    "leaders_moved", "group_rebalanced", "error_burst", "connection_storm", "quota_began",
)  # fmt: skip
TOPICS = frozenset(("topic_created", "topic_deleted"))
FENCED = "producer_fenced"
#: A time that was not captured.
HOLE = "capture_hole"
#: Events that take no time. All others without an end last until the capture's end.
MOMENTS = TOPICS | {RETURNED, "coordinator_moved"}
#: Events that are complete only when a capture is.
AT_END = frozenset(("connection_leak", "capture_dropped", HOLE))
#: All kinds of events, but for the one that only `compare` has.
EVENT_KINDS = OUTAGES | MOMENTS | AT_END | {FROZE, LEADERS, REBALANCED, BURST, STORM, QUOTA, "isr_shrank", "isr_grew"}

#: Where the time of slow requests goes, the ones behind a quota, and what lost packets cost.
SLOW = ("slow_broker", "slow_network", "slow_client", "slow_head_of_line", "slow_unknown")
BETWEEN_BROKERS, THROTTLED, LOSSY = "slow_between_brokers", "throttled", "lossy_host"
ERRORS, LOGIN, RETRIED, UNANSWERED = "errors", "sasl_failed", "retried", "unanswered"
#: Lines on error codes that have causes and effects of their own (`kind_of`): a disk that failed follows from nothing.
DISK = "errors of KAFKA_STORAGE_ERROR"
CERTIFICATE, LOST = "certificate", "lost"
#: Connections that are seen under two addresses.
SEEN_TWICE = "seen_twice"
ENCRYPTED = "encrypted"
#: Lines of the report itself that say only what there is: no request, no response, what was not looked for, nothing.
NO_REQUESTS, NONE_ANSWERED, NOT_CHECKED, NOTHING = "no_requests", "none_answered", "not_checked", "none"
#: Notes that stand at the top, not below the tables.
ALONE = frozenset((NO_REQUESTS, NONE_ANSWERED, NOT_CHECKED, NOTHING, SEEN_TWICE))
#: Sections whose findings stand among those of the report itself.
EVENTS, ADVICE = "events", "advice"
#: The findings of the report itself, and the place of those of sections, in the order of findings that cost the same
#: time, or cost none that is known. Others come first.
ORDER = (
    SEEN_TWICE, *SLOW, ADVICE, THROTTLED, LOGIN, "wrong_port", "tls_failed", ERRORS, RETRIED, UNANSWERED, CERTIFICATE,
    "http_client", "not_decoded", ENCRYPTED, BETWEEN_BROKERS, "mixed_times", EVENTS, LOST,
)  # fmt: skip
#: All findings of the report itself.
FINDINGS = (*(name for name in ORDER if name not in (ADVICE, EVENTS)), NONE_ANSWERED, NOT_CHECKED)
#: Of the report itself, on what is broken, and not slow: they come before what costs time.
BROKEN = frozenset((LOSSY, "wrong_port", "tls_failed"))
#: The tables that show more of them, on the page. Those of advice have a setting; the others are events.
TABLES = {
    THROTTLED: "throttle", LOGIN: "auth", "wrong_port": "connections", "http_client": "connections",
    "tls_failed": "tls_failures", ERRORS: "error_totals", RETRIED: "error_totals", UNANSWERED: "timeouts",
    CERTIFICATE: "tls_certificates", "not_decoded": "not_decoded", ENCRYPTED: "tls", LOST: "ledger",
    LOSSY: "connections", SEEN_TWICE: "connections", NOTHING: "latency",
    NO_REQUESTS: "ledger", NOT_CHECKED: "ledger",
}  # fmt: skip


def kind_of(finding: Finding) -> str:
    """The kind of a finding in the table of causes: its id, but for lines on some error codes."""
    return DISK if finding.id == ERRORS and finding.numbers.get("error") == "KAFKA_STORAGE_ERROR" else finding.id
