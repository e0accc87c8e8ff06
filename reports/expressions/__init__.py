"""Filter expressions: `api == Fetch and error != NONE and latency > 50ms and topic ~ "orders.*"`.

`parse_expression` parses a text once. `Condition` applies it to whole batches of rows. An error names the place in the
text. This package knows no files, packets or bytes.

>>> from kafkatap.reports.expressions import Condition, parse_expression
>>> condition = Condition(parse_expression("api == Fetch and error"))
>>> sorted(condition.api_keys)
[1]

From text to rows:

grammar             parse a text to a syntax tree (lark)
tree                the syntax tree: comparisons, and, or, not
values              values of comparisons, converted to the type of their name
names               the names that can be compared, with types, units and help
field_paths         decoded fields by path, found in the message layouts
meaning             `Expression`: the syntax tree with checked names and types, as atoms and tests
exchange_columns    columns of batches as arrays that can be compared
verdicts            apply tests to arrays
condition           `Condition`: apply an expression to batches, and find what the engine need not decode
expression_error    `ExpressionError`: the reason, and a caret under the place
"""

from .condition import Condition
from .expression_error import ExpressionError
from .meaning import Expression, parse_expression

__all__ = ["Condition", "Expression", "ExpressionError", "parse_expression"]
