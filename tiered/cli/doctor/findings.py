"""The findings of a check, in words, and the areas of checks.

Owns the values that pass between the areas and the examination.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tiered.config import ServeOptions
from tiered.peer.security import PeerSecurity


class Status(StrEnum):
    """How good it is. A warning costs speed or safety some day; a failure stops a broker, or loses data."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One check's result. `message` says what is, `advice` what to do about it; measurements end in their unit."""

    status: Status
    check: str
    message: str
    advice: str | None = None
    measured: Mapping[str, float | str | bool | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The input of an examination: the options of `serve`, and the broker that should be running, if any."""

    options: ServeOptions
    bootstrap: str | None
    may_write: bool
    security: PeerSecurity = field(default_factory=PeerSecurity)
    """How the broker's listener is entered."""
    http_url: str | None = None
    """The HTTP address of a broker of the cluster, where the environment names one for commands."""


Area = Callable[[Situation], Iterator[CheckResult]]
"""Yields findings as they come, so that one that hangs does not hide those before."""


def ok(check: str, message: str, **measured: float | str | bool | None) -> CheckResult:
    """Nothing to do."""
    return CheckResult(status=Status.OK, check=check, message=message, measured=measured)


def warn(check: str, message: str, advice: str, **measured: float | str | bool | None) -> CheckResult:
    """It works, and something should be done about it."""
    return CheckResult(status=Status.WARN, check=check, message=message, advice=advice, measured=measured)


def fail(check: str, message: str, advice: str, **measured: float | str | bool | None) -> CheckResult:
    """A broker would not start, would not go on, or would lose what it acknowledged."""
    return CheckResult(status=Status.FAIL, check=check, message=message, advice=advice, measured=measured)
