"""Asks whether a request's principal may do what it asks for, and says what is missing.

Owns the words of a refusal: the right, never anything of the resource. Every handler calls it before it looks
whether the resource is there. Must never decide by itself: `broker.security.access` does. Which API needs which right
stands in docs/security-rights.md. `tests/components/security/test_rights_of_every_api.py` holds each of them to it.
"""

from uuid import UUID

from tiered.broker.partitions.topics import Topic
from tiered.broker.security.access import Rights
from tiered.errors import (
    ClusterNotAuthorized,
    GroupNotAuthorized,
    NotAuthorized,
    TopicNotAuthorized,
    TransactionalIdNotAuthorized,
)
from tiered.rules.security.acl import CLUSTER_NAME, SUPPORTED, Operation, ResourceType
from tiered.rules.security.authorization import EVERYTHING, NameScope, bits_of
from tiered.rules.security.missing_right import missing_right
from tiered.server.kafka.dispatch import Context

NOT_ASKED = -(1 << 31)
"""authorized_operations that a request did not ask for."""

_ERRORS: dict[ResourceType, type[NotAuthorized]] = {
    ResourceType.TOPIC: TopicNotAuthorized,
    ResourceType.GROUP: GroupNotAuthorized,
    ResourceType.CLUSTER: ClusterNotAuthorized,
    ResourceType.TRANSACTIONAL_ID: TransactionalIdNotAuthorized,
}


def rights_of(context: Context) -> Rights | None:
    """The rights of the request's principal; None where authorization is off and every client may do everything."""
    access = context.broker.access
    if not access.is_on:
        return None
    connection = context.connection
    return access.rights(connection.principal, connection.host)


def may(context: Context, operation: Operation, resource_type: ResourceType, name: str) -> bool:
    """For what is left out, not refused."""
    rights = rights_of(context)
    return rights is None or rights.by_name(operation, resource_type)[name]


def scope_of(context: Context, operation: Operation, resource_type: ResourceType) -> NameScope:
    """Where a list has to look. `may` is still to be asked of what is there."""
    rights = rights_of(context)
    return EVERYTHING if rights is None else rights.scope(operation, resource_type)


def is_broker(context: Context) -> bool:
    """Whether this is one of the cluster's brokers: by who it is where brokers prove that, else by the listener that it
    came by, unless there are rights."""
    broker, connection = context.broker, context.connection
    if broker.authentication.tells_brokers:
        return broker.authentication.is_broker(connection.principal)
    return rights_of(context) is None and connection.listener.name == broker.options.inter_broker.name


def may_replicate(context: Context) -> bool:
    """Whether this is one of the cluster's brokers, or has their rights."""
    rights = rights_of(context)
    return is_broker(context) or (
        rights is not None and rights.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    )


def require(context: Context, operation: Operation, resource_type: ResourceType, name: str) -> None:
    """Returns when the principal may do it. Raises the NotAuthorized of the resource."""
    rights = rights_of(context)
    if rights is not None and not rights.may(operation, resource_type, name):
        raise refusal(rights, operation, resource_type, name)


def require_topic(context: Context, operation: Operation, name: str) -> None:
    require(context, operation, ResourceType.TOPIC, name)


def require_topic_by_id(context: Context, operation: Operation, topic: Topic) -> None:
    """For a client that knows the id: the refusal does not tell the name. Raises TopicNotAuthorized."""
    rights = rights_of(context)
    if rights is not None and not rights.may(operation, ResourceType.TOPIC, topic.name):
        raise refusal(rights, operation, ResourceType.TOPIC, str(topic.topic_id), is_id=True)


def require_group(context: Context, operation: Operation, group_id: str) -> None:
    require(context, operation, ResourceType.GROUP, group_id)


def require_cluster(context: Context, operation: Operation) -> None:
    require(context, operation, ResourceType.CLUSTER, CLUSTER_NAME)


def topic_refusal(
    context: Context, operation: Operation, name: str | None, topic_id: UUID | None, rights: Rights
) -> NotAuthorized | None:
    """The refusal of an operation on a topic; None when it is allowed, or when no topic has this id."""
    if topic_id is not None:
        topic = context.broker.topics.find_id(topic_id)
        if topic is None or rights.may(operation, ResourceType.TOPIC, topic.name):
            return None
        return refusal(rights, operation, ResourceType.TOPIC, str(topic_id), is_id=True)
    if rights.may(operation, ResourceType.TOPIC, name or ""):
        return None
    return refusal(rights, operation, ResourceType.TOPIC, name or "")


def refusal(
    rights: Rights, operation: Operation, resource_type: ResourceType, name: str, *, is_id: bool = False
) -> NotAuthorized:
    """The error that says who lacks which right, and the command that gives it; none for a name that is an id."""
    said = missing_right(rights.principal, operation, resource_type, name, is_id=is_id)
    return _ERRORS.get(resource_type, ClusterNotAuthorized)(f"not allowed: {said}")


def authorized_operations(
    context: Context, resource_type: ResourceType, name: str = CLUSTER_NAME, *, asked: bool
) -> int:
    """The bits of what the principal may do; where authorization is off, of all that can be done."""
    if not asked or context.broker.options.read_only:
        return NOT_ASKED
    rights = rights_of(context)
    return bits_of(SUPPORTED[resource_type]) if rights is None else rights.bits(resource_type, name)
