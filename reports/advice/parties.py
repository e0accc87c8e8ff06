"""Parties of findings by the numbers that counts have of them."""

from __future__ import annotations

from .. import parties
from ..batch import Context, endpoint
from ..findings import Party


def client_words(context: Context, client: int, ip: int = -1) -> str:
    """`client "billing" (10.0.0.1)`. `client`, `ip`: numbers of the context; -1: not said."""
    return parties.client_text(context.text(client), context.address(ip) or "")


def client_parties(context: Context, client: int, ip: int = -1) -> tuple[Party, ...]:
    """A client by its id, and the host that it runs on."""
    return parties.client_parties(context.text(client), context.address(ip) or "")


def broker_party(context: Context, ip: int, port: int) -> Party:
    """A broker by address and port."""
    return Party("broker", endpoint(context.address(ip), port))


def client_option(context: Context, client: int) -> parties.Options:
    """`--client NAME` of a command, if that selects this client only."""
    return parties.client_option(context.text(client))
