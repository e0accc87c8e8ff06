"""The filter expressions: `api == Fetch and error != NONE and latency > 50ms and topic ~ "orders.*"`.

A text is parsed once (`parse_expression`) and judged on whole batches of rows (`Condition`). What is wrong with a text
is told with the place; it knows nothing of files, packets or bytes.

>>> from kafkatap.reports.expressions import Condition, parse_expression
>>> condition = Condition(parse_expression("api == Fetch and error"))
>>> sorted(condition.api_keys)
[1]

errors      `ExpressionError`: what is wrong, and a caret under the place
tree        what a text says: comparisons, and, or, not
grammar     text to tree (lark)
literals    numbers, durations, sizes, times and texts as they are written
columns     the columns of batches as arrays that can be compared
names       what can be compared: names, types, units, help
verdicts    comparisons with values, judged on arrays
paths       decoded fields by path, found in the message layouts
meaning     names and types checked: tree to atoms and tests
condition   `Condition`: atoms judged on batches, and what the engine need not decode
sieve       batches of a run, less what does not match
"""

from .condition import Condition
from .errors import ExpressionError
from .meaning import Expression, parse_expression

__all__ = ["Condition", "Expression", "ExpressionError", "parse_expression"]
