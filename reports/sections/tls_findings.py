"""The first lines of a report on TLS: failed handshakes, certificates that expire, traffic that was not decrypted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kafkatap.kernels.arrays import dict_rows

from .. import kinds, units
from ..batch import Context, endpoint
from ..connection_words import D_FAILED_HANDSHAKE, D_NOT_TLS
from ..counting.connection_counts import PORT_KEY, PORT_VALUES, TLS_KEY, TLS_VALUES, connection_totals
from ..counting.rollup import group_columns, value_columns
from ..encryption import MUCH, NAMED_SHARE, encryption_of, is_mostly_encrypted
from ..finding_words import counted, how_long
from ..findings import ERROR, NOTE, WARNING, Finding, Party, Rule
from ..tls_names import HIDDEN, alert_name
from .tls_remedies import BROKER, renewal, tls_remedy

#: A certificate that expires so soon after the capture is named, ns.
EXPIRES_SOON_NS = 30 * 86_400 * units.SECOND
#: Kinds of failures, and certificates, in one line at most.
_NAMED = 3
_ENDS = ("client", "broker")
#: A port may speak no TLS that closes so many connections without a byte, or more: servers of TLS answer an alert.
_SILENT = 3


#: The command of all of them.
_SHOWN = (("sections", "tls"),)
_UNKNOWN = (
    "Which APIs, errors, quotas and groups it has is not known: only estimated response times, handshakes, and what "
    "TCP shows. Connections that are open: `kafkatap keys --pid PID -o keys.log` on a broker's host takes their keys. "
    "Others: capture anew, or --keylog FILE if a client or broker wrote one"
)


def tls_findings(context: Context) -> list[Finding]:
    """The findings, the gravest first."""
    counted = connection_totals(context).tls
    rows = list(dict_rows(group_columns(counted, TLS_KEY) | value_columns(counted, TLS_VALUES)))
    found = [_failed(rows, context, _silent_ports(context)), _certificates(rows, context), _encrypted(context)]
    return [*_wrong_ports(context), *(finding for finding in found if finding is not None)]


def _wrong_ports(context: Context) -> list[Finding]:
    """Clients that speak TLS to a port without, and the other way round; that ask an HTTP server; and that speak HTTP
    to a broker."""
    rows, speaks = _spoken_at(context)

    def places(name: str, test: Callable[[Counter[str]], object] = lambda _: True) -> _Places:
        mine = [r for r in rows if r[name] and r["broker_ip"] >= 0 and test(speaks[r["broker_ip"], r["broker_port"]])]
        return _Places.of(name, mine, context)

    lines: tuple[tuple[_Places, Callable[[_Places], Finding]], ...] = (
        (places("refused_plain", lambda s: (s["tls"] or s["tls_answers"]) and not s["plain"]),
         lambda refused: _spoken(refused, "without TLS", "TLS", places("tls"))),
        (places("refused_tls", lambda s: s["plain"] and not s["tls"]),
         lambda refused: _spoken(refused, "with TLS", "no TLS", places("plain"))),
        (places("http_answers"), _http_server),
        (places("http_requests", lambda s: s["plain"]), _http_client),
    )  # fmt: skip
    return [finding_of(those) for those, finding_of in lines if those.brokers]


def _spoken_at(context: Context) -> tuple[list[dict[str, int]], dict[tuple[int, int], Counter[str]]]:
    """The rows of ports, and what each port spoke."""
    ports = connection_totals(context).ports
    rows = list(dict_rows(group_columns(ports, PORT_KEY) | value_columns(ports, PORT_VALUES)))
    speaks: dict[tuple[int, int], Counter[str]] = {}
    for row in rows:
        spoken = speaks.setdefault((row["broker_ip"], row["broker_port"]), Counter())
        spoken.update({name: row[name] for name in ("tls", "plain", "tls_answers")})
    return rows, speaks


def _silent_ports(context: Context) -> _Places:
    """Ports that closed connections which began with TLS, without a byte, and answered nobody in any way."""
    rows, speaks = _spoken_at(context)
    mine = [
        row for row in rows
        if row["refused_tls"] and row["broker_ip"] >= 0 and not speaks[row["broker_ip"], row["broker_port"]].total()
    ]  # fmt: skip
    return _Places.of("refused_tls", mine, context)


class _Places(NamedTuple):
    """Connections by broker and by the client's address, and from when to when they began."""

    brokers: Counter[str]
    clients: Counter[str]
    begin: int
    end: int
    context: Context

    @staticmethod
    def of(name: str, rows: Sequence[dict[str, int]], context: Context) -> _Places:
        """`name`: of what is counted."""
        brokers, clients = Counter[str](), Counter[str]()
        for row in rows:
            brokers[endpoint(context.address(row["broker_ip"]), row["broker_port"])] += row[name]
            clients[context.address(row["client_ip"]) or "(unknown)"] += row[name]
        first, last = min((r["first"] for r in rows), default=0), max((r["last"] for r in rows), default=0)
        return _Places(brokers, clients, first, last, context)

    @property
    def whose(self) -> str:
        """`3 connections of 10.0.0.5`."""
        clients = next(iter(self.clients)) if len(self.clients) == 1 else f"{len(self.clients):,} addresses"
        return f"{counted(self.brokers.total(), 'connection')} of {clients}"

    @property
    def broker(self) -> str:
        """`10.0.0.1:9092`."""
        return next(iter(self.brokers)) if len(self.brokers) == 1 else f"{len(self.brokers):,} ports"

    def found(self, rule: Rule, text: str) -> Finding:
        text += _lasting(self.begin, self.end, self.context)
        brokers, clients = (
            [Party(kind, name) for name, _ in names.most_common()]
            for kind, names in (("broker", self.brokers), ("host", self.clients))
        )
        return rule.found(
            text, *brokers, *clients, begin=self.begin, end=self.end, see=[("sections", "connections")],
            connections=self.brokers.total(), clients=len(self.clients),
        )  # fmt: skip


_WRONG_PORT = Rule(
    "wrong_port", "wrong port", ERROR, setting="security.protocol",
    remedy="Set `security.protocol` of the client as the listener has it, or use the port of another listener.",
)  # fmt: skip
_HTTP_SERVER = Rule(
    "wrong_port", "wrong port", ERROR, setting="bootstrap.servers",
    remedy="Name the Kafka port of the brokers in `bootstrap.servers`.",
)  # fmt: skip
_HTTP_CLIENT = Rule(
    "http_client", "probe", NOTE,
    remedy="Find out what asks: a health check, a scraper of metrics or a scan. Brokers close such connections.",
)  # fmt: skip


def _spoken(refused: _Places, own: str, spoken: str, others: _Places) -> Finding:
    """`others`: connections that speak as the ports do."""
    speak = f"speak{'s' if len(refused.brokers) == 1 else ''} {spoken}"
    speak += " with others" if refused.brokers.keys() & others.brokers.keys() else ", as its answer shows"
    them = "it" if refused.brokers.total() == 1 else "them"
    text = f"{refused.whose} began {own}, but {refused.broker} {speak}: the broker closed {them}"
    return refused.found(_WRONG_PORT, text)


def _http_server(asked: _Places) -> Finding:
    one = len(asked.brokers) == 1
    what = "answers with HTTP: that is an HTTP server" if one else "answer with HTTP: those are HTTP servers"
    return asked.found(_HTTP_SERVER, f"{asked.whose} sent Kafka requests to {asked.broker}, which {what}")


def _http_client(asked: _Places) -> Finding:
    return asked.found(_HTTP_CLIENT, f"{asked.whose} sent HTTP to {asked.broker}, where a Kafka broker listens")


def _failed(rows: list[dict[str, int]], context: Context, silent: _Places) -> Finding | None:
    """Failed handshakes: why, and the client that has most of them. `silent`: ports that may speak no TLS."""
    reasons: Counter[str] = Counter()
    alerts: Counter[tuple[int, int]] = Counter()
    clients: Counter[str] = Counter()
    times: list[tuple[int, int]] = []
    for row in rows:
        if row["tls_decryption"] == D_FAILED_HANDSHAKE or (row["tls_decryption"] != D_NOT_TLS and row["tls_alert"] > 0):
            reasons[failure_text(row["tls_alert"], row["tls_alert_by"])] += row["connections"]
            alerts[row["tls_alert"], row["tls_alert_by"]] += row["connections"]
            clients[context.address(row["client_ip"]) or "(unknown)"] += row["connections"]
            times.append((row["first"], row["last"]))
    total = sum(reasons.values())
    if not total:
        return None
    why = ", ".join(
        f"{text} ({n:,})" if len(reasons) > 1 else text
        for text, n in sorted(reasons.items(), key=lambda item: (-item[1], item[0]))[:_NAMED]
    )
    if len(reasons) > _NAMED:
        why += f", and {len(reasons) - _NAMED:,} other reason{'' if len(reasons) == _NAMED + 1 else 's'}"
    client, most = min(clients.items(), key=lambda item: (-item[1], item[0]))
    whose = f"all by {client}" if len(clients) == 1 else f"{most:,} by {client}, others by {len(clients) - 1:,} more"
    begin, end = min(times)[0], max(last for _, last in times)
    text = f"{total:,} TLS handshake{'' if total == 1 else 's'} failed: {why}; {whose}"
    text += _lasting(begin, end, context)
    is_silent = silent.brokers.total() >= max(_SILENT, MUCH * total)
    if is_silent:
        speak = "speaks" if len(silent.brokers) == 1 else "speak"
        text += f"; {silent.broker} closed {silent.brokers.total():,} without a byte: perhaps it {speak} no TLS"
    brokers = [Party("broker", name) for name, _ in silent.brokers.most_common()] if is_silent else []
    setting, remedy = (_WRONG_PORT.setting, _WRONG_PORT.remedy) if is_silent else _remedy(alerts)
    return Finding(
        "tls_failed", ERROR, "TLS failed", text, begin=begin, end=end,
        numbers={"handshakes": total, "clients": len(clients)},
        parties=(*(Party("host", name) for name, _ in clients.most_common()), *brokers), options=_SHOWN,
        setting=setting, remedy=remedy,
    )  # fmt: skip


def _remedy(alerts: Counter[tuple[int, int]]) -> tuple[str, str]:
    """A setting and what to do, of the most frequent alert (its number, and the end that sent it) that has a remedy."""
    for alert in sorted(alerts, key=lambda alert: (-alerts[alert], failure_text(*alert))):
        if found := tls_remedy(*alert):
            return found.setting, found.remedy if len(alerts) == 1 else f"{failure_text(*alert)}: {found.remedy}"
    return "", ""


def _lasting(begin: int, end: int, context: Context) -> str:
    """How long connections began in a way, if that was not at once."""
    return f"; {how_long(begin, end, context)}" if end - begin >= units.SECOND else ""


def failure_text(alert: int, by: int) -> str:
    """`unknown_ca, sent by the client`."""
    name = alert_name(alert) if alert > 0 else None
    if name is None:
        return "closed without an alert that can be read"
    if alert in HIDDEN:
        return name.replace("rejected", f"rejected by the {_ENDS[by]}")
    return f"{name}, sent by the {_ENDS[by]}" if by >= 0 else name


def _certificates(rows: list[dict[str, int]], context: Context) -> Finding | None:
    """Certificates of brokers that had expired, or expire soon: the first of them."""
    at = context.last
    ends = {
        (row["tls_server_certificate_end"], context.text(row["tls_server_certificate"]) or "(no name)"):
            context.address(row["broker_ip"])
        for row in rows if row["tls_server_certificate_end"] != 0
    }  # fmt: skip
    if at is None:
        return None
    due = sorted((end, name, broker or "") for (end, name), broker in ends.items() if end < at + EXPIRES_SOON_NS)
    if not due:
        return None
    end, name, broker = due[0]
    others = f"; {len(due) - 1:,} more" if len(due) > 1 else ""
    text = f"{name} of {broker} {expiry_text(end, at, context.first)}{others}"
    is_within = context.first is not None and context.first <= end < at
    return Finding(
        "certificate", ERROR if end < at else WARNING, "certificate", text, begin=end if is_within else None,
        numbers={"certificates": len(due), "expires": units.iso(end), "subject": name},
        parties=tuple(Party("host", name) for name in dict.fromkeys(broker for _, _, broker in due)), options=_SHOWN,
        remedy=renewal(BROKER).remedy,
    )  # fmt: skip


def expiry_text(end: int, at: int, since: int | None = None) -> str:
    """`expired on 2026-01-02, 5 days before`, `expires on 2026-01-02, in 12 days`. `since`, `at`: the first and
    last time of the capture, ns since the epoch."""
    days = abs(end - at) // (86_400 * units.SECOND)
    many = f"{days:,} day{'' if days == 1 else 's'}"
    date = units.iso(end)[:10]
    if end >= at:
        return f"expires on {date}, in {many}"
    if since is not None and end >= since:
        return f"expired on {date} at {units.clock(end, True, 0)} UTC, while this was captured"
    return f"expired on {date}, {many} before this capture ended"


def _encrypted(context: Context) -> Finding | None:
    """Traffic that could not be decrypted: a note, or if it is most of it, what is not known for that reason."""
    share = context.encrypted_share
    if share < NAMED_SHARE:
        return None
    text, is_much = encryption_of(context).in_words(), is_mostly_encrypted(context)
    if is_much:
        text += f". {_UNKNOWN}"
    return Finding(
        kinds.ENCRYPTED, WARNING if is_much else NOTE, "encrypted", text, numbers={"encrypted_share": share},
        options=_SHOWN,
    )  # fmt: skip
