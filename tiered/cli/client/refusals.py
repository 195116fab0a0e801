"""Why a broker refuses somebody, where its protocol has no room to say so: who asks, and what the broker is.

Owns these words. Asks only once something was refused, and must never change anything by it.
"""

import argparse

from tiered.errors import TieredError
from tiered.peer import BrokerError, Cluster
from tiered.peer.access_admin import describe_acls
from tiered.peer.answers import UnreadableTopic
from tiered.peer.security import PLAINTEXT, PeerSecurity
from tiered.peer.topic_admin import create_topics
from tiered.rules.security.acl import AclFilter, Operation, ResourceType
from tiered.rules.security.missing_right import missing_right
from tiered.wire.error_codes import (
    GROUP_AUTHORIZATION_FAILED,
    SECURITY_DISABLED,
    TOPIC_AUTHORIZATION_FAILED,
    reason,
)

_DESCRIBE_GROUPS = 15
SOMEBODY = "User:NAME"
_ONE_RULE = AclFilter(resource_type=ResourceType.TOPIC, resource_name="any", principal=SOMEBODY)
"""Asked for only to learn whether there are rules at all."""


def principal_of(security: PeerSecurity | None) -> str | None:
    """The principal of this client; None where only the broker knows it, as with a certificate or a token."""
    given = PLAINTEXT if security is None else security.security
    if given.sasl_username:
        return f"User:{given.sasl_username}"
    if given.protocol.uses_sasl or given.tls.certificate_chain is not None:
        return None
    return "User:ANONYMOUS"


def lacks(cluster: Cluster, operation: Operation, resource_type: ResourceType, name: str) -> str:
    """In words, that we have not this right, and what gives it."""
    return missing_right(principal_of(cluster.security) or SOMEBODY, operation, resource_type, name)


def topic_refusal(cluster: Cluster, operation: Operation, topic: str, code: int) -> str:
    """The reason for an error code of a topic's partition; where a right is missing, what gives it."""
    missing = lacks(cluster, operation, ResourceType.TOPIC, topic) if code == TOPIC_AUTHORIZATION_FAILED else None
    return reason(code, missing)


async def none_to_see(cluster: Cluster, what: str, make_one: str) -> str:
    """In place of an empty table: that there is nothing, that others may see more, or that a read replica was asked."""
    replica = await read_replica(cluster)
    if replica is not None:
        return f"no {what}: {replica}"
    try:
        await describe_acls(cluster, _ONE_RULE)
    except BrokerError as error:
        if error.code == SECURITY_DISABLED:
            return f"no {what}; {make_one}"
    except TieredError:
        pass
    return f"no {what} that {principal_of(cluster.security) or 'you'} may see"


async def explained(cluster: Cluster, arguments: argparse.Namespace, error: Exception) -> str:
    """The error, with what a refusal does not say of itself: that a read replica gave it, or who lacks what."""
    said = str(error)
    replica = await read_replica(cluster)
    if replica is not None and replica not in said:
        return f"{replica} ({said})"
    why = None if replica is not None else _why(cluster, arguments, error, said)
    return said if why is None else f"{said}; {why}"


def _why(cluster: Cluster, arguments: argparse.Namespace, error: Exception, said: str) -> str | None:
    if "AUTHORIZATION_FAILED" not in said or "lacks the right" in said:
        return None
    cause = error if isinstance(error, BrokerError) else error.__cause__
    if isinstance(cause, UnreadableTopic):
        return lacks(cluster, Operation.READ, ResourceType.TOPIC, cause.topic)
    code = cause.code if isinstance(cause, BrokerError) else None
    command = arguments.parser.prog.removeprefix("tiered ")
    topics = getattr(arguments, "topics", None) or [getattr(arguments, "topic", None)]
    if code == GROUP_AUTHORIZATION_FAILED and getattr(arguments, "group", None):
        return lacks(cluster, Operation.READ, ResourceType.GROUP, arguments.group)
    if code == TOPIC_AUTHORIZATION_FAILED and command in ("consume", "produce") and len(topics) == 1:
        operation = Operation.READ if command == "consume" else Operation.WRITE
        return lacks(cluster, operation, ResourceType.TOPIC, topics[0])
    return f"the broker takes you for {principal_of(cluster.security) or 'whom your login stands for'}"


async def read_replica(cluster: Cluster) -> str | None:
    """A read replica's description of itself; None for any other broker."""
    try:
        if await cluster.serves(_DESCRIBE_GROUPS):
            return None
        # Nothing is looked at there, nor made: this is the request whose refusal has words.
        results = await create_topics(cluster, ["refused"], configs={}, validate_only=True)
    except TieredError:
        return None
    return next((each.error_message for each in results if each.error_message), None)
