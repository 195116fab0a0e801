"""The lines of the audit log for an administrative request: resources, outcomes, and no secret.

An API that changes something names in its row the function that describes it. A request is logged when its answer is
known, or when its client went away before. Must never look at a value that may be secret: of settings and credentials
only names are told.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from tiered.broker.security.audit import ALLOWED, DENIED, FAILED, MAX_NAME, UNKNOWN, AuditLog
from tiered.server.kafka.transport.connection import Connection
from tiered.wire.error_codes import AUTHORIZATION_FAILED, NONE

T = TypeVar("T")

MAX_LINES_A_REQUEST = 1_000
"""Beyond it many resources share a line: none that was changed may hide behind others."""
MAX_ITEMS = 100
"""Of one kind in one line."""


class AuditEntry(NamedTuple):
    """The outcome for one resource of a request. The code is None while there is no answer."""

    resource: str
    code: int | None
    details: Mapping[str, object] = {}


Tell = Callable[[Any, Any], Iterable[AuditEntry]]
"""(request, answer or None) -> what it was about"""


def noted(audit: AuditLog, connection: Connection, tell: Tell, name: str, request: Any, answer: Any) -> Iterator[None]:
    """Writes down an administrative request, a piece with each step; `answer` is None when nobody waited for it."""
    if not audit.is_on:
        return
    who = {"principal": str(connection.principal or ""), "host": connection.host, "via": "kafka", "action": name}
    shared: dict[str, object] = {"validate_only": True} if getattr(request, "validate_only", False) else {}
    together: dict[str, list[str]] = {ALLOWED: [], UNKNOWN: []}
    for number, entry in enumerate(tell(request, answer)):
        yield
        outcome = _outcome(entry.code)
        if number >= MAX_LINES_A_REQUEST and outcome in together:
            together[outcome].append(entry.resource[:MAX_NAME])
            if len(together[outcome]) == MAX_ITEMS:
                _note_together(audit, who, outcome, together, shared)
            continue
        told = {} if entry.code in (None, NONE) else {"error_code": entry.code}
        # Of what was refused the log itself keeps to a bound.
        audit.note(**who, outcome=outcome, resource=entry.resource, details={**entry.details, **told, **shared})
    for outcome in together:
        _note_together(audit, who, outcome, together, shared)


def _note_together(
    audit: AuditLog,
    who: Mapping[str, str],
    outcome: str,
    together: dict[str, list[str]],
    shared: Mapping[str, object],
) -> None:
    resources, together[outcome] = together[outcome], []
    if resources:
        audit.note(
            **who, outcome=outcome, resource=f"{len(resources)} more", details={"resources": resources, **shared}
        )


def _outcome(code: int | None) -> str:
    if code is None:
        return UNKNOWN
    if code == NONE:
        return ALLOWED
    return DENIED if code in AUTHORIZATION_FAILED else FAILED


def aligned(items: Iterable[T], answers: Iterable[Any] | None) -> Iterator[tuple[T, int | None]]:
    """The items of a request with their codes."""
    if answers is None:
        return ((item, None) for item in items)
    return zip(items, (int(answer.error_code) for answer in answers), strict=False)


def summed(codes: Iterable[int]) -> tuple[int, dict[str, object]]:
    """(one code for all of them, what else is to be told). When anything was done, that is what the line says: one that
    fails beside it must not make a refusal of it, for of refusals not all have lines."""
    found = list(codes)
    failed = next((code for code in found if code != NONE), NONE)
    if failed != NONE and NONE in found:
        return NONE, {"partly_failed": failed}
    return failed, {}


def codes_of(partitions: Iterable[Any]) -> Iterable[int]:
    return (int(each.error_code) for each in partitions)


def word(words: Any, value: int) -> str:
    return words(value).name if value in list(words) else str(value)
