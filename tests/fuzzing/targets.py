"""All targets by name."""

from __future__ import annotations

from .capture_targets import CAPTURE_TARGETS
from .command_target import COMMAND_TARGETS
from .decoder_targets import DECODER_TARGETS
from .hosts_target import HOSTS_TARGETS
from .lake_target import LAKE_TARGETS
from .log_target import LOG_TARGETS
from .tls_target import TLS_TARGETS
from .trimming_target import TRIMMING_TARGETS

_ALL = (
    *CAPTURE_TARGETS,
    *DECODER_TARGETS,
    *COMMAND_TARGETS,
    *LOG_TARGETS,
    *TLS_TARGETS,
    *TRIMMING_TARGETS,
    *LAKE_TARGETS,
    *HOSTS_TARGETS,
)
TARGETS = {target.name: target for target in _ALL}
