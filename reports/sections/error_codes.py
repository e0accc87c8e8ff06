"""Error codes from every level of every response, by code and API, and by topic or group and client."""

from __future__ import annotations

from collections.abc import Iterable

from kafkatap.dissector.dtypes import KIND_GROUP, KIND_RESOURCE, RESULT_KINDS
from kafkatap.dissector.kafka.error_codes import error_codes, error_name, is_retriable

from ..batch import Context
from ..counting.counts import ReportCounts
from ..counting.rollup import api_label
from ..model import Column, ReportTable, Row, Value, as_number, in_columns, largest_first

_ERROR = Column("error", "error", "text", "Kafka's name of the error code")
COLUMNS = (
    _ERROR,
    Column("code", "code", "count", "number of the error code", 3),
    Column("api", "API", "text", "API of the request"),
    Column("kind", "kind", "text", "level of the code: response, topic, partition, group, resource", 3),
    Column("name", "name", "text", "topic, group, or other name that the code refers to"),
    Column("client_id", "client", "text", "client_id of the request"),
    Column("retriable", "retry", "flag", "true: a client may retry the request", 2),
    Column("count", "codes", "count", "number of these error codes"),
    Column("first", "first", "time", "arrival of the first response with it", 2),
    Column("last", "last", "time", "arrival of the last response with it"),
    Column("packet", "packet", "packet", "packet: of the last byte of the first response with it", 1),
)
#: The columns that the rows of TOTAL_COLUMNS are added up by.
_TOTAL_KEY = ("error", "code", "api", "retriable")
TOTAL_COLUMNS = (
    _ERROR,
    Column("code", "code", "count", "number of the error code", 2),
    Column("api", "API", "text", "API of the request"),
    Column("retriable", "retry", "flag", "true: a client may retry the request", 1),
    Column("count", "codes", "count", "number of these error codes"),
    Column("clients", "clients", "count", "client_ids that received it", 1),
    Column("names", "topics,\ngroups", "count", "distinct topics, groups or other names that it refers to", 2),
    Column("first", "first", "time", "arrival of the first response with it"),
    Column("last", "last", "time", "arrival of the last response with it", 1),
    Column("packet", "packet", "packet", "packet: of the last byte of the first response with it"),
)
MEANING_COLUMNS = (
    _ERROR._replace(of="name"),
    Column("code", "code", "count", "number of the error code"),
    Column("old_names", "old names", "texts", "its names in earlier releases and documents", 9),
    Column("since", "since", "text", "first release with it", 9),
    Column("retriable", "retry", "flag", "true: a client may retry the request", of="is_retriable"),
    Column("retriable_changed", "retry\nsince", "text", "release in which `retriable` became what it is", 9,
           of=lambda e: e.retriable_changed or None),
    Column("meaning", "meaning", "text", "what the code means"),
    Column("setting", "setting", "text", "the setting to change", 9, of=lambda e: e.setting or None),
    Column("remedy", "remedy", "text", "what to do", 9, of=lambda e: e.remedy or None),
)  # fmt: skip


def error_meanings(detail: ReportTable) -> ReportTable:
    """What the error codes of `errors` mean."""
    return meanings({int(as_number(row["code"])) for row in detail.named_rows()})


def meanings(codes: Iterable[int]) -> ReportTable:
    """What these error codes mean, in ascending order. Codes outside Kafka's table are left out."""
    known = error_codes()
    rows = in_columns(MEANING_COLUMNS, (known[code] for code in sorted(set(codes) & known.keys())))
    return ReportTable("error_meanings", "Meaning of error codes", MEANING_COLUMNS, rows, whole=True, empty="none")


def error_totals(detail: ReportTable) -> ReportTable:
    """The rows of `errors`, added up by error code and API, in descending order of count."""
    groups: dict[tuple[Value, ...], list[Row]] = {}
    for row in detail.named_rows():
        groups.setdefault(tuple(row[n] for n in _TOTAL_KEY), []).append(row)

    def numbers(rows: list[Row], name: str) -> list[int]:
        return [int(as_number(row[name])) for row in rows]

    found = (
        {
            **dict(zip(_TOTAL_KEY, key, strict=True)), "count": sum(numbers(members, "count")),
            "clients": len({row["client_id"] for row in members}),
            "names": len({(row["kind"], row["name"]) for row in members if row["name"] is not None}),
            "first": min(numbers(members, "first")), "last": max(numbers(members, "last")),
            "packet": min(numbers(members, "packet")),
        }
        for key, members in groups.items()
    )  # fmt: skip
    rows = largest_first(TOTAL_COLUMNS, in_columns(TOTAL_COLUMNS, found), "count")
    notes = ("Counts every non-zero error code at any level of a response.",)
    return ReportTable("error_totals", "Error codes", TOTAL_COLUMNS, rows, notes, empty="none")


def errors(counts: ReportCounts, context: Context) -> ReportTable:
    """Rows in descending order of count."""
    merged: dict[tuple[int, int, str | None, str | None, str | None], list[int]] = {}
    found = counts.errors
    for key, value in zip(found.key_rows().tolist(), found.value_rows().tolist(), strict=True):
        code, api_key, kind, topic, topic_id, name, client, _, _ = key
        if kind in (KIND_GROUP, KIND_RESOURCE):
            where = context.text(name) if name >= 0 else context.topic(topic, topic_id)
        else:
            where = context.topic(topic, topic_id) if topic >= 0 or topic_id >= 0 else context.text(name)
        label = (code, api_key, RESULT_KINDS[kind] if kind < len(RESULT_KINDS) else None, where, context.text(client))
        seen = merged.setdefault(label, [0, 2**63 - 1, -(2**63), 2**63 - 1])
        seen[0] += value[0]
        seen[1], seen[2], seen[3] = min(seen[1], value[1]), max(seen[2], value[2]), min(seen[3], value[3])
    ordered = sorted(merged.items(), key=lambda kv: (-kv[1][0], kv[1][1], str(kv[0])))
    rows = in_columns(COLUMNS, (
        {
            "error": error_label(code), "code": code, "api": api_label(api_key), "kind": kind, "name": where,
            "client_id": client, "retriable": is_retriable(code), "count": count, "first": first, "last": last,
            "packet": packet,
        }
        for (code, api_key, kind, where, client), (count, first, last, packet) in ordered
    ))  # fmt: skip
    return ReportTable("errors", "Error codes by topic or group and client", COLUMNS, rows, empty="none")


def error_label(code: int) -> str:
    """`NOT_LEADER_OR_FOLLOWER`, `5120 (no name)`."""
    name = error_name(code)
    return f"{code} (no name)" if name == str(code) else name
