"""All targets by name."""

from __future__ import annotations

from .capture_targets import CAPTURE_TARGETS
from .command_target import COMMAND_TARGETS
from .decoder_targets import DECODER_TARGETS
from .log_target import LOG_TARGETS

TARGETS = {target.name: target for target in (*CAPTURE_TARGETS, *DECODER_TARGETS, *COMMAND_TARGETS, *LOG_TARGETS)}
