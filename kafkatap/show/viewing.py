"""Trees of messages, with the names of their cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafkatap.dissector.dtypes import MAX_FRAME
from kafkatap.dissector.layouts.overlay import Definitions
from kafkatap.dissector.programs.loading import load_programs
from kafkatap.dissector.tree.node import Node
from kafkatap.dissector.tree.record_nodes import RecordViewer
from kafkatap.dissector.tree.view import ClusterNames, EarlierFacts, Viewer

from ..selected_messages.message import Message


@dataclass(frozen=True, slots=True)
class Known:
    """Names of a cluster: topics by id (bytes), "host:port" by node id. Both may grow."""

    topics: Mapping[bytes, str]
    nodes: Mapping[int, str]


#: Bytes of a text that are shown. Kafka's own texts have 32,767 at most, but for a few of some kB.
LONGEST_TEXT = 1 << 20


class MessageViewer:
    """Makes the tree of a message with its frame. `secrets`, `records`: show these too."""

    def __init__(
        self,
        known: Known,
        definitions: Definitions | None = None,
        secrets: bool = False,
        records: bool = False,
        max_frame: int | None = None,
    ) -> None:
        self._viewer = Viewer(
            load_programs("everything", definitions),
            None if definitions is None else definitions.messages,
            ClusterNames(known.topics, known.nodes),
            secrets=secrets,
            records=RecordViewer(load_programs("records", definitions)) if records else None,
            max_frame=max_frame or MAX_FRAME,
        )
        self._viewer.longest_text = LONGEST_TEXT

    @property
    def viewer(self) -> Viewer:
        """What makes the trees."""
        return self._viewer

    def view(self, message: Message) -> Node:
        mechanism = None if message.mechanism is None else message.mechanism.decode("utf-8", "replace")
        direction = int(message.is_response)
        if message.token:
            return self._viewer.view_token(message.frame, direction, mechanism)
        side = "response" if message.is_response else "request"
        size, cut = (message.column(f"{side}_{name}") for name in ("bytes", "cut_bytes"))
        is_cut = 0 < cut == size + 4 - len(message.frame)
        earlier = EarlierFacts(mechanism, message.enveloped, is_cut)
        return self._viewer.view(message.frame, direction, message.api_key, message.column("api_version"), earlier)
