"""Read addresses of brokers and clients in options and expressions."""

from __future__ import annotations


def split_broker(text: str) -> tuple[str, int]:
    """(address or "", port or -1) of a broker; ValueError for anything else."""
    if text.startswith("["):
        address, bracket, rest = text[1:].partition("]")
        port = rest[1:] if rest.startswith(":") else ""
        if not bracket or (rest and not port):
            raise ValueError(f"{text!r} is not an address and port")
    elif text.count(":") == 1:
        address, _, port = text.partition(":")
    else:
        address, port = text, ""
    if not (address or port) or (text.endswith(":") and text.count(":") == 1):
        raise ValueError(f"{text!r} is not an address and port")
    if port and (not port.isdigit() or not 0 < int(port) < 65536):
        raise ValueError(f"{port!r} is not a port number")
    return canonical_address(address) if address else "", int(port) if port else -1


def is_end(text: str) -> bool:
    """Whether a text is an IP address and a port."""
    try:
        address, port = split_broker(text)
    except ValueError:
        return False
    return bool(address) and port >= 0


def canonical_broker(text: str) -> str:
    """`10.0.0.1`, `10.0.0.1:9092`, `[::1]:9092` or `:9092`, the address as reports show it; ValueError as above."""
    address, port = split_broker(text)
    if port < 0:
        return address
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def broker_spellings(name: str) -> tuple[str, ...]:
    """The canonical names of a broker that reports call `name`: `10.0.0.1:9092`, `:9092` and `10.0.0.1` (`[::1]:9092`,
    `:9092`, `::1` and `[::1]`)."""
    address, _, port = name.rpartition(":")
    if address == "?":  # unknown
        return (name, f":{port}")
    bare = address.strip("[]")
    return (name, f":{port}", bare, f"[{bare}]")


def canonical_address(text: str) -> str:
    """An IP address as reports show it; ValueError where the text is none."""
    from ipaddress import ip_address

    if text.isdigit():
        raise ValueError(f"{text!r} is no address; a port alone is written :{text}")
    try:
        return str(ip_address(text))
    except ValueError:
        raise ValueError(
            f"{text!r} is no IP address, and a capture holds no host names (those of --hosts: a filter on broker_host)"
        ) from None
