"""The three ports of a server: named by the user and checked, or found free."""

from __future__ import annotations

import random
import socket
from dataclasses import astuple, dataclass
from pathlib import Path

from bireme.errors import ServerError

__all__ = ["Ports", "check_free", "choose", "free_ports"]

_FIRST = 20000
_LAST = 32767


@dataclass(frozen=True)
class Ports:
    """TCP ports of HTTP, gRPC and metrics (the defaults are Triton's); 0 stands for any free one."""

    http: int = 8000
    grpc: int = 8001
    metrics: int = 8002


def choose(ports: Ports, host: str) -> Ports:
    """Put free ports in the place of zeros, and check the others.

    Raises:
        ServerError: names the port that cannot be used.
    """
    if 0 in astuple(ports):
        free = free_ports(host)
        ports = Ports(ports.http or free.http, ports.grpc or free.grpc, ports.metrics or free.metrics)
    check_free(ports, host)
    return ports


def check_free(ports: Ports, host: str) -> None:
    """Refuse ports that are invalid, equal or already listened on.

    Raises:
        ServerError: names the port.
    """
    if len(set(astuple(ports))) < 3:
        raise ServerError("ports", "HTTP, gRPC and metrics need three different ones", "choose others")
    for purpose, port in vars(ports).items():
        hint = f"end the process that holds it, or choose another with --{purpose}"
        if not 0 < port < 65536:
            raise ServerError(f"port {port}", f"is not a port number ({purpose})", f"choose with --{purpose}")
        reason = _refusal(port, host)
        if reason is not None:
            raise ServerError(f"port {port}", f"cannot be opened for {purpose} on {host}: {reason}", hint)


def free_ports(host: str = "127.0.0.1") -> Ports:
    """Three ports that nobody listens on.

    They lie below the range from which outgoing connections take theirs, so that none is taken between
    this check and the server's start; the start is random, so that parallel test runs rarely meet.

    Raises:
        ServerError: hardly any port of the range is free.
    """
    ephemeral = _first_ephemeral()
    end = ephemeral if _FIRST + 1000 < ephemeral <= _LAST else _LAST + 1
    candidates = random.sample(range(_FIRST, end), 200)
    free = [port for port in candidates if _refusal(port, host) is None][:3]
    if len(free) < 3:
        raise ServerError("ports", f"no three free ones on {host} between {_FIRST} and {end}", "name three")
    return Ports(*free)


def _refusal(port: int, host: str) -> str | None:
    """Why `port` cannot be bound, or None; connections that are merely closing are no reason."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return None


def _first_ephemeral() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError):
        return _LAST + 1


def ipv4_address(host: str) -> str:
    """The IPv4 address of `host`: given a name, tritonserver's HTTP service binds to no usable one.

    Raises:
        ServerError: it has none.
    """
    try:
        return socket.gethostbyname(host)
    except OSError:
        raise ServerError(
            f"host '{host}'", "has no IPv4 address", "give one, such as 127.0.0.1 or 0.0.0.0"
        ) from None
