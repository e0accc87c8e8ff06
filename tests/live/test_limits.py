"""Options of limits, as `kafkatap live` uses them."""

from __future__ import annotations

from kafkatap.commands.command_parser import parse
from kafkatap.commands.live.command import _engine
from kafkatap.commands.values import read_options
from kafkatap.live.memory_limits import MemoryLimits, memory_limits


def test_the_defaults_of_the_monitor_are_below_those_of_the_engine() -> None:
    """So that names are forgotten before new ones are refused."""
    options = parse(["live"])
    assert (options.max_connections, options.max_waiting, options.max_names) == (None, None, None)
    assert memory_limits(None, None, None) == MemoryLimits()
    assert MemoryLimits().strings < _engine(options, [], read_options(options)).limits.names


def test_options_set_the_limits_of_both() -> None:
    options = parse(
        ["live", "--max-names", "4000", "--max-waiting", "70", "--max-connections", "8", "--max-held", "1m"]
    )
    engine = _engine(options, [], read_options(options))
    limits = memory_limits(options.max_connections, options.max_waiting, options.max_names)
    assert (limits.strings, limits.addresses, limits.rows) == (4_000, 4_000, 200)
    assert limits.strings < engine.limits.names
    assert (limits.waiting, limits.connections) == (70, 8)
    assert (engine.limits.waiting, engine.limits.connections, engine.limits.held) == (70, 8, 1 << 20)
