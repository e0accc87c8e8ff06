"""Members that a group expels, without a broker."""

from __future__ import annotations

from pathlib import Path

from kafkatap.reports.sections.advice import findings
from tests.support.captures import pcap_bytes
from tests.support.group_members import GroupMember
from tests.support.section_runs import section_input
from tests.support.tcp import START_NS, encode, merge

UNKNOWN_MEMBER_ID = 25


def test_a_refused_commit_belongs_to_the_group_of_its_connection(tmp_path: Path) -> None:
    """A program has a member in each of two groups, and one client id."""
    billing = GroupMember("app", "app-1", 1, 5001, 1, "billing")
    shipping = GroupMember("app", "app-2", 1, 5002, 1.5, "shipping")
    billing.join(1, 1)
    shipping.join(1, 1)
    for number in range(3):
        at = START_NS + (10 + 10 * number) * 1_000_000_000
        shipping.talk.time_ns, billing.talk.time_ns = at, at + 1_000_000_000
        shipping.join(2 + number, 1)
        billing.commit(UNKNOWN_MEMBER_ID)
        billing.talk.wait(2_000_000_000)
        billing.id = f"app-1-{number}"
        billing.join(2 + number, 1)
    shipping.talk.time_ns = billing.talk.time_ns + 1_000_000_000
    shipping.join(9, 1)
    path = tmp_path / "groups.pcap"
    path.write_bytes(pcap_bytes(encode(merge(billing.talk.segments, shipping.talk.segments))))
    found = [one for one in findings(section_input(path, "advice")) if one.id == "expelled_members"]
    assert [(one.party("group"), one.numbers["expulsions"]) for one in found] == [("billing", 3)]
