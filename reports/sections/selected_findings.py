"""Which findings concern the selection of a report."""

from __future__ import annotations

from collections.abc import Sequence

from ..advice.open_transactions import OPEN_TRANSACTIONS
from ..batch import endpoint
from ..counting import tally
from ..counting.rollup import group_columns
from ..findings import Finding, Party
from ..section_parts.section import SectionInput
from ..section_parts.selected import Clients
from .event_counts import CREATED, DELETED, REBALANCES


def selected_findings(given: SectionInput, found: Sequence[Finding]) -> list[Finding]:
    """The findings that a report shows: those in its time, on parties that its exchanges have. `found`: in their
    order."""
    selected = given.selected
    if selected is None:
        return list(found)
    kept = [
        each for each in found
        if selected.has_time_of(each)
        and ((selected.expression is None and each.begin is not None) or _is_concerned(given, each))
    ]  # fmt: skip
    left_out = {each.key for each in found} - {each.key for each in kept}
    return [each._replace(cause=None) if each.cause in left_out else each for each in kept]


def _is_concerned(given: SectionInput, finding: Finding) -> bool:
    """Whether the selected exchanges have what a finding is on. One on the capture, or on a node whose address is not
    known, is on all of them."""
    party = next(iter(finding.parties), None)
    if party is None or (party.kind == "broker" and ":" not in party.name):
        return True
    if party.kind == "error":
        return finding.numbers.get("code") in given.once(_codes)
    if finding.id == OPEN_TRANSACTIONS.id:  # on its producer, and on each reader
        topics = [each.name for each in finding.parties if each.kind == "topic"]
        concerned = (each for each in finding.parties if each.kind == "client" and each in given.once(_parties))
        return any(concerned) and (given.selected is None or given.selected.may_have({"topic": topics}))
    return party in given.once(_parties)


def _codes(given: SectionInput) -> frozenset[int]:
    """The error codes of the selected exchanges."""
    return frozenset(given.counts.errors.key_rows()[:, list(tally.ERROR_KEY).index("error_code")].tolist())


def _parties(given: SectionInput) -> frozenset[Party]:
    """The clients, hosts and brokers of the selected exchanges, and the groups and topics that they change."""
    context, columns = given.context, group_columns(given.counts.groups, tally.GROUP_KEY)
    clients = Clients.of(given.counts, context)
    found = {Party("client", name) for name in clients.names} | {Party("host", name) for name in clients.addresses}
    ends = set(zip(columns["broker_ip"].tolist(), columns["broker_port"].tolist(), strict=True))
    found |= {Party("broker", endpoint(context.address(ip), port)) for ip, port in ends}
    if REBALANCES.name in given.sections.forms:
        groups = set(given.keys(REBALANCES.name)["group"].tolist())
        found |= {Party("group", context.text(number) or "") for number in groups}
        for event in (CREATED, DELETED):
            rows = event.among(given.events("events"))
            topics = zip(rows["topic"].tolist(), rows["topic_id"].tolist(), strict=True)
            found |= {Party("topic", context.topic(*topic) or "(name not captured)") for topic in set(topics)}
    return frozenset(found)
