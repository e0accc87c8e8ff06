"""Filter expressions: what they say, what is wrong with them, and that batches are judged as single rows would be."""

from __future__ import annotations

import signal
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatap import analyze
from kafkatap.dissector import dtypes as r
from kafkatap.engine.engine import engine_for
from kafkatap.engine.selection import EVERYTHING, Selection
from kafkatap.reports.batch import Batch
from kafkatap.reports.expressions import Condition, ExpressionError, parse_expression
from kafkatap.reports.expressions.meaning import atoms_of
from kafkatap.reports.expressions.names import ALIASES, NAMES, help_text
from kafkatap.reports.expressions.values import LONGEST_PATTERN
from kafkatap.reports.expressions.verdicts import MatchedTexts, matching, plain
from kafkatap.reports.tables import EXCHANGES, RESULTS
from kafkatap.run import Run
from tests.support.sweeps import examples

from .expression_support import ERROR_CODES, MS, holds, plain_rows, values_of
from .rows import BILLING, GROUP, ORDERS, ORDERS_ID, batch, context, exchange, result

#: What is judged by hand: exchange number -> its rows.
FETCH, PRODUCE, LOST, FAILED, ORPHAN = range(5)
HAND_MADE = batch(
    [
        exchange(FETCH, broker=60 * MS, throttle_time_ms=0, max_wait_ms=500, min_bytes=1),
        exchange(PRODUCE, at=10 * MS, api_key=0, api_version=9, acks=-1, throttle_time_ms=20, client_id=-1),
        exchange(LOST, api_key=3, outcome=r.UNANSWERED),
        exchange(FAILED, broker=2 * MS, long_poll=1, response_packet_first=20, response_packet_last=30),
        exchange(ORPHAN, outcome=r.ORPHAN_RESPONSE, api_key=0),
    ],
    [
        result(FETCH, 0),
        result(FETCH, 0, partition=1, topic=-1, topic_id=ORDERS_ID),
        result(PRODUCE, 0, partition=7),
        result(FAILED, 6, partition=3),
        result(FAILED, 3, partition=4),
        result(FAILED, 0, kind=r.KIND_GROUP, topic=-1, partition=r.NO_INT32, name=GROUP),
    ],
)


def judged(text: str, names: Any = None) -> set[int]:
    """The hand-made exchanges for which an expression holds."""
    mask = Condition(parse_expression(text)).select(HAND_MADE, names or context())
    return set(HAND_MADE.exchanges["exchange"][mask].tolist())


ALL = {FETCH, PRODUCE, LOST, FAILED, ORPHAN}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("api == Fetch", {FETCH, FAILED}),
        ("api == fetch", {FETCH, FAILED}),
        ("api == 1", {FETCH, FAILED}),
        ("API_KEY == 0x1", {FETCH, FAILED}),
        ("api in (Produce, Metadata)", {PRODUCE, LOST}),
        ("api not in (Produce, 3)", {FETCH, FAILED, ORPHAN}),
        ("api ~ '^[FM]et'", {FETCH, LOST, FAILED}),
        ("api == null", {ORPHAN}),
        ("api != Fetch", {PRODUCE, LOST, ORPHAN}),
        ("not api == Fetch", {PRODUCE, LOST, ORPHAN}),
        ("! api == Fetch && !(version == 9)", {LOST, ORPHAN}),
        ("error", {FAILED}),
        ("error == NONE", ALL - {FAILED}),
        ("error != NONE", {FAILED}),
        ("error == NOT_LEADER_OR_FOLLOWER", {FAILED}),
        ("error == not_leader_or_follower and error == 3", {FAILED}),
        ("error != 3", ALL - {FAILED}),
        ("error > 5", {FAILED}),
        ("error ~ 'LEADER'", {FAILED}),
        ("error == null", ALL - {FAILED}),
        ("error_code == NONE", {FETCH, PRODUCE, FAILED}),
        ("latency > 50ms", {FETCH}),
        ("latency >= 60_000us", {FETCH}),
        ("latency < 0.06s", {PRODUCE, FAILED}),
        ("latency == 0.001m", {FETCH}),
        ("total_ns == 60000000", {FETCH}),
        ("broker_time <= 2ms", {PRODUCE, FAILED}),
        ("latency != 60ms", ALL - {FETCH}),
        ("throttle", {FETCH, PRODUCE}),
        ("throttle_time_ms > 10", {PRODUCE}),
        ("throttle > 10ms", {PRODUCE}),
        ("throttle == null", {LOST, FAILED, ORPHAN}),
        ("throttle in (null, 20)", ALL - {FETCH}),
        ("size > 999", {FETCH, PRODUCE, FAILED}),
        ("request_bytes < 0.1KiB", {FETCH, PRODUCE, LOST, FAILED, ORPHAN}),
        ("response_bytes == 1kB", {FETCH, PRODUCE, FAILED}),
        ("acks == all", {PRODUCE}),
        ("acks == -1", {PRODUCE}),
        ("acks", {PRODUCE}),
        ("max_wait_ms == 500", {FETCH}),
        ("max_wait_ms == 0.5s", {FETCH}),
        ("outcome == unanswered or outcome == orphan_response", {LOST, ORPHAN}),
        ("outcome ~ 'answered$'", {FETCH, PRODUCE, LOST, FAILED}),
        ("long_poll", {FAILED}),
        ("long_poll == false", ALL - {FAILED}),
        ("client == billing", ALL - {PRODUCE}),
        ("client == '10.0.0.1'", ALL),
        ("client == 10.0.0.1", ALL),
        ("client_id == null", {PRODUCE}),
        ("client_id ~ '^bill'", ALL - {PRODUCE}),
        ("broker == :9092 and broker == 10.0.0.2 and broker == '10.0.0.2:9092'", ALL),
        ("broker ~ ':909[0-1]$'", set()),
        ("topic == orders", {FETCH, PRODUCE, FAILED}),
        ("topic == 'AAECAwQFBgcICQoLDA0ODw'", {FETCH}),
        ("topic_id", {FETCH}),
        ("topic != orders", {LOST, ORPHAN}),
        ("topic !~ '^o'", {LOST, ORPHAN}),
        ("partition == 1", {FETCH}),
        ("partition > 3", {PRODUCE, FAILED}),
        ("partition == 3 and partition == 4", {FAILED}),
        ("kind == group and name == 'group-1'", {FAILED}),
        ("packet == 25", {FAILED}),
        ("packet > 9 and packet < 30", {FAILED}),
        ("packet == 1", {FETCH}),
        ("time > 2026-11-21T04:43:59.005Z", {PRODUCE}),
        ("time <= 1795236239", ALL - {PRODUCE, ORPHAN}),
        ("response_status == ok and request_status == ok", {FETCH, PRODUCE, FAILED}),
        ("api == Fetch or api == Produce and acks == 0", {FETCH, FAILED}),
        ("(api == Fetch or api == Produce) and acks == all", {PRODUCE}),
        ("not api == Fetch or api == Fetch", ALL),
        ("not (api == Fetch or api == Produce)", {LOST, ORPHAN}),
        ("API == Fetch AND NOT long_poll == TRUE", {FETCH}),
        ("correlation_id < 99999999999999999999999", ALL),
        ("correlation_id > -99999999999999999999999", ALL),
        ("version > 10.5", {FETCH, LOST, FAILED}),
        ("topic contains 'rder'", {FETCH, PRODUCE, FAILED}),
        ("topic contains '.'", set()),
        ("not client_id contains illing", {PRODUCE}),
        ("kafka.api_key eq 1 && latency gt 50ms", {FETCH}),
        ("kafka.topic_name matches '^ord'", {FETCH, PRODUCE, FAILED}),
        ("latency ge 60ms || size lt 1", {FETCH}),
        ("api ne Fetch and correlation_id le 9999", ALL - {FETCH, FAILED}),
        ("tcp.port == 9092 and ip.addr == 10.0.0.1", ALL),
        ("address == 10.0.0.2", ALL),
        ("port == 1", set()),
        ("client_end == 10.0.0.1", ALL),
        ("client == 10.0.0.1:9", set()),
        ("client in (10.0.0.1:9, billing)", ALL - {PRODUCE}),
        ("frame.number == 25", {FAILED}),
    ],
)
def test_what_holds(text: str, wanted: set[int]) -> None:
    assert judged(text) == wanted


def test_a_topic_is_known_by_the_name_of_its_id() -> None:
    named = context(topic_names={ORDERS_ID: BILLING})
    assert judged("topic == billing") == set()
    assert judged("topic == billing", named) == {FETCH}


def test_negative_error_codes_are_errors() -> None:
    unknown = batch([exchange(1), exchange(2)], [result(1, -1), result(2, 0)])
    for text in ("error", "error == UNKNOWN_SERVER_ERROR", "error == -1", "error < 0", "error != NONE"):
        assert Condition(parse_expression(text)).select(unknown, context()).tolist() == [True, False], text


def test_a_condition_serves_one_run_after_the_other() -> None:
    """Numbers of texts mean something else in each."""
    condition = Condition(parse_expression("client_id == billing"))
    other = context(strings=[b"somebody else"] * 9)
    for names, wanted in ((context(), 4), (other, 0), (context(), 4)):
        assert condition.select(HAND_MADE, names).sum() == wanted


def test_topics_that_requests_ask_for_count() -> None:

    import numpy as np

    from kafkatap.dissector.results import EXCHANGE_TOPIC

    asked = np.array([(LOST, ORDERS, -1)], EXCHANGE_TOPIC)
    mask = Condition(parse_expression("topic == orders")).select(HAND_MADE._replace(topics=asked), context())
    assert mask.tolist() == [True, True, True, True, False]


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        # `place`: what the carets stand under, where it is found first.
        ("latncy > 5ms", "latncy", "did you mean latency"),
        ("api == Ftch", "Ftch", "did you mean Fetch"),
        ("error == NOT_LEADER_OR_FOLOWER", "NOT_LEADER_OR_FOLOWER", "did you mean NOT_LEADER_OR_FOLLOWER"),
        ("error == not_leader", "not_leader", "did you mean NOT_LEADER_OR_FOLLOWER?"),
        ("outcome == unansered", "unansered", "did you mean unanswered"),
        ("api == 50ms", "50ms", "an API's name or key, not with a duration"),
        ("api == 2KiB", "2KiB", "not with a size"),
        ("latency > 50", "50", "needs a unit, such as 50ms"),
        ("latency > 50parsecs", "parsecs", "not a unit"),
        ("latency > big", "big", "a duration such as 50ms, not with a word"),
        ("size > 5ms", "5ms", "not with a duration"),
        ("partition == 5ms", "ms", "without a unit"),
        ("time > yesterday", "yesterday", "a time such as"),
        ("time > 2026-13-41", "2026-13-41", "a time such as"),
        ("long_poll == 3", "3", "true or false"),
        ("topic < 'a'", "<", "is for numbers, topic is a text"),
        ("latency ~ 'a'", "~", "is for texts, latency is a duration"),
        ("topic ~ 'a('", "(", "missing )"),
        ("topic ~ 'x[z-a]'", "z-a", "bad character range"),
        (r"topic ~ '(a)\1'", r"'(a)\1'", "no backreferences and no lookaround"),
        ("topic ~ 'a(?!b)'", "'a(?!b)'", "no backreferences and no lookaround"),
        ("topic ~ 'a{,3}'", "'a{,3}'", "write {0,3} for {,3}"),
        ("latency > null", "null", "== or != only"),
        ("request.MaxWaitM > 5", "MaxWaitM", "did you mean MaxWaitMs"),
        ("request.Partition.ErrorCod == 5", "Partition.ErrorCod", "no request has a field"),
        ("Ftch.request.MaxWaitMs > 5", "Ftch", "did you mean Fetch"),
        ("request.Topics == 5", "request.Topics", "is a struct"),
        ("request.AuthBytes == 5", "request.AuthBytes", "contains bytes"),
        ("request.MaxWaitMs == orders", "orders", "a duration such as 50ms"),
        ("request == 3", "request", "a field of the request is missing"),
        ("api = Fetch", "=", "written =="),
        ("api == Fetch & error", "&", "written &&"),
        ("api == 'Fetch", "'", "no closing quote"),
        ("client == billing-7", "-7", "stand in quotes"),
        ("client == billing-*", "-", "stand in quotes"),
        ("software_version == 2.3.0", ".0", "stand in quotes"),
        ("api ==", "", "a value"),
        ("api == == Fetch", "== Fetch", "a value"),
        ("api == Fetch or", "", "a name to compare is missing"),
        ("(api == Fetch", "", ") is missing"),
        ("api == Fetch)", ")", "closes nothing"),
        ("api == Fetch error", "error", "and, or, or the end"),
        ("acks in 1", "1", "( and a list"),
        ("acks in (1, 2", "", "a comma or )"),
        ("acks in ()", ")", "a value"),
        ("api not == 3", "==", "in should stand"),
        ("and error", "and", "a name, not or ("),
        ("topic == orders*", "*", 'write ~ and a regular expression, as in topic ~ "^orders"'),
        ("ip.src == 10.0.0.1", "ip.src", "client_ip or broker_ip"),
        ("tcp.stream eq 3", "tcp.stream", "client == ADDRESS:PORT"),
        ("frame.len > 3", "frame.len", "request_bytes"),
        ("latency contains 3", "contains", "contains is for texts"),
        ("broker == 9092", "9092", "a port alone is written :9092"),
        ("api == Fetch and broker in (:9092, 9093)", "9093", "a port alone is written :9093"),
        ("broker != kafka1", "kafka1", "no host names"),
        ("client_ip == 10.0.0.256", "10.0.0.256", "no IP address"),
        ("", "", "no expression"),
        ("  ", "", "no expression"),
        ("§", "§", "means nothing"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, place: str, words: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_expression(text)
    error = caught.value
    assert words in error.message
    message, line, carets = str(error).split("\n")
    assert (message, line[2:]) == (error.message, text)
    at = carets.index("^") - 2
    if place:
        assert text[at:].startswith(place)
        assert error.column == at + 1
    else:
        assert at == len(text) or not text.strip()


def test_a_place_in_a_later_line_and_far_right() -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_expression("api == Fetch and\n  latncy > 5ms")
    assert str(caught.value).split("\n")[1:] == ["    latncy > 5ms", "    ^^^^^^"]
    text = "api == Fetch and " * 30 + "latncy > 5ms and \x1b[31m" + "api == Fetch and " * 30
    with pytest.raises(ExpressionError) as caught:
        parse_expression(text.replace("\x1b", "'\x1b' "))
    _, line, carets = str(caught.value).split("\n")
    assert len(line) < 140
    assert "\x1b" not in line
    assert line[carets.index("^") :].startswith("latncy") or "?" in line


@pytest.mark.parametrize(
    "text",
    [
        "(" * 4_000 + "api" + ")" * 4_000,
        "not " * 2_000 + "api",
        "!" * 9_000 + "api",
        "(not " * 1_000 + "api" + ")" * 1_000,
        "(api or error and " * 500 + "api" + ")" * 500,
        "api and " * 1_200 + "api",
        "api in (" + "1, " * 3_000 + "1)",
        "x" * 20_000,
        "(" * 9_999,
        "topic ~ '" + "(" * 900 + "a" + ")" * 900 + "'",
        "topic ~ '" + "a" * 1_001 + "'",
        "topic ~ 'a{99999999999999999999}'",
    ],
)
def test_long_and_deep_texts_are_judged_or_refused(text: str) -> None:
    with suppress(ExpressionError):
        Condition(parse_expression(text)).select(HAND_MADE, context())


def test_at_most_64_comparisons_on_fields() -> None:
    def text(count: int) -> str:
        return " or ".join(f"request.MaxWaitMs == {i}" for i in range(count))

    Condition(parse_expression(text(64)))
    with pytest.raises(ExpressionError, match="more than 64"):
        Condition(parse_expression(text(65)))
    Condition(parse_expression(text(64) + " or " + text(64)))  # the same ones again


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("api == Fetch", {1}),
        ("api == Fetch and latency > 5ms", {1}),
        ("api in (Fetch, Produce) and not api == Fetch", {0}),
        ("not (api != Fetch)", {1}),
        ("not (api != Fetch or latency > 5ms)", {1}),
        ("api ~ '^Sasl'", {17, 36}),
        ("api < 2", {0, 1}),
        ("acks == all", {0}),
        ("max_wait_ms > 100", {1, 78}),
        ("request.Mechanism == PLAIN", {17}),
        ("api == Fetch or request.Mechanism == PLAIN", {1, 17}),
        ("api == Fetch and api == Produce", set()),
        ("api == 12345", set()),
        ("api == Fetch or latency > 5ms", None),
        ("not request.Mechanism == PLAIN", None),
        ("acks != all", None),
        ("api", None),
        ("topic == orders", None),
    ],
)
def test_apis_for_which_it_may_hold(text: str, keys: set[int] | None) -> None:
    assert Condition(parse_expression(text)).api_keys == (None if keys is None else frozenset(keys))


def test_what_the_engine_is_asked_for() -> None:
    def needs(text: str) -> tuple[bool, bool]:
        condition = Condition(parse_expression(text))
        return condition.needs_results, condition.probes is not None

    assert needs("error != NONE and latency > 5ms") == (False, False)
    assert needs("topic == orders") == needs("error_code == NONE") == (True, False)
    assert needs("group == g") == needs("response.ErrorCode == 3") == (False, True)


def test_every_column_can_be_compared() -> None:
    known = {*NAMES, *ALIASES}
    assert {c.name for c in (*EXCHANGES, *RESULTS)} <= known
    assert all(f"  {name} " in help_text() for name in NAMES)
    for name in known:
        parse_expression(name)


@pytest.fixture(scope="module")
def sample_rows(samples: Path, sample_run: Any) -> list[dict[str, Any]]:
    """The sample's exchanges as plain rows."""
    rows = plain_rows(analyze(samples / "apache-4.3.pcap.zst"))
    batches, engine = sample_run
    keys = {n: key for batch in batches for n, key in batch.exchanges[["exchange", "key"]].tolist()}
    by_key = {row["exchange"]: row for row in rows}
    for number, _, topic_id in (row for made in batches for row in made.topics.tolist()):
        if topic_id >= 0:
            by_key[keys[number]]["asked_ids"].append(urlsafe_b64encode(engine.strings[topic_id]).decode().rstrip("="))
    return rows


@pytest.fixture(scope="module")
def sample_run(samples: Path) -> Any:
    engine = engine_for(EVERYTHING, all_results=True)
    batches = list(Run([str(samples / "apache-4.3.pcap.zst")], engine).batches())
    return batches, engine


def kept(run: Any, text: str) -> set[int]:
    batches, engine = run
    found = Selection.of(filter=text).apply(batches, engine)
    return {int(key) for each in found for key in each.exchanges["key"]}


def test_a_pattern_is_matched_once_for_each_distinct_name(samples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of columns and of decoded fields, in all batches of a run."""
    seen: list[tuple[MatchedTexts, str]] = []
    as_usual = MatchedTexts.on

    def counted(test: MatchedTexts, texts: Sequence[str]) -> Any:
        seen.extend((test, text) for text in texts)
        return as_usual(test, texts)

    monkeypatch.setattr(MatchedTexts, "on", counted)
    selection = Selection.of(filter="client ~ 'e' or topic ~ 'a' or request.GroupId ~ 'g'", clients=["*"])
    engine = engine_for(selection, all_results=True)
    run = Run([str(samples / "apache-2.8.pcap.zst")], engine, block_size=20_000)
    sizes: list[int] = []

    def batches() -> Iterator[Batch]:
        for each in run.batches():
            sizes.append(len(each.exchanges))
            yield each

    assert list(selection.apply(batches(), engine))  # some match
    assert len(sizes) > 5
    assert 3 < len(seen) < sum(sizes) / 4
    assert max(Counter(seen).values()) == 1


def test_a_pattern_has_a_limit() -> None:
    longest = "x" * LONGEST_PATTERN
    Condition(parse_expression(f"client ~ '{longest}'"))
    with pytest.raises(ExpressionError, match="this regular expression is longer than 1,000 characters"):
        parse_expression(f"client ~ '{longest}x'")
    for name in ("clients", "topics"):
        Selection.of(**{name: [longest]}).condition()
        with pytest.raises(ValueError, match=f"--{name[:-1]}: this pattern is longer than 1,000 characters"):
            Selection.of(**{name: ["app", f"{longest}x"]})


@pytest.mark.parametrize("name", ["client", "request.TransactionalId"])
def test_no_pattern_takes_more_than_linear_time(name: str) -> None:
    """A pattern that backtracks would try 2^5000 ways."""

    def stop(*_: object) -> None:
        raise TimeoutError

    text = "x" * 5_000
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(60)
    try:
        atom = next(iter(atoms_of(parse_expression(f"{name} ~ '(x|x)*y'").root)))
        assert isinstance(atom.test, MatchedTexts)
        assert atom.test.on([text, f"{text}y", ""]).tolist() == [False, True, False]
    finally:
        signal.alarm(0)


def test_notations_of_python_in_a_pattern() -> None:
    for pattern, text in (
        (r"a\Z", "a"),
        (r"^\u00e9\.", "é."),
        (r"\\u00e9", r"\u00e9"),
        ("(?P<n>b)$", "ab"),
        ("(?i)É", "é"),
    ):
        atom = next(iter(atoms_of(parse_expression(f"client ~ '{pattern}'").root)))
        assert isinstance(atom.test, MatchedTexts)
        assert atom.test.on([text, "x"]).tolist() == [True, False]


def _comparison(dice: Iterator[int], rows: list[dict[str, Any]]) -> tuple[str, Callable[[Any], bool]]:
    """A random comparison as text and as the naive judge has it; its value is mostly near one of a random row."""

    def choice(items: Sequence[Any]) -> Any:
        return items[next(dice) % len(items)]

    row, name = choice(rows), choice(sorted(_KINDS))
    kind = _KINDS[name]
    more = ["<", "<=", ">", ">="] if kind == "number" else ["~", "!~"]
    op = choice(["==", "==", "!=", "", *more])
    if op == "":
        return name, lambda x: holds(x, name, "", None)
    if kind == "text":
        others = ["127.0.0.1", ":9092", "10.0.0.1:1"]
        if name != "broker" or op in ("~", "!~"):
            others += ["", "o", "console", "orders", "nothing such"]
        value = choice([*others, *values_of(row, name)])
        return f"{name} {op} '{value}'", lambda x: holds(x, name, op, value)
    number = choice(values_of(row, name) or [0]) + choice([0, 0, 1, -1])
    unit = "ns" if name in ("latency", "broker_time", "hol_wait", "throttle_wait", "throttle", "max_wait_ms") else ""
    return f"{name} {op} {number}{unit}", lambda x: holds(x, name, op, number)


def _random(dice: Iterator[int], rows: list[dict[str, Any]], depth: int) -> tuple[str, Callable[[Any], bool]]:
    shape = next(dice) % 5 if depth else 0
    if shape < 2:
        return _comparison(dice, rows)
    first, judge = _random(dice, rows, depth - 1)
    if shape == 2:
        return f"not ({first})", lambda x: not judge(x)
    second, other = _random(dice, rows, depth - 1)
    if shape == 3:
        return f"({first}) and ({second})", lambda x: judge(x) and other(x)
    return f"({first}) or ({second})", lambda x: judge(x) or other(x)


_KINDS = {
    **dict.fromkeys(
        ("api", "version", "error", "latency", "broker_time", "hol_wait", "throttle_wait", "throttle", "size", "packet",
         "connection", "correlation_id", "client_port", "partition", "error_code", "records", "bytes", "offset", "acks",
         "max_wait_ms", "min_bytes", "request_bytes", "request_packet_first"), "number"),
    **dict.fromkeys(("client", "broker", "topic", "client_id", "client_software"), "text"),
}  # fmt: skip


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.integers(0, 1_000_000), min_size=50, max_size=50))
def test_batches_are_judged_as_single_rows_are(sample_rows: Any, sample_run: Any, dice: list[int]) -> None:
    text, judge = _random(cycle(dice), sample_rows, 3)
    assert kept(sample_run, text) == {x["exchange"] for x in sample_rows if judge(x)}, text


def test_errors_are_named_as_the_table_says() -> None:
    for name, code in ERROR_CODES.items():
        assert parse_expression(f"error == {name}").root == parse_expression(f"error == {code}").root


_PIECES = (
    "a",
    "b",
    "-",
    "0",
    r"\.",
    r"\$",
    ".",
    "[a-c]",
    "[0-9_]",
    "^",
    "$",
    "|",
    "*",
    "+",
    "?",
    "é",
    "\n",
    "a+",
    "^a",
)


@given(st.lists(st.sampled_from(_PIECES), max_size=8), st.lists(st.text("ab-0.$cé\n", max_size=6), max_size=5))
def test_patterns_that_python_matches_match_as_re2_does(pieces: list[str], texts: list[str]) -> None:
    pattern = "".join(pieces)
    if plain(pattern) is not None:
        found = pc.match_substring_regex(pa.array(texts, pa.string()), pattern).to_pylist()
        assert matching(pattern, texts).tolist() == found


_WRONG = (b"\xff", b"\xc3", b"\x80", b"\xe2\x82", b"\xf5\x80\x80\x80", b"\xc0\x80")
_BYTES = (*(text.encode() for text in "ab-0.$c\né€😀"), *_WRONG)


@given(
    st.lists(st.sampled_from(_PIECES), max_size=8), st.lists(st.lists(st.sampled_from(_BYTES), max_size=6), max_size=5)
)
def test_patterns_of_bytes_too(pieces: list[str], values: list[list[bytes]]) -> None:
    pattern, joined = "".join(pieces), [b"".join(value) for value in values]
    if plain(pattern) is not None:
        texts = pa.array(joined, pa.large_binary()).view(pa.large_string())
        assert matching(pattern, joined).tolist() == pc.match_substring_regex(texts, pattern).to_pylist()


@pytest.mark.parametrize(("pattern", "is_plain"), [
    ("^orders", True), ("orders|^pay.*$", True), (r"^eu\.[a-c]+-x$", True), ("(a|b)", False), ("a+", False),
    ("^a+b+", False), ("(?i)a", False), (r"\d", False), ("^(a+)+$", False), ("a" * 101, False),
])  # fmt: skip
def test_patterns_that_need_no_pyarrow(pattern: str, is_plain: bool) -> None:
    """Those that take linear time in Python, and mean the same."""
    assert (plain(pattern) is not None) == is_plain
