"""The kinds of resources that have configs, a row each: whose right it takes, how they are described, altered, listed.

Owns the table for DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources. Must never parse a
value: `config` does.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from tiered.broker.groups.values import MAX_GROUP_ID_BYTES
from tiered.broker.host import loggers
from tiered.broker.host.resource_configs import Kind
from tiered.broker.people.client_metrics import check_client_metrics
from tiered.config import ConfigChange, ConfigEntry, describe_client_metrics, describe_group, for_clients
from tiered.errors import InvalidRequest
from tiered.rules.security.acl import CLUSTER_NAME, Operation, ResourceType
from tiered.server.kafka.authorize import require
from tiered.server.kafka.dispatch import Context

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """The new configs of one resource. `is_whole`: a config that is not named is reset (AlterConfigs)."""

    name: str
    steps: Sequence[ConfigChange]
    is_whole: bool
    validate_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigResource:
    """One kind. The right is one on the resource itself, or on the cluster."""

    word: str
    right_on: ResourceType
    describe: Callable[[Context, str], Sequence[ConfigEntry]]
    alter: Callable[[Context, Alteration], Awaitable[None]]
    names: Callable[[Context], Iterable[str]]


def resource_for(context: Context, operation: Operation, code: int, name: str) -> ConfigResource:
    """The kind of this code, for somebody who may do this to a resource of it. Raises InvalidRequest, NotAuthorized."""
    found = CONFIG_RESOURCES.get(code)
    if found is None:
        kinds = ", ".join(f"{code} ({each.word})" for code, each in CONFIG_RESOURCES.items())
        raise InvalidRequest(f"resource type {code} has no configs here; those have: {kinds}")
    require(context, operation, found.right_on, CLUSTER_NAME if found.right_on is ResourceType.CLUSTER else name)
    return found


# Topics


def _describe_topic(context: Context, name: str) -> Sequence[ConfigEntry]:
    return for_clients(context.broker.admin.describe_topic(context.broker.topics.by_name(name)))


async def _alter_topic(context: Context, asked: Alteration) -> None:
    topic = context.broker.topics.by_name(asked.name)
    await context.broker.admin.alter_topic(
        topic, asked.steps, keep_others=not asked.is_whole, validate_only=asked.validate_only
    )


def _topics(context: Context) -> Iterable[str]:
    return (topic.name for topic in context.broker.topics)


# Brokers


def _check_broker(context: Context, name: str) -> None:
    """InvalidRequest unless it is this broker's id or empty (the cluster-wide default)."""
    if name not in ("", str(context.broker.broker_id)):
        raise InvalidRequest(f"broker {name} is not this one; ask broker {name} itself")


def _describe_broker(context: Context, name: str) -> Sequence[ConfigEntry]:
    _check_broker(context, name)
    return context.broker.admin.describe_broker(name)


async def _alter_broker(context: Context, asked: Alteration) -> None:
    _check_broker(context, asked.name)
    await context.broker.admin.alter_broker(
        asked.name, asked.steps, keep_others=not asked.is_whole, validate_only=asked.validate_only
    )


def _brokers(context: Context) -> Iterable[str]:
    return (str(row.broker_id) for row in context.broker.image.live())


# Loggers of this broker


def _check_logging_broker(context: Context, name: str) -> None:
    if not name:
        raise InvalidRequest("loggers are those of one broker: name it by its id")
    _check_broker(context, name)


def _describe_loggers(context: Context, name: str) -> Sequence[ConfigEntry]:
    _check_logging_broker(context, name)
    return loggers.describe_loggers()


async def _alter_loggers(context: Context, asked: Alteration) -> None:
    _check_logging_broker(context, asked.name)
    if asked.is_whole:
        raise InvalidRequest("loggers are altered one by one: send IncrementalAlterConfigs")
    loggers.alter_loggers(asked.steps, validate_only=asked.validate_only)


# Consumer groups, whether they are there or not


def _check_group(name: str) -> None:
    if not name or "\0" in name or len(name.encode("utf-8", "surrogatepass")) > MAX_GROUP_ID_BYTES:
        raise InvalidRequest(f"a group id has 1 to {MAX_GROUP_ID_BYTES} bytes of UTF-8, and none of them is 0")


def _describe_group(context: Context, name: str) -> Sequence[ConfigEntry]:
    _check_group(name)
    broker = context.broker
    return describe_group(broker.resource_configs.overrides(Kind.GROUP, name), broker.settings)


async def _alter_group(context: Context, asked: Alteration) -> None:
    _check_group(asked.name)
    await _alter_kind(context, Kind.GROUP, asked)


def _groups(context: Context) -> Iterable[str]:
    return context.broker.resource_configs.names(Kind.GROUP)


async def _alter_kind(context: Context, kind: Kind, asked: Alteration) -> None:
    await context.broker.admin.alter_resource(
        kind, asked.name, asked.steps, keep_others=not asked.is_whole, validate_only=asked.validate_only
    )


# Subscriptions to clients' metrics, whether they are there or not


def _describe_client_metrics(context: Context, name: str) -> Sequence[ConfigEntry]:
    check_client_metrics(name, {})
    return describe_client_metrics(context.broker.resource_configs.overrides(Kind.CLIENT_METRICS, name))


async def _alter_client_metrics(context: Context, asked: Alteration) -> None:
    check_client_metrics(asked.name, {})
    await _alter_kind(context, Kind.CLIENT_METRICS, asked)


def _client_metrics(context: Context) -> Iterable[str]:
    return context.broker.resource_configs.names(Kind.CLIENT_METRICS)


CONFIG_RESOURCES: dict[int, ConfigResource] = {
    TOPIC: ConfigResource(
        word="TOPIC", right_on=ResourceType.TOPIC, describe=_describe_topic, alter=_alter_topic, names=_topics
    ),
    BROKER: ConfigResource(
        word="BROKER", right_on=ResourceType.CLUSTER, describe=_describe_broker, alter=_alter_broker, names=_brokers
    ),
    BROKER_LOGGER: ConfigResource(
        word="BROKER_LOGGER",
        right_on=ResourceType.CLUSTER,
        describe=_describe_loggers,
        alter=_alter_loggers,
        names=_brokers,
    ),
    CLIENT_METRICS: ConfigResource(
        word="CLIENT_METRICS",
        right_on=ResourceType.CLUSTER,
        describe=_describe_client_metrics,
        alter=_alter_client_metrics,
        names=_client_metrics,
    ),
    GROUP: ConfigResource(
        word="GROUP", right_on=ResourceType.GROUP, describe=_describe_group, alter=_alter_group, names=_groups
    ),
}
