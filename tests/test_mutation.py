"""The changes that `tests.mutation` makes, and the tests that it chooses for them."""

from __future__ import annotations

from tests.mutation import Coverage, mutants_of

SOURCE = b'''\
"""A module."""
MOST = 3
def f(a: int = 1, *, b: "x" = None) -> int:
    """Returns."""
    if a and not b:
        a += min(a, -2)
    for _ in a:
        if a < MOST <= 9: break
    g.x = a.max() if g() else f"{a + 1}"
    g(True)
    return a
'''


def test_the_changes_of_a_module() -> None:
    found = {(m.first, m.before, m.after) for m in mutants_of("m.py", SOURCE, range(1, 99))}
    assert found == {
        (2, "3", "4"), (3, "1", "2"), (5, "a and not b", "(a or not b)"), (5, "not b", "(b)"),
        (6, "a += min(a, -2)", "pass"), (6, "min", "max"), (6, "-2", "(2)"), (6, "2", "3"),
        (8, "a < MOST <= 9", "(a <= MOST <= 9)"), (8, "a < MOST <= 9", "(a >= MOST <= 9)"),
        (8, "a < MOST <= 9", "(a < MOST < 9)"), (8, "a < MOST <= 9", "(a < MOST > 9)"), (8, "9", "10"),
        (8, "break", "pass"), (9, 'g.x = a.max() if g() else f"{a + 1}"', "pass"), (9, "a.max", "a.min"),
        (9, "g()", "True"), (9, "g()", "False"), (10, "g(True)", "pass"), (10, "True", "False"),
    }  # fmt: skip
    assert {m.first for m in mutants_of("m.py", SOURCE, range(6, 9))} == {6, 8}
    (changed,) = (m for m in mutants_of("m.py", SOURCE, range(6, 7)) if m.after == "max")
    assert changed.text == SOURCE.replace(b"min(", b"max(")


def test_a_change_is_run_against_the_tests_of_its_lines_the_fastest_first() -> None:
    tests = {("m.py", 2): {"slow"}, ("m.py", 5): {"slow", "fast"}, ("m.py", 6): {"fast"}}
    coverage = Coverage(tests, {"slow": 2.0, "fast": 0.1, "other": 1.0})
    by_line = {m.first: coverage.tests_of(m) for m in mutants_of("m.py", SOURCE, range(1, 99))}
    assert by_line[5] == ["fast", "slow"]
    assert by_line[6] == ["fast"]
    assert by_line[2] == by_line[9] == ["fast", "other", "slow"]  # when it is imported; perhaps in other processes
