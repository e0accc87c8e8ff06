"""The warning about topics of which the captures have only ids."""

from __future__ import annotations

from collections.abc import Iterable

from ..batch import Context, uuid_text
from ..model import ReportTable

#: Columns of tables that have topics.
_COLUMNS = ("topic", "name")
#: The length of an id in Kafka's form, and that of its bytes.
_TEXT, _BYTES = 22, 16


def unnamed_topic_warnings(tables: Iterable[ReportTable], context: Context) -> list[str]:
    """A sentence on the topics that tables show by their id, if there are any."""
    shown = {text for table in tables for name in _COLUMNS for text in _texts(table, name) if len(text) == _TEXT}
    if not shown:
        return []
    count = len(shown & unnamed_ids(context))
    if not count:
        return []
    topics = "1 topic is" if count == 1 else f"{count:,} topics are"
    return [f"{topics} shown by id, as no Metadata response of this capture has the name."]


def unnamed_ids(context: Context) -> set[str | None]:
    """What stands for topics without a name."""
    named = {context.strings[number] for number in context.topic_names}
    return {uuid_text(text) for text in context.strings if text and len(text) == _BYTES and text not in named}


def _texts(table: ReportTable, column: str) -> list[str]:
    names = [each.name for each in table.columns]
    return [str(row[names.index(column)]) for row in table.rows] if column in names else []
