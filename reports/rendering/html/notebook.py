"""Reports and tables as HTML for a notebook: the first rows, formatted as in the text report.

The style takes the colours of the notebook, so it fits light and dark themes. All texts are escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from ... import units
from ...model import Report, ReportTable
from ..text import heading_facts
from ..text_tables import RIGHT, cell, clock_form, columns_for_people

#: Longer texts are wrapped.
_LONG = 40
#: Rows of a table that are shown.
ROWS = 20

_TEMPLATE = """\
{% macro shown_table(table) %}
{% if table.rows %}
<table><thead><tr>
{% for title, note, is_right in table.columns %}
<th title="{{ note }}"{% if is_right %} class="kt-right"{% endif %}>{{ title }}</th>
{% endfor %}
</tr></thead><tbody>
{% for row in table.rows %}
<tr>{% for text, place in row %}<td{% if place %} class="kt-{{ place }}"{% endif %}>{{ text }}</td>{% endfor %}</tr>
{% endfor %}
</tbody></table>
{% if table.left %}
<p class="kt-soft">… {{ "{:,}".format(table.left) }} more</p>
{% endif %}
{% for note in table.notes %}
<p class="kt-soft">{{ note }}</p>
{% endfor %}
{% else %}
<p class="kt-soft">{{ table.empty }}</p>
{% endif %}
{% endmacro %}
<div class="kafkatap-report">
<style>
.kafkatap-report { font-variant-numeric: tabular-nums; overflow-x: auto; }
.kafkatap-report table { border-collapse: collapse; border: 0; margin: 0.25em 0; font-size: 0.92em; }
.kafkatap-report th, .kafkatap-report td { text-align: left; white-space: pre; padding: 0.15em 0.7em; border: 0; \
background: none; vertical-align: top; border-bottom: 1px solid color-mix(in srgb, currentColor 18%, transparent); }
.kafkatap-report th { font-weight: 600; }
.kafkatap-report .kt-right { text-align: right; }
.kafkatap-report .kt-long { white-space: normal; min-width: 24em; max-width: 60em; overflow-wrap: anywhere; }
.kafkatap-report .kt-soft { opacity: 0.7; margin: 0.1em 0; }
.kafkatap-report summary { cursor: pointer; font-weight: 600; }
.kafkatap-report dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1em; margin: 0.3em 0; }
.kafkatap-report dd { margin: 0; overflow-wrap: anywhere; }
</style>
{% if facts %}
<dl>{% for name, text in facts %}<dt class="kt-soft">{{ name }}</dt><dd>{{ text }}</dd>{% endfor %}</dl>
{% endif %}
{% for table in tables %}
<details{% if table.is_open %} open{% endif %}><summary>{{ table.title }}</summary>
{{ shown_table(table) }}
</details>
{% endfor %}
</div>"""


def table_html(table: ReportTable) -> str:
    """A table, with its title, its first ROWS rows, and its notes."""
    return _render([_shown(table, is_open=True)], [])


def report_html(report: Report) -> str:
    """What the report is about, its findings and latency, and its other tables closed."""
    tables = [
        _shown(table, table.name in ("summary", "latency"))
        for table in (*report.tables, report.ledger)
        if table.rows and len(table.rows) >= table.shown_from
    ]
    facts = [(name, units.safe(text)) for name, text in heading_facts(report.heading, utc=False)]
    return _render(tables, facts)


def tables_html(tables: Sequence[tuple[ReportTable, bool]], facts: Sequence[tuple[str, str]]) -> str:
    """Some tables, each with whether it is open, below some facts."""
    shown = [_shown(table, is_open) for table, is_open in tables if table.rows]
    return _render(shown, [(name, units.safe(text)) for name, text in facts])


def captures_html(captures: tuple[str, ...], selected: str | None, tables: str) -> str:
    """Captures that are not read yet. `selected`: the selection. `tables`: what they have."""
    named = [units.safe(path) for path in captures[:ROWS]]
    left = len(captures) - len(named)
    facts = [("captures", "\n".join(named) + (f"\n… {left:,} more" if left else "")), ("tables", tables)]
    if selected:
        facts.insert(1, ("only", units.safe(selected)))
    return _render([], facts)


def _shown(table: ReportTable, is_open: bool) -> dict[str, Any]:
    rows = table.rows[:ROWS]
    digits, date = clock_form(table, rows, None, False)
    chosen = columns_for_people(table)
    right = {i: table.columns[i].kind in RIGHT for i in chosen}
    return {
        "title": units.safe(table.title),
        "columns": [(table.columns[i].plain_title, table.columns[i].note, right[i]) for i in chosen],
        "rows": [
            [_placed(cell(table.columns[i], row[i], False, digits, date), right[i]) for i in chosen] for row in rows
        ],
        "left": len(table.rows) - len(rows),
        "notes": [units.safe(note) for note in table.notes],
        "empty": units.safe(table.empty),
        "is_open": is_open,
    }


def _placed(text: str, is_right: bool) -> tuple[str, str]:
    """A cell's text, and the end of its class: a long text has lines of its own."""
    return text, "right" if is_right else "long" if len(text) > _LONG else ""


def _render(tables: list[dict[str, Any]], facts: list[tuple[str, str]]) -> str:
    return str(_template().render(tables=tables, facts=facts))


@cache
def _template() -> Any:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_TEMPLATE)
