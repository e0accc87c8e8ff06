"""Addresses of brokers by node id, from Metadata and DescribeCluster responses."""

from __future__ import annotations

import numpy as np

from kafkatap.dissector.inspection import Array, Frames
from kafkatap.dissector.layouts.overlay import Definitions
from kafkatap.dissector.programs.loading import load_programs
from kafkatap.dissector.programs.profiles import NODE_APIS

#: Nodes that get a name, and hosts and ports of a node that are compared.
MOST_NODES, MOST_PLACES = 10_000, 64


class NodeNames:
    """An inspector that collects `names`: "host:port" by node id.

    A node with several ports (one per listener) has its host as name. A node id with several hosts (two clusters) has
    no name.
    """

    def __init__(self, definitions: Definitions | None = None) -> None:
        self._programs = load_programs("nodes", definitions)
        self._field_names = [field.inner[-1] for field in self._programs.fields]
        self._keys = np.array(sorted(NODE_APIS), np.int16)
        self._seen: dict[int, set[tuple[bytes, int]]] = {}
        self.names: dict[int, str] = {}

    @property
    def places(self) -> dict[int, set[tuple[str, int]]]:
        """All hosts and ports by node id."""
        return {
            node: {(host.decode("utf-8", "replace"), port) for host, port in places}
            for node, places in self._seen.items()
        }

    def look(self, frames: Frames) -> None:
        jobs = frames.jobs
        are_responses = (jobs["frame"] & 1).astype(bool) & (jobs["program"] >= 0)
        numbers = np.flatnonzero(are_responses & np.isin(frames.rows["api_key"][jobs["frame"] >> 1], self._keys))
        if not len(numbers):
            return
        chosen, tape = frames.decode(self._programs, numbers)
        for job in chosen[["source", "tape_first", "tape_count"]].tolist():
            source, first, count = job
            self._add(tape[first : first + count].tolist(), frames.buffers[source])

    def _add(self, rows: list[tuple[int, ...]], buffer: Array) -> None:
        """Add the brokers of one response. Its fields are the id, host and port of each in turn."""
        node, host = -1, b""
        for value, _, _, length, field, *_ in rows:
            name = self._field_names[field]
            if name == "Host":
                host = buffer[value : value + max(length, 0)].tobytes()
            elif name == "Port":
                if node not in self._seen and len(self._seen) >= MOST_NODES:
                    continue
                places = self._seen.setdefault(node, set())
                if (host, value) not in places and len(places) < MOST_PLACES:
                    places.add((host, value))
                    self._set_name(node)
            elif name in ("NodeId", "BrokerId"):
                node = value

    def _set_name(self, node: int) -> None:
        places = self._seen[node]
        hosts = {host for host, _ in places}
        if len(hosts) > 1:
            self.names.pop(node, None)
            return
        host = hosts.pop().decode("utf-8", "replace")
        shown = f"[{host}]" if ":" in host else host
        self.names[node] = f"{shown}:{next(iter(places))[1]}" if len(places) == 1 else shown
