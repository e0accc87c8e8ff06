"""All targets by name."""

from __future__ import annotations

from .capture_targets import CAPTURE_TARGETS

TARGETS = {target.name: target for target in (*CAPTURE_TARGETS,)}
