"""Parties of findings, their words, and the options of commands that select them."""

from __future__ import annotations

from ..batch import Context, endpoint
from ..findings import Party

Options = tuple[tuple[str, str | None], ...]


def client_words(context: Context, client: int, ip: int = -1) -> str:
    """`client "billing" (10.0.0.1)`. `client`, `ip`: numbers of the context; -1: not said."""
    name = context.text(client)
    words = "a client without client_id" if name is None else f'client "{name}"'
    address = context.address(ip)
    return f"{words} ({address})" if address else words


def client_parties(context: Context, client: int, ip: int = -1) -> tuple[Party, ...]:
    """A client by its id, and the host that it runs on."""
    name, address = context.text(client), context.address(ip)
    found = [] if name is None else [Party("client", name)]
    return (*found, Party("host", address)) if address else tuple(found)


def broker_party(context: Context, ip: int, port: int) -> Party:
    """A broker by address and port."""
    return Party("broker", endpoint(context.address(ip), port))


def client_option(context: Context, client: int) -> Options:
    """`--client NAME` of a command, if that selects this client only."""
    name = context.text(client)
    return (("client", name),) if name and not set("*?[") & set(name) else ()
