"""When each reader was told of a partition last: it still fetches it, or it was sent elsewhere."""

from __future__ import annotations

from kafkatap.dissector.dtypes import ANSWERED

from ..groups.group_events import has_end
from ..section_parts.counted import CLIENT, PLACE, counted, largest

#: Of each reader, the last answer to a Fetch that names a partition, or that has it: within a fetch session, requests
#: do not name what stays as it was. `redirected`: the last that sent the reader to another replica.
ANSWERS = counted(
    "advice.answered-fetches", CLIENT | PLACE, lambda x: x.outcome == ANSWERED, of=("fetch partition",), newest="time",
    time=largest("response_last"), redirected=largest(),
)  # fmt: skip
ANSWER_COUNTS = (
    ANSWERS,
    ANSWERS.also(("fetched partition",), has_end, time="response_last"),
    ANSWERS.also(("fetched partition",), lambda x: x.preferred_replica >= 0, redirected="response_last"),
)
