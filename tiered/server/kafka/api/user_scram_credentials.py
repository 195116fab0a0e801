"""DescribeUserScramCredentials (key 50) and AlterUserScramCredentials (key 51), version 0 each (KIP-554).

Clients salt passwords themselves, so that no password crosses the network. The changes of one user are made together or
not at all; those of all users that are right are committed at once, and count on this broker when it answers, on others
in a moment. Iterations are 4096 to 16384 as with Kafka, and a user may have one credential for each of the two
mechanisms. PLAIN is checked by the same credentials. Needs ALTER, or DESCRIBE, on the cluster.
"""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeGuard

from tiered.errors import InvalidRequest, TieredError
from tiered.rules.security.acl import Operation
from tiered.rules.security.sasl.failures import (
    DuplicateUser,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
    UserNotFound,
)
from tiered.rules.security.sasl.mechanism import ScramMechanism
from tiered.rules.security.sasl.scram import CredentialChange, check_iterations, check_user_name, credential_of
from tiered.server.kafka.audited import AuditEntry
from tiered.server.kafka.authorize import require_cluster
from tiered.server.kafka.dispatch import Api, Context, in_turns
from tiered.server.kafka.error_mapping import NONE, error_code

if TYPE_CHECKING:
    from kafka_messages import alter_user_scram_credentials, describe_user_scram_credentials
    from kafka_messages.alter_user_scram_credentials import ScramCredentialDeletion, ScramCredentialUpsertion

    Change = ScramCredentialDeletion | ScramCredentialUpsertion

MAX_CHANGES = 1000
MAX_SALT_BYTES = 256
_BY_CODE = {each.code: each for each in ScramMechanism}


async def describe(
    context: Context, request: "describe_user_scram_credentials.Request", reply: "describe_user_scram_credentials.Reply"
) -> "describe_user_scram_credentials.Response":
    try:
        require_cluster(context, Operation.DESCRIBE)
    except TieredError as error:
        return reply.DescribeUserScramCredentialsResponse(
            throttle_time=0, error_code=error_code(error), error_message=str(error), results=[]
        )
    users = context.broker.credentials.users()
    asked = Counter(each.name for each in request.users or ())
    results = []
    async for name in in_turns(list(asked) or sorted(users)):
        wrong: TieredError | None = None
        if asked[name] > 1:
            wrong = DuplicateUser(f"user {name[:80]!r} stands twice in the request")
        elif name not in users:
            wrong = UserNotFound(f"user {name[:80]!r} has no credentials")
        results.append(
            reply.DescribeUserScramCredentialsResult(
                user=name,
                error_code=NONE if wrong is None else error_code(wrong),
                error_message=None if wrong is None else str(wrong),
                credential_infos=[]
                if wrong is not None
                else [
                    reply.CredentialInfo(mechanism=mechanism.code, iterations=kept.iterations)
                    for mechanism, kept in users[name].items()
                ],
            )
        )
    return reply.DescribeUserScramCredentialsResponse(
        throttle_time=0, error_code=NONE, error_message=None, results=results
    )


async def alter(
    context: Context, request: "alter_user_scram_credentials.Request", reply: "alter_user_scram_credentials.Reply"
) -> "alter_user_scram_credentials.Response":
    wanted: list[Change] = [*request.deletions, *request.upsertions]
    names = {change.name: None async for change in in_turns(wanted)}
    errors: dict[str, TieredError] = {}
    try:
        require_cluster(context, Operation.ALTER)
        if len(wanted) > MAX_CHANGES:
            raise InvalidRequest(f"{len(wanted)} changes in one request; {MAX_CHANGES} are possible")
        changes = _checked(request, errors)
        if changes:
            for missing in await context.broker.credentials.alter(changes):
                errors[missing] = UserNotFound("the user has no such credential to delete")
    except TieredError as error:
        refused = error.without_frames()
        errors = {name: errors.get(name, refused) async for name in in_turns(names)}
    return reply.AlterUserScramCredentialsResponse(
        throttle_time=0,
        results=[
            reply.AlterUserScramCredentialsResult(
                user=name,
                error_code=error_code(errors[name]) if name in errors else NONE,
                error_message=str(errors[name]) if name in errors else None,
            )
            async for name in in_turns(names)
        ],
    )


def _checked(request: "alter_user_scram_credentials.Request", errors: dict[str, TieredError]) -> list[CredentialChange]:
    """The changes of users whose changes are all right; `errors` gets what is wrong with others."""
    found: list[CredentialChange] = []
    seen: set[tuple[str, int]] = set()
    wanted: list[Change] = [*request.deletions, *request.upsertions]
    for item in wanted:
        try:
            if (item.name, int(item.mechanism)) in seen:
                raise DuplicateUser("one credential of the user is to be changed twice")
            seen.add((item.name, int(item.mechanism)))
            found.append(_change(item))
        except TieredError as error:
            errors.setdefault(item.name, error.without_frames())
    return list(_without(found, errors))


def _without(changes: Iterable[CredentialChange], errors: dict[str, TieredError]) -> Iterable[CredentialChange]:
    return (each for each in changes if each.user_name not in errors)


def _is_set(item: "Change") -> "TypeGuard[ScramCredentialUpsertion]":
    return hasattr(item, "salted_password")


def _change(
    item: "Change",
) -> CredentialChange:
    mechanism = _BY_CODE.get(int(item.mechanism))
    if mechanism is None:
        known = " and ".join(f"{each} ({each.code})" for each in ScramMechanism)
        raise UnsupportedSaslMechanism(f"mechanism {int(item.mechanism)} is unknown; {known} are known")
    check_user_name(item.name)
    if not _is_set(item):
        return CredentialChange(user_name=item.name, mechanism=mechanism, credential=None)
    check_iterations(item.iterations)
    if not 0 < len(item.salt) <= MAX_SALT_BYTES or len(item.salted_password) != mechanism.digest_bytes:
        raise UnacceptableCredential(
            f"a salt has 1 to {MAX_SALT_BYTES} bytes, and a salted password of {mechanism} {mechanism.digest_bytes}"
        )
    kept = credential_of(mechanism, item.salted_password, item.salt, item.iterations)
    return CredentialChange(user_name=item.name, mechanism=mechanism, credential=kept)


def _told(
    request: "alter_user_scram_credentials.Request", answer: "alter_user_scram_credentials.Response | None"
) -> Iterable[AuditEntry]:
    codes = {} if answer is None else {each.user: int(each.error_code) for each in answer.results}
    for what, changes in (("deleted", request.deletions), ("set", request.upsertions)):
        for each in changes:
            code = None if answer is None else codes.get(each.name, NONE)
            yield AuditEntry(f"USER:{each.name}", code, {"credential": what, "mechanism": each.mechanism})


DESCRIBE_API = Api(50, "DescribeUserScramCredentials", (0, 0), rights="DESCRIBE on the cluster", handle=describe)
ALTER_API = Api(51, "AlterUserScramCredentials", (0, 0), rights="ALTER on the cluster", handle=alter, audit=_told)
