"""Parse a text to a syntax tree.

`or` binds weakest, then `and`, then `not`, then comparisons. lark's LALR parser reads token by token with its own
stack, so the cost of a long or deeply nested text is proportional to its length.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from ..literals import undo_escapes
from .expression_error import ExpressionError
from .tree import AndSyntax, Comparison, Literal, Node, NotSyntax, OrSyntax

if TYPE_CHECKING:
    from lark import Lark, Token

#: Limits of an expression: its characters, and its nested parentheses and nots.
LONGEST, DEEPEST = 10_000, 100

GRAMMAR = r"""
?start: either
?either: both (OR both)*
?both: inverse (AND inverse)*
?inverse: NOT inverse -> negation
        | "(" either ")"
        | comparison
comparison: NAME
          | NAME (COMPARE | WORD_COMPARE) value
          | NAME [NOT] IN "(" value ("," value)* ")"
value: NUMBER | STRING | TIME | ADDRESS | NULL | NAME

OR.3: /or(?![\w.])/i | "||"
AND.3: /and(?![\w.])/i | "&&"
NOT.3: /not(?![\w.])/i | /!(?![=~])/
IN.3: /in(?![\w.])/i
NULL.3: /null(?![\w.])/i
COMPARE: "==" | "!=" | "<=" | ">=" | "<" | ">" | "~" | "!~"
WORD_COMPARE.3: /(eq|ne|gt|lt|ge|le|contains|matches)(?![\w.])/i
NAME: /(?!(or|and|not|in|null)(?![\w.]))(record\.header\.("([^"\\\n]|\\.)*"|[\w.-]+)|[^\W\d]\w*(\.[^\W\d]\w*)*)/i
TIME.3: /(\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d{1,9})?)?( ?(Z|UTC|[+-]\d\d:?\d\d))?)?)(?![\w:])/
      | /\d{1,2}:\d\d(:\d\d([.,]\d{1,9})?)?( ?(Z|UTC|[+-]\d\d:?\d\d))?(?![\w:])/
ADDRESS.2: /\d{1,3}(\.\d{1,3}){3}(:\d+)?(?![\w.])/ | /:\d+(?!\w)/ | /\[[0-9A-Fa-f:.]+\](:\d+)?/
NUMBER: /[+-]?(0[xX][0-9A-Fa-f][0-9A-Fa-f_]*|\d[\d_]*(\.\d[\d_]*)?)([A-Za-zµ]+|UNIT)?/i
STRING: /"([^"\\\n]|\\.)*"/ | /'([^'\\\n]|\\.)*'/

%ignore /\s+/
""".replace("UNIT", r" +(ns|us|µs|ms|s|min|m|h|d|[kmgt]?i?b)(?![\w.])")

#: Comparisons as Wireshark's display filters spell them, too. What `contains` is compared with is no pattern.
WORDS = {"eq": "==", "ne": "!=", "gt": ">", "lt": "<", "ge": ">=", "le": "<=", "matches": "~"}
CONTAINS = "contains"

_KINDS = {"NUMBER": "number", "STRING": "string", "NAME": "word", "TIME": "time", "ADDRESS": "address", "NULL": "null"}


@cache
def _parser() -> Lark:
    from lark import Lark

    return Lark(GRAMMAR, parser="lalr", lexer="contextual", maybe_placeholders=False)


def parse(text: str) -> Node:
    """The syntax tree of an expression. ExpressionError for an invalid text."""
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken

    if len(text) > LONGEST:
        raise ExpressionError(f"this is longer than {LONGEST:,} characters", text, LONGEST)
    if not text.strip():
        raise ExpressionError("there is no expression", text, 0)
    try:
        parsed = _parser().parse(text)
    except UnexpectedCharacters as error:
        raise _strange(text, error.pos_in_stream or 0) from None
    except UnexpectedToken as error:
        raise _misplaced(text, error) from None
    return _built(text, parsed)


def _built(text: str, root: Any) -> Node:
    """Convert lark's tree to ours."""
    from lark import Tree

    def build(item: Any, depth: int) -> Node:
        if depth > DEEPEST:
            while isinstance(item, Tree):
                item = item.children[0]
            raise ExpressionError(f"this is nested more than {DEEPEST} deep", text, item.start_pos)
        if item.data == "negation":
            return NotSyntax(build(item.children[1], depth + 1))
        if item.data == "comparison":
            return _comparison(item.children)
        nodes = tuple(build(child, depth + 1) for child in item.children if isinstance(child, Tree))
        return AndSyntax(nodes) if item.data == "both" else OrSyntax(nodes)

    return build(root, 0)


def _comparison(children: list[Any]) -> Comparison:
    name = children[0]
    values = tuple(_literal(child.children[0]) for child in children if hasattr(child, "children"))
    words = [child for child in children[1:] if not hasattr(child, "children")]
    op = " ".join("not" if word.type == "NOT" else "in" if word.type == "IN" else str(word) for word in words)
    op = WORDS.get(op.lower(), op)
    end = values[-1].end if values else name.end_pos
    return Comparison(str(name), op, values, name.start_pos, end, words[0].start_pos if words else name.start_pos)


def _literal(token: Token) -> Literal:
    kind, text = _KINDS[token.type], str(token)
    at, end = int(token.start_pos or 0), int(token.end_pos or 0)
    if kind == "string":
        return Literal(kind, undo_escapes(text[1:-1]), text[1:-1], at, end)
    return Literal(kind, text, text, at, end)


def _strange(text: str, at: int) -> ExpressionError:
    """The error for characters that cannot start a token."""
    if text[at] in "\"'":
        return ExpressionError("this text has no closing quote", text, at)
    if re.match(r"(or|and|not|in|null)(?![\w.])", text[at:], re.IGNORECASE):
        return ExpressionError("a name, not or ( should stand here", text, at)
    if text[at] == "=":
        return ExpressionError("equality is written ==", text, at)
    if text[at] in "&|":
        return ExpressionError(f"this is written {text[at] * 2}, or {'and' if text[at] == '&' else 'or'}", text, at)
    if text[at] in "*?":
        instead = 'write ~ and a regular expression, as in topic ~ "^orders"'
        return ExpressionError(f"{text[at]} is no wildcard here: {instead}", text, at)
    quotes = "; texts with other characters than letters, digits, _ and . stand in quotes"
    return ExpressionError(f"{text[at]!r} means nothing here{quotes}", text, at)


def _misplaced(text: str, error: Any) -> ExpressionError:
    """The error for an unexpected token."""
    token, accepted = error.token, set(error.accepts or error.expected)
    at, end = (len(text), None) if token.type == "$END" else (token.start_pos, token.end_pos)
    before = text[:at].rstrip()
    if "NUMBER" in accepted:
        wanted = "a value (a number, a word or a text in quotes) is missing"
    elif "COMPARE" in accepted:
        wanted = "a comparison (== != < <= > >= ~ !~ in), and, or, or the end should stand"
    elif "NAME" in accepted:
        wanted = "a name to compare is missing" if token.type == "$END" else "a name, not or ( should stand"
    elif accepted == {"IN"}:
        wanted = "in should stand"
    elif accepted == {"LPAR"}:
        wanted = "( and a list of values should stand"
    elif "COMMA" in accepted:
        wanted = "a comma or ) should stand"
    elif token.type == "RPAR":
        wanted = "this ) closes nothing: and, or, or the end should stand"
    elif "RPAR" in accepted and token.type == "$END":
        wanted = ") is missing"
    else:
        wanted = "and, or, or the end should stand"
        if len(before) == at and before[-1:] not in (")", ""):
            wanted += "; texts with other characters than letters, digits, _ and . stand in quotes"
    return ExpressionError(f"{wanted} here" if "should" in wanted and ";" not in wanted else wanted, text, at, end)
