"""A host in; whether it is this machine alone out."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether a host, by name or address, is this machine, and nobody else reaches it."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def host_of(header: str) -> str:
    """The host of a `Host` header, without its port."""
    host, _, port = header.rpartition(":")
    return host if host and port.isdecimal() and not host.endswith(":") else header
