"""`Message`: one request or response, with the columns of its exchange."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kafkatap.dissector.dtypes import EXCHANGE, NO_INT32, NO_TIME, STATUSES, TLS_VERSIONS
from kafkatap.dissector.layouts.catalog import api_name
from kafkatap.dissector.tree.summary import Facts

#: Places of columns in a row of EXCHANGE.
COLUMN = {name: number for number, name in enumerate(EXCHANGE.names or ())}
#: Columns with the path of the malformed field, by direction.
PROBLEMS = ("request_problem", "response_problem")


@dataclass(slots=True)
class Message:
    """One request or response. Its texts come from the wire and are not escaped.

    id         exchange * 2 + direction (0 request, 1 response)
    time       of the first byte, ns since the epoch
    row        the columns of the exchange (EXCHANGE): final for a response, as far as known for a request
    token      whether these are bare SASL bytes without a header
    version    of the layout that decoded it; -1 for none
    problem    the path of the malformed field
    records    how many records; None where the batch headers do not say
    outcome    of the exchange; "" where it is not finished
    frame      the captured bytes from the size field on, if the collector keeps frames
    body       where the body begins in `frame`
    missing    how many bytes behind `frame` were not captured
    enveloped  for an Envelope's response, the API key and version of its inner request
    """

    id: int
    time: int
    row: tuple[Any, ...]
    client: str
    broker: str
    client_id: bytes | None
    mechanism: bytes | None
    token: bool
    version: int
    facts: Facts
    problem: str | None
    records: int | None
    outcome: str = ""
    frame: bytes = b""
    body: int = 0
    missing: int = 0
    enveloped: tuple[int, int] | None = None

    def column(self, name: str) -> Any:
        """A column of the exchange, as a number."""
        return self.row[COLUMN[name]]

    @property
    def is_response(self) -> bool:
        return bool(self.id & 1)

    @property
    def began(self) -> int:
        """The start of its exchange, ns since the epoch; without a request, its own time."""
        first = int(self.column("request_first"))
        return self.time if first == NO_TIME else first

    @property
    def size(self) -> int:
        """The value of the size field."""
        return int(self.column("response_bytes" if self.is_response else "request_bytes"))

    @property
    def packets(self) -> tuple[int, int]:
        """Numbers of the packets that carried its first and its last byte."""
        side = "response" if self.is_response else "request"
        return self.column(f"{side}_packet_first"), self.column(f"{side}_packet_last")

    @property
    def status(self) -> str:
        return STATUSES[self.column("response_status" if self.is_response else "request_status")]

    @property
    def problem_at(self) -> int | None:
        """The offset in the frame at which it is malformed, or of the first of its trailing bytes."""
        at = int(self.column(f"{PROBLEMS[self.is_response]}_at"))
        return None if at == NO_INT32 else at

    @property
    def tls_version(self) -> str | None:
        """The version of TLS that it was decrypted from; None without TLS."""
        version = int(self.column("tls_version"))
        return None if version < 0 else TLS_VERSIONS[version]

    @property
    def api_key(self) -> int:
        """The API key; -1 for a bare token, and for a response whose request was not captured."""
        return int(self.column("api_key"))

    @property
    def api(self) -> str:
        return api_name(self.api_key)
