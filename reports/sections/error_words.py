"""What is known of error codes beside their counts: what brokers say of them, and how many brokers there are."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .. import units
from ..counting.count_forms import NUMBER, TEXT
from ..finding_words import and_more, listed
from ..parties import client_text
from ..section_parts.cluster import Cluster
from ..section_parts.counted import CLIENT, RESULTS, Rows, counted, total
from ..section_parts.section import SectionInput
from ..section_parts.transaction_log import READ_BY, followed

#: Words of a broker in a line; the rest is cut.
_WIDTH = 160
#: Different texts that are kept: many name offsets or times.
_MOST = 1_000


def _is_said(x: Rows) -> Any:
    return (x.error_code != 0) & (x.error_message >= 0)


WORDS = counted(
    "events.error_words", {"error_code": NUMBER, "error_message": TEXT}, _is_said, of=RESULTS, rows=_MOST,
    codes=total(1),
)  # fmt: skip


#: Who logged in by SASL.
USERS = counted(
    "events.users", CLIENT | {"principal": TEXT}, lambda x: x.principal >= 0, of=("principal",), rows=_MOST,
    logins=total(1),
)  # fmt: skip


class ErrorWords(NamedTuple):
    """`said`: by error code, what brokers say of it most often. `nodes`: brokers that the cluster lists. `users`: as
    whom clients logged in, by client_id. `coordinator`: who names a coordinator that refuses. `fenced`: by error code
    and the client_id that got it, who began with its transactional id."""

    said: Mapping[int, str] = {}
    nodes: int = 0
    users: Mapping[str | None, Sequence[str]] = {}
    coordinator: str | None = None
    fenced: Mapping[int, Mapping[str | None, str]] = {}


NO_WORDS = ErrorWords()


def error_words(given: SectionInput) -> ErrorWords:
    said: dict[int, Counter[str]] = defaultdict(Counter)
    for row in given.rows(WORDS.name):
        text = given.context.text(row["error_message"])
        if row["error_code"] and text:
            said[row["error_code"]][text] += row["codes"]
    most = {code: min(texts, key=lambda text: (-texts[text], text)) for code, texts in said.items()}
    users: dict[str | None, set[str]] = defaultdict(set)
    for row in given.rows(USERS.name):
        users[given.context.text(row["client_id"])].add(given.context.text(row["principal"]) or "")
    who = {client: sorted(names - {""}) for client, names in users.items()}
    return ErrorWords(most, given.once(Cluster).listed, who, fenced=_fenced(given))


def _fenced(given: SectionInput) -> dict[int, dict[str | None, str]]:
    """Producers that another one fenced whose InitProducerId was captured, if transactions were read."""
    if READ_BY not in {section.name for section in given.sections.sections}:
        return {}
    context, found = given.context, defaultdict[int, dict[str | None, str]](dict)
    for item in followed(given):
        for fence in item.fences:
            if fence.winner is not None and fence.began is not None:
                who = client_text(context.text(fence.winner.client_id), context.address(fence.winner.client_ip) or "?")
                words = (
                    f'{who} began with the same transactional.id "{context.text(item.name)}" '
                    f"{units.duration(fence.at - fence.began)} before (InitProducerId)"
                )
                found[fence.error].setdefault(context.text(fence.victim.client_id), words)
    return found


def fenced_words(fenced: Mapping[str | None, str], clients: Iterable[str | None]) -> tuple[str | None, bool]:
    """Who fenced some clients, None: not known; and whether it is known of all."""
    clients = list(clients)
    known = [fenced[client] for client in clients if client in fenced]
    return (known[0] + and_more(len(known) - 1) if known else None), len(known) == len(clients)


def quoted(words: str | None) -> str | None:
    """`the broker says "No such topic"`, cut. Words that were replaced by filler are none."""
    return None if words is None or not words.strip("x") else f'the broker says "{units.cut(words, _WIDTH)}"'


#: Units of timestamps by their digits, of our time.
_UNITS = {16: "microseconds", 19: "nanoseconds"}


def unit_of_timestamps(words: str) -> str | None:
    """`nanoseconds`, if the timestamp that the broker refuses is one of our time in them."""
    digits = re.search(r"(?i)timestamp (\d+)", words)
    return None if digits is None else _UNITS.get(len(digits[1]))


#: What an API does to the topics, groups and so on that it names, in the words of ACLs.
_OPERATIONS = {
    "Write": ("Produce", "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn"),
    "Read": (
        "Fetch", "OffsetCommit", "TxnOffsetCommit", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup",
        "ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "ShareFetch", "ShareAcknowledge", "StreamsGroupHeartbeat",
    ),
    "Describe": (
        "Metadata", "ListOffsets", "OffsetFetch", "FindCoordinator", "DescribeGroups", "ListGroups", "DescribeAcls",
        "DescribeTopicPartitions", "ConsumerGroupDescribe", "ShareGroupDescribe", "StreamsGroupDescribe",
        "DescribeTransactions", "OffsetForLeaderEpoch", "DescribeCluster", "DescribeLogDirs",
    ),
    "Create": ("CreateTopics",),
    "Delete": ("DeleteTopics", "DeleteGroups", "DeleteRecords", "OffsetDelete"),
    "Alter": ("CreatePartitions", "CreateAcls", "DeleteAcls", "AlterPartitionReassignments", "ElectLeaders"),
    "AlterConfigs": ("AlterConfigs", "IncrementalAlterConfigs"),
    "DescribeConfigs": ("DescribeConfigs",),
}  # fmt: skip
_OPERATION_OF = {api: operation for operation, apis in _OPERATIONS.items() for api in apis}


def denied(apis: Iterable[str], users: Iterable[str], hosts: Iterable[str]) -> str:
    """What no ACL allows, to whom: `no ACL allows Write to user "etl" from 10.0.0.3`. Users are those of SASL."""
    operations = listed(sorted({_OPERATION_OF.get(api, api) for api in apis}))
    whom = listed([f'"{user}"' for user in users])
    return f"no ACL allows {operations} to {f'user {whom}' if whom else 'its principal'} from {listed(list(hosts))}"
