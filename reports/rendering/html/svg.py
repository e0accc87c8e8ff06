"""`themed_svg`: a plot as an SVG element for a page.

matplotlib writes an SVG file with a style on each element. A page's Content-Security-Policy allows none of these, and
colours must follow its theme. So styles become classes, colours the page's variables, and tooltips <title> elements.
Texts stay texts, in the font of the page.
"""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from collections.abc import Iterator
from typing import NamedTuple
from xml.etree import ElementTree

from ..plot_style import HEAT, HIT, INK, LINE, MEANING, PALETTE, SETTINGS, SOFT, Plot

_SVG, _LINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_HREF = f"{{{_LINK}}}href"
#: The page's variable for each colour of plots.
VARIABLES = {
    **{color: f"var(--s{n})" for n, color in enumerate(PALETTE, 1)},
    **{color: f"var(--h{n})" for n, color in enumerate(HEAT, 1)},
    **{color: f"var(--{name if name != 'none' else 'waiting'})" for name, color in MEANING.items()},
    INK: "var(--ink)", SOFT: "var(--soft)", LINE: "var(--line)",
    "#ffffff": "var(--paper)", "#000000": "var(--ink)",
}  # fmt: skip
_COLOR = re.compile(r"#[0-9a-f]{6}\b")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")


class TimeSpan(NamedTuple):
    """Where a chart has its time axis. `begin`, `end`: the times of its ends, ms since the epoch. `left`, `right`:
    their places, as shares of the chart's width."""

    begin: float
    end: float
    left: float
    right: float


class ThemedSvg(NamedTuple):
    """`element`: the SVG as text. `css`: the rules of its classes. `span`: its time axis, if it has one."""

    element: str
    css: str
    span: TimeSpan | None = None


def themed_svg(plot: Plot, name: str, title: str) -> ThemedSvg:
    """A plot for a page. `name`: begins the ids in it. `title`: what screen readers read."""
    import matplotlib

    file = io.StringIO()
    with matplotlib.rc_context({**SETTINGS, "svg.fonttype": "none"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # names from the wire
        plot.figure.savefig(file, format="svg", metadata={"Date": None}, transparent=True)
    root = ElementTree.fromstring(file.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"):
                parent.remove(child)
    _add_tips(root, plot)
    rules: dict[str, str] = {}
    for element in root.iter():
        _use_classes(element, rules)
    _rename_ids(root, name)
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    root.set("role", "img")
    root.set("aria-label", title)
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _LINK)
    css = "\n".join(f".chart .{name}{{{rule}}}" for name, rule in rules.items())
    return ThemedSvg(ElementTree.tostring(root, "unicode"), css, _time_span(plot))


def _time_span(plot: Plot) -> TimeSpan | None:
    """The time axis of a plot that was drawn."""
    from matplotlib.dates import DateLocator, num2date

    for axes in plot.figure.axes:
        if isinstance(axes.xaxis.get_major_locator(), DateLocator):
            begin, end = (1000 * num2date(number).timestamp() for number in axes.get_xlim())
            place = axes.get_position()
            return TimeSpan(begin, end, place.x0, place.x1)
    return None


def _add_tips(root: ElementTree.Element, plot: Plot) -> None:
    """Add tooltips to what was drawn with a gid."""
    for element in root.iter():
        gid = element.get("id", "")
        if gid in plot.tips:
            drawn = list(_drawn(element, "use")) or list(_drawn(element, "path"))
            for shape, text in zip(drawn, plot.tips[gid], strict=True):
                _set_title(shape, text)
            if gid.startswith(HIT):
                for shape in drawn:
                    shape.attrib.pop("style", None)
                    shape.set("class", "hit")
        if gid in plot.titles:
            line = next(_drawn(element, "path"), None)
            if line is not None:
                _set_title(line, plot.titles[gid])


def _drawn(element: ElementTree.Element, tag: str) -> Iterator[ElementTree.Element]:
    """The descendants of that tag that are drawn where they stand."""
    for child in element:
        if child.tag == f"{{{_SVG}}}{tag}":
            yield child
        elif child.tag == f"{{{_SVG}}}g":
            yield from _drawn(child, tag)


def _set_title(element: ElementTree.Element, text: str) -> None:
    ElementTree.SubElement(element, f"{{{_SVG}}}title").text = text


def _use_classes(element: ElementTree.Element, rules: dict[str, str]) -> None:
    """Replace the style of an element by a class."""
    style = element.attrib.pop("style", None)
    if style is None:
        return
    parts = []
    for part in filter(None, (p.strip() for p in style.split(";"))):
        key, _, value = part.partition(":")
        if key == "font":
            found = re.search(r"([\d.]+px)", value)
            parts.append(f"font-size:{found[1]}" if found else "")
            if "bold" in value or re.search(r"\b[67]00\b", value):
                parts.append("font-weight:600")
        elif key.strip() not in ("font-family", "font-stretch", "font-variant"):
            parts.append(f"{key.strip()}:{_COLOR.sub(lambda m: VARIABLES.get(m[0], m[0]), value.strip().lower())}")
    rule = ";".join(filter(None, parts))
    if rule:
        name = "p" + hashlib.sha256(rule.encode()).hexdigest()[:8]
        rules[name] = rule
        element.set("class", name)


def _rename_ids(root: ElementTree.Element, name: str) -> None:
    """Drop ids that nothing refers to, and begin the others with `name`."""
    used = set()
    for element in root.iter():
        for attribute, value in element.attrib.items():
            if attribute == _HREF:
                used.add(value.removeprefix("#"))
            used.update(_REFERENCE.findall(value))
    for element in root.iter():
        identity = element.attrib.pop("id", None)
        if identity in used:
            element.set("id", f"{name}-{identity}")
        for attribute, value in element.attrib.items():
            if attribute == _HREF:
                element.set(attribute, f"#{name}-{value.removeprefix('#')}")
            elif "url(#" in value:
                element.set(attribute, _REFERENCE.sub(rf"url(#{name}-\1)", value))
