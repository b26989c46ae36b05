"""Addresses that cannot be listened on are found before nodes start."""

import socket

import pytest

from qm.node.config.schema import API_PORT, PING_PORT
from qm.node.dev.addresses import conflict
from tests.cluster.harness import free_network


@pytest.mark.parametrize(
    ("kind", "port"), [(socket.SOCK_STREAM, API_PORT), (socket.SOCK_DGRAM, PING_PORT)]
)
def test_a_port_in_use_is_named(kind: socket.SocketKind, port: int) -> None:
    hosts = [f"{free_network()}.{number}" for number in (11, 12)]
    assert conflict(hosts) == ""
    with socket.socket(socket.AF_INET, kind) as other:
        other.bind((hosts[1], port))
        if kind is socket.SOCK_STREAM:
            other.listen()
        assert (
            conflict(hosts) == f"cannot listen on {hosts[1]}, port {port}: Address already in use"
        )
    assert conflict(hosts) == ""


def test_an_address_of_another_machine_is_named() -> None:
    assert conflict(["192.0.2.11"]).startswith("cannot listen on 192.0.2.11, port 1801: Cannot")
