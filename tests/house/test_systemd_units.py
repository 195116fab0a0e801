"""The services of a machine run as users without rights, in one sandbox."""

from collections.abc import Iterator
from pathlib import Path

import pytest

UNITS = Path(__file__).resolve().parents[2] / "deploy/systemd"
SERVICES = sorted(path.name for path in UNITS.glob("*.service"))
SANDBOX = {
    "CapabilityBoundingSet=",
    "LockPersonality=yes",
    "NoNewPrivileges=yes",
    "PrivateDevices=yes",
    "PrivateTmp=yes",
    "ProtectClock=yes",
    "ProtectControlGroups=yes",
    "ProtectHome=yes",
    "ProtectHostname=yes",
    "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelTunables=yes",
    "ProtectSystem=strict",
    "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "SystemCallArchitectures=native",
    "SystemCallFilter=@system-service",
    "UMask=0077",
}
WITH_ALL_RIGHTS = {"ExecStartPre=+/usr/local/sbin/tiered-prepare all"}
"""Mounts the volume and installs the release."""


def lines(service: str) -> Iterator[str]:
    return (line for line in (UNITS / service).read_text().splitlines() if line and line[0] not in "#[")


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_has_a_user_and_the_sandbox(service: str) -> None:
    directives = set(lines(service))
    assert directives & {"User=tiered", "DynamicUser=yes"}
    assert directives >= SANDBOX


@pytest.mark.parametrize("service", SERVICES)
def test_no_command_escapes_the_sandbox(service: str) -> None:
    commands = {line for line in lines(service) if line.startswith("Exec")}
    assert {line for line in commands if line.partition("=")[2][0] in "+!"} <= WITH_ALL_RIGHTS


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_writes_its_own_folders_alone(service: str) -> None:
    writable = {line for line in lines(service) if line.startswith(("ReadWritePaths", "RuntimeDirectory="))}
    assert writable == {
        "tiered.service": {"ReadWritePaths=/var/lib/tiered /var/log/tiered"},
        "tiered-metrics.service": set(),
        "tiered-secrets.service": {"RuntimeDirectory=tiered"},
    }.get(service)
