"""What fails, and since when: error codes, and what was not decoded."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from kafkatap.dissector.kafka.error_codes import ErrorCode, error_codes
from kafkatap.kernels.arrays import groups_of

from .. import units
from ..batch import Context, endpoint
from ..counting import tally
from ..counting.counts import ReportCounts
from ..counting.rollup import api_label, group_columns, value_columns
from ..finding_words import NAMED, api_value, counted, listed, sentence
from ..findings import ERROR, NOTE, NOTICED_NS, Finding, Party
from ..model import ReportTable, Row, Value, as_number
from ..parties import client_parties, client_text
from ..section_parts.notable import SLOW_NS
from .error_meanings import MEANINGS
from .error_words import NO_WORDS, ErrorWords, denied, fenced_words, quoted, unit_of_timestamps
from .slow_times import NOTICED_SHARE
from .stuck_coordinators import NOT_COORDINATOR
from .time_shares import percent
from .unnamed_topics import unnamed_ids

#: Error codes that are part of a usual start, or of a question to which the client has another one: Java's admin client
#: asks for a group of the new protocol (KIP-848) first, and then DescribeGroups. No line names them.
_USUAL_ERRORS = frozenset((
    ("MEMBER_ID_REQUIRED", "JoinGroup"), ("UNSUPPORTED_VERSION", "ApiVersions"),
    ("UNSUPPORTED_VERSION", "ConsumerGroupDescribe"), ("GROUP_ID_NOT_FOUND", "ConsumerGroupDescribe"),
))  # fmt: skip
#: A share of failed requests below this is no measure of what they cost.
_NAMED_SHARE = 0.01
#: Levels of a code that names a topic.
_TOPICS = ("topic", "partition")
#: APIs whose own name is a group's or a transaction's.
_OF_GROUPS = frozenset((
    "OffsetCommit", "OffsetFetch", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "ConsumerGroupHeartbeat",
    "ShareGroupHeartbeat", "StreamsGroupHeartbeat", "DescribeGroups", "DeleteGroups", "ConsumerGroupDescribe",
    "ShareGroupDescribe", "StreamsGroupDescribe", "OffsetDelete",
))  # fmt: skip
_OF_TRANSACTIONS = frozenset((
    "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit", "DescribeTransactions",
))  # fmt: skip
#: What a controller with ZooKeeper tells brokers: one that stops refuses it.
_OF_CONTROLLERS = frozenset(("LeaderAndIsr", "StopReplica", "UpdateMetadata"))
#: Errors that last this long are said to.
_LASTING_NS = units.SECOND
#: Clients in one line by name; of more, the one with most.
_NAMED_CLIENTS = 2
#: What never succeeds is no retry: so many requests of each client, this share of all, and none went well after the
#: last. A start, or a broker that is away for seconds, has fewer, or ends well. If errors last, other requests may have
#: gone well before.
_NEVER, _NEVER_SHARE, _AFTER_LAST_NS = 10, 0.75, units.SECOND
_NO_LONGER_SHARE, _NO_LONGER_NS = 0.6, 10 * units.SECOND
#: A topic that is not there is one line: others may come, or have gone, at other times.
_OF_UNKNOWN_TOPICS = ("UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID")
#: Members join again, which is usual work, though clients may not retry the same request.
_JOIN_AGAIN = "REBALANCE_IN_PROGRESS"
#: The replication factor of internal topics, unless it is set.
_INTERNAL_REPLICAS = 3
_NO_COORDINATOR, _TIMESTAMP = 15, "INVALID_TIMESTAMP"
#: A member that closes commits once more, after it left its group.
_AT_CLOSE, _CLOSES_NS = "UNKNOWN_MEMBER_ID", units.SECOND
#: The APIs of a login: what they refuse is a failed login.
_LOGINS = ("SaslHandshake", "SaslAuthenticate")


def error_findings(
    table: ReportTable, counts: ReportCounts, context: Context, words: ErrorWords = NO_WORDS
) -> list[Finding]:
    """One finding for each error code, the most frequent first. Failed logins are a finding of their own."""
    by_code: dict[tuple[Value, Value, bool], list[Row]] = defaultdict(list)
    codes_of: Counter[Value] = Counter()
    for row in table.named_rows():
        if not is_usual(row["error"], row["api"]):
            by_code[row["error"], row["code"], row["api"] in _LOGINS].append(row)
            codes_of[row["api"]] += int(as_number(row["count"]))
    if not by_code:
        return []
    tried = exchanges_by_client(counts, context)
    made = []
    for key, rows in by_code.items():
        by_topic = _by_topic(rows, context) if key[0] in _OF_UNKNOWN_TOPICS else {}
        if not by_topic or len(by_topic) > NAMED:
            by_topic = {"": rows}
        for topic, mine in by_topic.items():
            one = _errors(*key, mine, tried, codes_of, counts, context, words)
            if len(by_topic) > 1 and topic is not None:  # the topic tells them apart
                of_topic = Party("topic", topic)
                one = one._replace(parties=(of_topic, *(party for party in one.parties if party != of_topic)))
            made.append(one if topic is not None else one._replace(numbers={**one.numbers, "is_by_id": True}))
    return sorted(made, key=lambda f: (-as_number(f.numbers["codes"]), f.text))


def _by_topic(rows: list[Row], context: Context) -> dict[str | None, list[Row]]:
    """The rows by topic; those of topics of which only the id is known: None. Nothing if some name no topic."""
    if not all(map(_has_topic, rows)):
        return {}
    ids, found = unnamed_ids(context), defaultdict[str | None, list[Row]](list)
    for row in rows:
        name = str(row["name"])
        found[None if name in ids else name].append(row)
    return found


def _brokers_of(code: int, counts: ReportCounts, context: Context) -> Counter[str]:
    """The brokers that sent an error code, and how often."""
    columns = group_columns(counts.errors, tally.ERROR_KEY)
    mine = columns["error_code"] == code
    found: Counter[str] = Counter()
    for ip, port, count in zip(
        columns["broker_ip"][mine].tolist(), columns["broker_port"][mine].tolist(),
        counts.errors.value_rows()[mine, 0].tolist(), strict=True,
    ):  # fmt: skip
        found[endpoint(context.address(ip), port)] += count
    return found


class Tried(NamedTuple):
    """Requests of a client and API: answered ones, failed ones of these with their time, and those without a response,
    of which the client gave up some. `last`: when the last one was sent, ns since the epoch."""

    answered: int = 0
    failed: int = 0
    failed_ns: int = 0
    unanswered: int = 0
    given_up: int = 0
    last: int = 0

    def plus(self, other: Sequence[int]) -> Tried:
        return Tried(*(a + b for a, b in zip(self, other, strict=True)))._replace(last=max(self.last, other[-1]))


_TRIED = ("answered", "failed_exchanges", "failed_ns", "unanswered", "client_closed", "last")


def exchanges_by_client(counts: ReportCounts, context: Context) -> dict[tuple[str | None, str], Tried]:
    """By client_id and API."""
    columns = group_columns(counts.groups, tally.GROUP_KEY)
    values = value_columns(counts.groups, tally.GROUP_VALUES)
    numbers = np.stack([values[name] for name in _TRIED], axis=1)
    found: dict[tuple[str | None, str], Tried] = {}
    for (client, key), rows in groups_of(columns["client_id"], columns["api_key"]):
        who = (context.text(client), api_label(key))
        sums = (*numbers[rows, :-1].sum(axis=0).tolist(), int(numbers[rows, -1].max()))
        found[who] = found[who].plus(sums) if who in found else Tried(*sums)
    return found


def is_usual(error: Value, api: Value) -> bool:
    """Whether an error code is part of a usual start."""
    return (error, api) in _USUAL_ERRORS


def _errors(
    error: Value,
    code: Value,
    is_login: bool,
    rows: list[Row],
    tried: Mapping[tuple[str | None, str], Tried],
    codes_of: Counter[Value],
    counts: ReportCounts,
    context: Context,
    words: ErrorWords,
) -> Finding:
    """`codes_of`: all error codes, by API."""
    clients, apis = (_counts_by(rows, column) for column in ("client_id", "api"))
    count = sum(clients.values())
    pairs = list({(row["client_id"], row["api"]) for row in rows})
    sums = [tried.get((_name(client), str(api)), Tried()) for client, api in pairs]
    answered, failed = sum(each.answered for each in sums), sum(each.failed for each in sums)
    time: Counter[Value] = Counter()
    for (_, api), each in zip(pairs, sums, strict=True):
        time[api] += each.failed_ns
    lost = sum(time[api] * n // max(codes_of[api], 1) for api, n in apis.items())
    share = failed / answered if answered else 0.0
    first, last = min(int(as_number(row["first"])) for row in rows), max(int(as_number(row["last"])) for row in rows)
    by_api = listed([f"{api} {n:,}" if len(apis) > 1 else str(api) for api, n in apis.most_common()])
    where = "" if is_login else _names(rows)
    meaning, number = MEANINGS.get(str(error)), int(as_number(code))
    known, said = error_codes().get(number), words.said.get(number)
    is_of_broker = meaning is not None and meaning.is_of_broker
    brokers = _brokers_of(number, counts, context) if is_of_broker else Counter[str]()
    of = _share_words(share, len(clients), apis) if answered > 1 and share >= _NAMED_SHARE else None
    if of and any(codes_of[api] > n for api, n in apis.items()):
        of += ", with this or other errors"
    is_close = error == _AT_CLOSE and _is_at_close(clients, last, tried, counts, context)
    # Clients retry by themselves what a retriable code refuses, unless it never succeeds.
    is_retry = known is not None and (known.is_retriable or error == _JOIN_AGAIN)
    own = min(share, count / max(answered, 1))  # others may have failed with other codes
    ends = last + _AFTER_LAST_NS >= max(each.last for each in sums)
    lasts = last - first >= _NO_LONGER_NS
    is_never = (
        ends
        and not apis.keys() <= _OF_CONTROLLERS
        and count >= _NEVER * len(clients)
        and (own >= _NEVER_SHARE or (lasts and (own >= _NO_LONGER_SHARE or _are_stuck(rows, tried))))
    )
    is_harmless = known is not None and known.is_harmless
    is_minor = meaning is None and (is_harmless or (is_retry and not is_never))
    is_note = is_close or (is_minor and not _is_noticed(lost, count, last - first))
    advice = _NO_ADVICE if is_note or known is None else _advice(known, said, brokers, words, is_never)
    if meaning is not None and meaning.label == "denied":
        users = {user for client in clients for user in words.users.get(_name(client), ())}
        advice = advice._replace(says=denied(map(str, apis), sorted(users), _hosts_of(clients, counts, context)))
    by_whom, is_all = fenced_words(words.fenced.get(number, {}), map(_name, clients))
    if by_whom is not None:
        advice = advice._replace(says=by_whom if is_all else sentence([advice.says, by_whom]))
    text = sentence([
        f"{error} {counted(count, 'time')} in {by_api}{where}, {_whom(clients)}",
        lasting(first, last, context) if count > 1 else None,
        None if meaning is not None else of,
        advice.says,
        None if is_note or is_login or is_retry else quoted(said),
        "left its group and closed then" if is_close else None,
    ])  # fmt: skip
    value = _filter_word(error, code)
    only = f" and api == {api_value(str(next(iter(apis))))}" if len(apis) == 1 else ""
    packet = min(int(as_number(row["packet"])) for row in rows)
    label = "failing" if meaning is None else meaning.label
    label = "SASL failed" if is_login else "at close" if is_close else "retried" if is_note else label
    return Finding(
        "sasl_failed" if is_login else "errors", NOTE if is_note else ERROR, label, text, lost, first, last,
        {
            "error": str(error), "code": number, "codes": count, "clients": len(clients),
            "answered": answered, "failed_exchanges": failed, "failed_share": share,
            "is_at_close": is_close, **{f"{api}_codes": n for api, n in apis.most_common()},
        },
        (packet,) if packet > 0 else (),
        (*(p for c, _ in clients.most_common() for p in client_parties(c)),
         *(Party("topic", name) for name in dict.fromkeys(str(r["name"]) for r in rows if _has_topic(r))),
         *(Party("broker", name) for name in sorted(brokers))),
        setting=advice.setting, remedy=advice.remedy, options=(("filter", f"error == {value}{only}"),),
        command="show",
    )  # fmt: skip


def _are_stuck(rows: list[Row], tried: Mapping[tuple[str | None, str], Tried]) -> bool:
    """Whether each of the clients has an API that never succeeds, whatever went well by others before."""
    codes: Counter[tuple[str | None, str]] = Counter()
    for row in rows:
        codes[_name(row["client_id"]), str(row["api"])] += int(as_number(row["count"]))
    stuck = set()
    for (client, api), count in codes.items():
        each = tried.get((client, api), Tried())
        if count >= _NEVER and min(each.failed, count) >= _NEVER_SHARE * each.answered > 0:
            stuck.add(client)
    return stuck == {client for client, _ in codes}


def _is_noticed(lost: int, codes: int, span: int) -> bool:
    """Whether a person notices what clients retried: not if each try is quick, and they are a small part of the time,
    however long that goes on. Each transaction may begin so (CONCURRENT_TRANSACTIONS)."""
    return lost >= NOTICED_NS and (lost >= SLOW_NS * codes or lost >= NOTICED_SHARE * span)


class _Advice(NamedTuple):
    """What a code says in a line, what to change, and what to do."""

    says: str | None = None
    setting: str = ""
    remedy: str = ""


_NO_ADVICE = _Advice()


def _advice(known: ErrorCode, said: str | None, brokers: Counter[str], words: ErrorWords, is_never: bool) -> _Advice:
    """`said`: what brokers say of it. What to do if it lasts is left out where that is not known."""
    unit = unit_of_timestamps(said) if known.name == _TIMESTAMP and said is not None else None
    if unit is not None:
        what = f"timestamps of records are in {unit}, and have to be in milliseconds"
        return _Advice(what, remedy="Send timestamps in milliseconds.")
    text = known.text.format(broker=_of_brokers(brokers) if brokers else "the broker")
    if known.code == _NO_COORDINATOR and 0 < words.nodes < _INTERNAL_REPLICAS:
        text += f"; Metadata names {counted(words.nodes, 'broker')}, and its topic needs {_INTERNAL_REPLICAS} unless it"
        text += " is set otherwise"
    if known.code == NOT_COORDINATOR and words.coordinator is not None:
        text = words.coordinator
    is_known = is_never or not known.remedy.startswith("If ")
    return _Advice(text, known.setting, known.remedy) if is_known else _Advice(text)


def _name(client: Value) -> str | None:
    return None if client is None else str(client)


def _hosts_of(clients: Counter[Value], counts: ReportCounts, context: Context) -> list[str]:
    """The addresses of clients."""
    columns, names = group_columns(counts.groups, tally.GROUP_KEY), {_name(client) for client in clients}
    pairs = set(zip(columns["client_id"].tolist(), columns["client_ip"].tolist(), strict=True))
    return sorted({context.address(ip) or "?" for client, ip in pairs if context.text(client) in names})


def _is_at_close(
    clients: Counter[Value],
    error_at: int,
    tried: Mapping[tuple[str | None, str], Tried],
    counts: ReportCounts,
    context: Context,
) -> bool:
    """Whether one client got one code, left its group, and sent nothing more: it closed."""
    name = _name(next(iter(clients)))
    if clients.total() > 1 or not tried.get((name, "LeaveGroup"), Tried()).answered:
        return False
    columns, values = group_columns(counts.groups, tally.GROUP_KEY), value_columns(counts.groups, tally.GROUP_VALUES)
    mine = [n for n, text in enumerate(columns["client_id"].tolist()) if context.text(text) == name]
    return int(values["last"][mine].max()) <= error_at + _CLOSES_NS


def _of_brokers(brokers: Counter[str]) -> str:
    """`broker 10.0.0.1:9092`, `brokers 10.0.0.1:9092, 10.0.0.2:9092`."""
    names = [name for name, _ in sorted(brokers.items(), key=lambda item: (-item[1], item[0]))]
    return f"broker{'s' if len(names) > 1 else ''} {listed(names)}"


def _share_words(share: float, clients: int, apis: Counter[Value]) -> str:
    which = f"{next(iter(apis))} requests" if len(apis) == 1 else "requests of these APIs"
    return f"{percent(share)} of {'its' if clients == 1 else 'their'} {which} failed"


def _whom(clients: Counter[Value]) -> str:
    """`all to client "a"`, `to client "a" 6, client "b" 5`, `to 26 clients, 40 % to client "a"`."""
    if len(clients) == 1:
        return f"all to {client_text(next(iter(clients)))}"
    if len(clients) <= _NAMED_CLIENTS:
        return "to " + ", ".join(f"{client_text(client)} {n:,}" for client, n in clients.most_common())
    client, hits = clients.most_common()[0]
    return f"to {len(clients):,} clients, {percent(hits / sum(clients.values()))} to {client_text(client)}"


def _names(rows: list[Row]) -> str:
    """` (group billing)`: what the codes refer to, those with most codes first."""
    found: dict[str, Counter[Value]] = defaultdict(Counter)
    for row in rows:
        if row["name"] is not None:
            found[_noun(row)][str(row["name"])] += int(as_number(row["count"]))
    parts = []
    for noun, names in sorted(found.items(), key=lambda item: -sum(item[1].values())):
        order = sorted(names, key=lambda name: (-names[name], str(name)))
        parts.append(f"{noun}{'s' if noun and len(order) > 1 else ''} {listed([str(n) for n in order])}".strip())
    return f" ({'; '.join(parts)})" if parts else ""


def _noun(row: Row) -> str:
    """What the name in a row is: `topic`, `group`, `transactional id`, or nothing."""
    if row["kind"] in _TOPICS:
        return "topic"
    if row["kind"] == "group" or row["api"] in _OF_GROUPS:
        return "group"
    return "transactional id" if row["api"] in _OF_TRANSACTIONS else ""


def lasting(first: int, last: int, context: Context) -> str | None:
    """How long errors came, and whether they still came at the end of the capture."""
    if last - first < _LASTING_NS:
        return None
    is_last = context.last is not None and context.last - last < max(_LASTING_NS, (last - first) // 20)
    return f"for {units.duration(last - first)}" + (", until the end" if is_last else "")


def _filter_word(error: Value, code: Value) -> str:
    """What filters call an error code: its name, or its number if it has none."""
    return str(code if "(no name)" in str(error) else error)


def retried_together(found: Sequence[Finding], context: Context) -> Finding:
    """Several error codes that clients retried and that nobody noticed, as one line."""
    codes: Counter[str] = Counter()
    for finding in found:
        codes[str(finding.numbers["error"])] += int(as_number(finding.numbers["codes"]))
    words = {str(f.numbers["error"]): _filter_word(f.numbers["error"], f.numbers["code"]) for f in found}
    parties = tuple(dict.fromkeys(party for finding in found for party in finding.parties))
    clients = sum(party.kind == "client" for party in parties)
    names = [name for name, _ in sorted(codes.items(), key=lambda item: (-item[1], item[0]))]
    begin, end = min(finding.begin or 0 for finding in found), max(finding.end or 0 for finding in found)
    lost = sum(finding.time_lost_ns for finding in found)
    text = sentence([
        f"{counted(sum(codes.values()), 'error')} that clients may retry, to {counted(clients, 'client')}: "
        + listed([f"{name} {codes[name]:,}" for name in names]),
        lasting(begin, end, context),
    ])  # fmt: skip
    return Finding(
        "retried", NOTE, "retried", text, lost, begin, end,
        {"codes": sum(codes.values()), "clients": clients, **{f"{name}_codes": codes[name] for name in names}},
        tuple(dict.fromkeys(packet for finding in found for packet in finding.packets)), parties,
        options=(("filter", f"error in ({', '.join(words[name] for name in names)})"),), command="show",
    )  # fmt: skip


def _has_topic(row: Row) -> bool:
    return row["kind"] in _TOPICS and row["name"] is not None


def _counts_by(rows: list[Row], column: str) -> Counter[Value]:
    """The error codes by a column, the most first."""
    found: Counter[Value] = Counter()
    for row in rows:
        found[row[column]] += int(as_number(row["count"]))
    return Counter(dict(sorted(found.items(), key=lambda item: (-item[1], str(item[0])))))


def not_decoded_finding(table: ReportTable) -> Finding | None:
    rows = table.named_rows()
    if not rows:
        return None
    names = listed([f"{row['api']} v{row['api_version']}" for row in rows])
    requests = sum(int(as_number(row["requests"])) for row in rows)
    text = f"{counted(requests, 'request')} of versions or APIs without definitions: {names}"
    return Finding("not_decoded", NOTE, "not decoded", text, numbers={"requests": requests},
                   options=(("definitions", "PATH"),))  # fmt: skip
