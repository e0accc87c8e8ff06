"""What a HOST means: a destination of ssh, or `kubectl:NAMESPACE/POD[/CONTAINER]`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

_KUBECTL = "kubectl:"
_NAME = r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?"
_POD = re.compile(rf"({_NAME})/({_NAME})(?:/({_NAME}))?")
#: Nobody is asked for a password or whether a key is right; the user's own configuration cannot turn that off. Nothing
#: is forwarded.
_SSH = (
    "ssh", "-T", "-x", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ClearAllForwardings=yes", "-o",
    "ForwardAgent=no", "-o", "PermitLocalCommand=no", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5",
)  # fmt: skip


class Place(NamedTuple):
    """A host. `name`: as the user wrote it. `reach`: the command that runs a program there. `is_shell`: it gets the
    program as one text for a shell."""

    name: str
    reach: tuple[str, ...]
    is_shell: bool

    def command(self, words: Sequence[str]) -> list[str]:
        """The command that runs a program there."""
        return [*self.reach, shlex.join(words)] if self.is_shell else [*self.reach, *words]

    @property
    def file_name(self) -> str:
        """A name for its capture."""
        return re.sub(r"[^A-Za-z0-9._-]+", "_", self.name).lstrip("._-") or "host"


def place_of(text: str, ssh_config: str | None = None) -> Place:
    """The host of a text. `ssh_config`: the file that ssh reads in place of the user's. ValueError if it is none."""
    if text.startswith(_KUBECTL):
        found = _POD.fullmatch(text.removeprefix(_KUBECTL))
        if found is None:
            raise ValueError(f"{text}: a pod is kubectl:NAMESPACE/POD or kubectl:NAMESPACE/POD/CONTAINER")
        namespace, pod, container = found.groups()
        chosen = () if container is None else ("-c", container)
        return Place(text, ("kubectl", "exec", "-i", "-n", namespace, pod, *chosen, "--"), is_shell=False)
    if not text or text.startswith("-") or not text.isprintable() or any(c.isspace() for c in text):
        raise ValueError(f"{text!r} is no host (such as broker-1, admin@10.0.0.1 or ssh://broker-1:2222)")
    config = () if ssh_config is None else ("-F", ssh_config)
    return Place(text, (*_SSH, *config, "--", text), is_shell=True)
