"""A producer aborts each of its transactions: readers of committed records get nothing of it."""

from __future__ import annotations

from collections.abc import Iterator

from .. import units
from ..findings import Finding, Party
from ..section_parts.section import SectionInput
from ..section_parts.transaction_log import Transactional, followed
from .parties import client_option, client_parties, client_words
from .signature import Signature

#: Aborts in a row. An error now and then, such as a rebalance, aborts one or two.
_LEAST = 5


def _findings(given: SectionInput) -> Iterator[Finding]:
    for item in followed(given):
        if len(item.aborts) >= _LEAST:
            yield _finding(given, item)


def _finding(given: SectionInput, item: Transactional) -> Finding:
    context, aborts, all_of_them = given.context, len(item.aborts), item.committed + item.aborted
    (begin, packet), (end, _) = item.aborts[0], item.aborts[-1]
    name = context.text(item.name) or ""
    who = () if item.owner is None else client_parties(context, *item.owner)
    of = "" if item.owner is None else f" of {client_words(context, *item.owner)}"
    which = f"all {aborts:,} transactions" if aborts == all_of_them else f"the last {aborts:,} of {all_of_them:,}"
    text = (
        f'transactional id "{name}"{of}: its producer aborted {which}, for {units.duration(end - begin)}, and '
        "committed none since: readers of committed records get nothing of it"
    )
    option = () if item.owner is None else client_option(context, item.owner.client_id)
    return ABORTED_TRANSACTIONS.rule.found(
        text, Party("producer", name), *who, begin=begin, end=end, packets=[packet], lost=end - begin,
        see=[("sections", "transactions"), *option], aborts=aborts, transactions=all_of_them, committed=item.committed,
    )  # fmt: skip


ABORTED_TRANSACTIONS = Signature(
    "aborted_transactions",
    "a producer aborts all of its transactions",
    "EndTxn requests of a transactional id abort, one after another, and none commits any more.",
    "how the application handles what makes it abort",
    "Look for the exception before abortTransaction() in the log of the application: often one record that it cannot "
    "process, and reads again each time. Skip it, or write it to a dead letter topic.",
    f"the last {_LEAST} that the producer ended were aborted. Those that a coordinator aborted do not count. Time "
    "lost: from the first to the last.",
    _findings,
    on_request=True,
    from_all=True,
    label="aborting",
)  # fmt: skip
