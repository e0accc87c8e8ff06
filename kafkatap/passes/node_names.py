"""Which address each broker has, as Metadata and DescribeCluster responses tell it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kafkatap.dissector.inspection import Array, Frames
from kafkatap.dissector.programs.loading import load_programs
from kafkatap.dissector.programs.profiles import NODE_APIS

if TYPE_CHECKING:
    from kafkatap.dissector.layouts.overlay import Definitions


class NodeFinder:
    """An inspector that collects what each node id is called: `found`, by id, is "host:port", or the host alone where a
    node has several ports (a listener each). Where it has several hosts (two clusters) nothing is told."""

    def __init__(self, definitions: Definitions | None = None) -> None:
        self._programs = load_programs("nodes", definitions)
        self._names = [field.inner[-1] for field in self._programs.fields]
        self._keys = np.array(sorted(NODE_APIS), np.int16)
        self._seen: dict[int, set[tuple[bytes, int]]] = {}
        self.found: dict[int, str] = {}

    def look(self, frames: Frames) -> None:
        jobs = frames.jobs
        concerned = (jobs["frame"] & 1).astype(bool) & (jobs["program"] >= 0)
        numbers = np.flatnonzero(concerned & np.isin(frames.rows["api_key"][jobs["frame"] >> 1], self._keys))
        if not len(numbers):
            return
        chosen, tape = frames.decode(self._programs, numbers)
        for job in chosen[["source", "tape_first", "tape_count"]].tolist():
            source, first, count = job
            self._note(tape[first : first + count].tolist(), frames.buffers[source])

    def _note(self, rows: list[tuple[int, ...]], buffer: Array) -> None:
        """One response: of each broker, id, host and port follow each other."""
        node, host = -1, b""
        for value, _, _, length, field, *_ in rows:
            name = self._names[field]
            if name == "Host":
                host = buffer[value : value + max(length, 0)].tobytes()
            elif name == "Port":
                places = self._seen.setdefault(node, set())
                if (host, value) not in places:
                    places.add((host, value))
                    self._tell(node)
            elif name in ("NodeId", "BrokerId"):
                node = value

    def _tell(self, node: int) -> None:
        places = self._seen[node]
        hosts = {host for host, _ in places}
        if len(hosts) > 1:
            self.found.pop(node, None)
            return
        host = hosts.pop().decode("utf-8", "replace")
        shown = f"[{host}]" if ":" in host else host
        self.found[node] = f"{shown}:{next(iter(places))[1]}" if len(places) == 1 else shown
