"""Ports: checked before the server starts, free ones found."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import astuple

import pytest

from bireme.errors import ServerError
from bireme.server.ports import Ports, check_free, choose, free_ports, ipv4_address


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_free_ports_can_be_bound_all_at_once() -> None:
    ports = free_ports()
    sockets = [socket.socket() for _ in range(3)]
    try:
        for each, port in zip(sockets, astuple(ports), strict=True):
            each.bind(("127.0.0.1", port))
    finally:
        for each in sockets:
            each.close()


@pytest.mark.parametrize("first_ephemeral", [1024, 32768, 60000])
def test_free_ports_wherever_outgoing_connections_begin(
    first_ephemeral: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bireme.server.ports._first_ephemeral", lambda: first_ephemeral)
    assert len({*astuple(free_ports())}) == 3


def test_a_taken_port_is_named_with_its_purpose(taken: int, ports: Ports) -> None:
    with pytest.raises(ServerError, match=f"port {taken}: .*grpc.*in use.*--grpc"):
        check_free(Ports(ports.http, taken, ports.metrics), "127.0.0.1")


def test_a_port_whose_connections_are_only_closing_is_free(ports: Ports) -> None:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", ports.http))
        listener.listen()
        with socket.create_connection(("127.0.0.1", ports.http)) as client:
            accepted, _ = listener.accept()
            accepted.close()  # the side that closes first is the one that keeps the port in TIME_WAIT
            assert client.recv(1) == b""
    check_free(ports, "127.0.0.1")


def test_zeros_become_free_ports_and_named_ones_stay(ports: Ports) -> None:
    chosen = choose(Ports(ports.http, 0, 0), "127.0.0.1")
    assert chosen.http == ports.http
    assert len({*astuple(chosen), 0}) == 4


@pytest.mark.parametrize("wrong", [Ports(8000, 8000, 8002), Ports(70000, 8001, 8002), Ports(-1, 8001, 8002)])
def test_impossible_ports_are_refused(wrong: Ports) -> None:
    with pytest.raises(ServerError, match=r"three different|not a port number"):
        choose(wrong, "127.0.0.1")


def test_an_address_of_another_machine_is_refused(ports: Ports) -> None:
    with pytest.raises(ServerError, match=r"on 192\.0\.2\.1"):
        check_free(ports, "192.0.2.1")


def test_a_host_name_becomes_its_ipv4_address() -> None:
    assert ipv4_address("localhost") == "127.0.0.1"
    assert ipv4_address("0.0.0.0") == "0.0.0.0"
    for host in ("::1", "nope nope"):
        with pytest.raises(ServerError, match="has no IPv4 address"):
            ipv4_address(host)
