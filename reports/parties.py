"""Clients and brokers as parties of findings: their words, and the options of commands that select them."""

from __future__ import annotations

import re

from .commands import is_showable
from .findings import Party
from .model import Value

Options = tuple[tuple[str, str | None], ...]
#: Client ids of Kafka's own clients inside brokers (Apache Kafka 0.8 to 4.4).
_NAMES = re.compile(
    r"\Abroker-\d+-|\Araft-client-\d+\Z|\AReplicaFetcherThread-|\Aid_\d+-host_|\ABrokerToControllerChannel"
)


def has_own_name(client_id: str | None) -> bool:
    """Whether a client id is one that Kafka gives clients inside brokers."""
    return client_id is not None and _NAMES.match(client_id) is not None


def client_text(client: Value, address: str = "") -> str:
    """`client "billing" (10.0.0.1)`. `client`: None: without client_id. `address`: of the one client that is meant; "":
    all of that client_id."""
    if client is None:
        words = "a client without client_id" if address else "clients without client_id"
    else:
        words = f'client "{client}"' if client else 'client_id ""'
    return f"{words} ({address})" if address else words


def client_parties(client: Value, address: str = "") -> tuple[Party, ...]:
    """A client by its id, and the host that it runs on."""
    return (
        *(() if client is None else (Party("client", str(client)),)),
        *((Party("host", address),) if address else ()),
    )


def client_option(client: Value) -> Options:
    """`--client NAME`, if that selects this client only."""
    text = "" if client is None else str(client)
    return (("client", text if text and is_showable(text) and not set("*?[") & set(text) else None),)
