"""Which address each broker has, as Metadata and DescribeCluster responses tell it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kafkatap.dissector.inspection import Array, Frames
from kafkatap.dissector.profiles import NODE_APIS
from kafkatap.dissector.program import load_programs
from kafkatap.dissector.tape import decode_jobs
from kafkatap.kernels.arrays import taken

if TYPE_CHECKING:
    from kafkatap.dissector.overlay import Definitions


class NodeFinder:
    """An inspector that collects what each node id is called. A node has an address on each of its listeners, and node
    ids of two clusters may be the same: what is not one address, or one host, is not told."""

    def __init__(self, definitions: Definitions | None = None) -> None:
        self._programs = load_programs("nodes", definitions)
        self._names = [field.inner[-1] for field in self._programs.fields]
        self._keys = np.array(sorted(NODE_APIS), np.int16)
        self._seen: dict[int, set[tuple[bytes, int]]] = {}

    def look(self, frames: Frames) -> None:
        jobs = frames.jobs
        concerned = (jobs["frame"] & 1).astype(bool) & (jobs["program"] >= 0)
        numbers = np.flatnonzero(concerned & np.isin(frames.rows["api_key"][jobs["frame"] >> 1], self._keys))
        if not len(numbers):
            return
        chosen = taken(jobs, numbers)
        chosen["program"] = self._programs.same_as(frames.programs, chosen["program"])
        tape = decode_jobs(self._programs, chosen, frames.buffers)
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
                self._seen.setdefault(node, set()).add((host, value))
            elif name in ("NodeId", "BrokerId"):
                node = value

    def addresses(self) -> dict[int, str]:
        """By node id "host:port"; the host alone where it has several ports; nothing where it has several hosts."""
        found = {}
        for node, places in self._seen.items():
            hosts = {host for host, _ in places}
            if len(hosts) == 1:
                host = hosts.pop().decode("utf-8", "replace")
                shown = f"[{host}]" if ":" in host else host
                found[node] = f"{shown}:{next(iter(places))[1]}" if len(places) == 1 else shown
        return found
