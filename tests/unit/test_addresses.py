"""Addresses in words."""

import pytest

from tiered.cli.brokers import commands
from tiered.config.addresses import host_and_port


def test_an_address_with_its_port_can_be_given_to_a_client_again() -> None:
    assert host_and_port("db.example", 9092) == "db.example:9092"
    assert host_and_port("::1", 22346) == "[::1]:22346"


def test_the_list_of_brokers_has_brackets_around_ipv6(capsys: pytest.CaptureFixture[str]) -> None:
    broker = {
        "broker": 1, "host": "::1", "port": 22346, "rack": None, "controller": True, "in_service": True,
        "leaders": 0, "replicas": 0, "not_in_sync": 0, "unknown": {}, "version": None, "local_bytes": None,
        "disk_usable_bytes": None,
    }  # fmt: skip
    commands._show_list([broker])
    assert "[::1]:22346" in capsys.readouterr().out
