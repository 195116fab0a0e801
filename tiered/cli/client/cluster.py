"""The questions of commands to a cluster: topics, offsets, and leaders. All go through `tiered.peer`.

Owns the words for a broker that cannot be reached. Must never know a command.
"""

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from tiered.cli.client.command_config import command_security
from tiered.cli.client.refusals import explained, lacks
from tiered.cli.client.wrong_port import wanted_login, what_listens, without_address
from tiered.cli.failure import EXIT_OK, CommandFailed, UsageError
from tiered.cli.names import nearest_names
from tiered.config.addresses import host_and_port
from tiered.errors import InvalidConfig, RequestTimedOut, TieredError
from tiered.peer import (
    Cluster,
    ConnectionLost,
    CorruptAnswer,
    TopicMetadata,
    parse_bootstrap,
)
from tiered.peer.security import NotLetIn, PeerSecurity
from tiered.rules.security.acl import Operation, ResourceType
from tiered.runtime import SystemClock
from tiered.wire.error_codes import (
    INVALID_TOPIC_EXCEPTION,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    is_retriable,
    reason,
)

EARLIEST_LOCAL, LATEST_TIERED = -4, -5
REACH_TIMEOUT_S = 10.0
CREATE_TIMEOUT_MS = 15_000.0
CREATE_RETRY_MS = 100.0

IS_IT_RUNNING = (
    "is the broker running? Start it with `tiered serve`, or name another with --bootstrap HOST:PORT or "
    "TIERED_BOOTSTRAP"
)

Act = Callable[[Cluster], Awaitable[int | None]]
"""What a command does with the cluster; gives its exit code, None where it is done."""


def chosen_partitions(topic: TopicMetadata, numbers: Sequence[int] | None) -> list[int]:
    """`numbers` in order and once each; all partitions when that is None. Raises UsageError for a missing one."""
    there = [each.partition for each in topic.partitions]
    for number in numbers or ():
        if number not in there:
            has = f"0 to {len(there) - 1}" if len(there) > 1 else "only partition 0"
            raise UsageError(f"{topic.name} has no partition {number}: it has {has}")
    return there if numbers is None else sorted(set(numbers))


def with_cluster(
    command: Callable[[argparse.Namespace, Cluster], Awaitable[int | None]],
) -> Callable[[argparse.Namespace], int]:
    """The command for `main`: one that has nothing to refuse before it asks the cluster at `--bootstrap`."""
    return lambda arguments: run_with_cluster(arguments, partial(command, arguments))


def run_with_cluster(arguments: argparse.Namespace, act: Act) -> int:
    """The result of `act` for the cluster at `--bootstrap`. Raises CommandFailed when no broker can be reached."""
    bootstrap: str = arguments.bootstrap
    try:
        addresses = parse_bootstrap(bootstrap)
    except InvalidConfig as error:
        raise UsageError(f"--bootstrap {bootstrap} is not allowed: {error}") from error
    return asyncio.run(_run(arguments, addresses, act, command_security(arguments.command_config))) or EXIT_OK


async def _run(
    arguments: argparse.Namespace, addresses: Sequence[tuple[str, int]], act: Act, security: PeerSecurity
) -> int | None:
    bootstrap = ",".join(host_and_port(*address) for address in addresses)
    async with Cluster(addresses, security=security) as cluster:
        # Asked by itself, for later calls are patient: a broker that is not there should be said at once.
        try:
            async with asyncio.timeout(REACH_TIMEOUT_S):
                await cluster.reach()
        except (NotLetIn, InvalidConfig) as error:
            raise CommandFailed(str(error)) from error
        except (ConnectionLost, RequestTimedOut, TimeoutError, CorruptAnswer) as error:
            if (nameless := await without_address(addresses)) is not None:
                raise CommandFailed(f"cannot reach {bootstrap}: {nameless}; check --bootstrap HOST:PORT") from error
            is_plain = not security.security.protocol.uses_tls
            if is_plain and (wrong := await what_listens(addresses)) is not None:
                raise CommandFailed(wrong) from error
            if isinstance(error, CorruptAnswer):
                raise CommandFailed(
                    f"what answers at {bootstrap} is no Kafka broker: check --bootstrap ({error})"
                ) from error
            if not security.security.protocol.uses_sasl and (wanted := await wanted_login(addresses, security)):
                raise CommandFailed(wanted) from error
            if not is_plain:
                raise CommandFailed(
                    f"cannot reach {bootstrap} with TLS, as --command-config says: {str(error) or 'no answer in time'}"
                ) from error
            raise CommandFailed(f"cannot reach {bootstrap}: {IS_IT_RUNNING}") from error
        try:
            return await act(cluster)
        except (ConnectionLost, RequestTimedOut) as error:
            raise CommandFailed(f"the broker does not answer any more: {error}") from error
        except (CommandFailed, TieredError) as error:
            if (said := await explained(cluster, arguments, error)) == str(error):
                raise
            raise CommandFailed(said) from error


async def all_topics(cluster: Cluster) -> list[TopicMetadata]:
    """Every topic, by name. Raises CommandFailed."""
    found = (await cluster.metadata()).topics
    for each in found.values():
        if each.error_code != NONE:
            raise CommandFailed(f"{each.name}: {reason(each.error_code, None)}")
    return [found[name] for name in sorted(found)]


async def existing_topic(cluster: Cluster, name: str) -> TopicMetadata:
    """The topic of this name; never creates it. Raises CommandFailed when there is none."""
    found = (await cluster.metadata([name])).topics.get(name)
    if found is None or found.error_code == UNKNOWN_TOPIC_OR_PARTITION:
        raise CommandFailed(f"{await missing_topic(cluster, name)}, `tiered topics create {name}` makes it")
    if found.error_code != NONE:
        told = None
        if found.error_code == TOPIC_AUTHORIZATION_FAILED:
            told = lacks(cluster, Operation.DESCRIBE, ResourceType.TOPIC, name)
        raise CommandFailed(f"{name}: {reason(found.error_code, told)}")
    return found


async def missing_topic(cluster: Cluster, name: str) -> str:
    """The message that there is no such topic, with similar names."""
    there = (await cluster.metadata()).topics
    return f"there is no topic {name}{nearest_names(name, there)}; `tiered topics list` shows those that exist"


async def created_topic(cluster: Cluster, name: str) -> TopicMetadata:
    """The topic of this name, which the broker may create now. Raises CommandFailed when it does not within 15 s."""
    clock = SystemClock()
    deadline_ms = clock.monotonic_ms() + CREATE_TIMEOUT_MS
    while True:
        described = (await cluster.metadata([name], may_create=True)).topics.get(name)
        code = UNKNOWN_TOPIC_OR_PARTITION if described is None else described.error_code
        if described is not None and code == NONE and all(each.leader_id >= 0 for each in described.partitions):
            return described
        if code == TOPIC_AUTHORIZATION_FAILED:
            now = (await cluster.metadata([name])).topics.get(name)
            is_missing = now is None or now.error_code == UNKNOWN_TOPIC_OR_PARTITION
            missing = Operation.CREATE if is_missing else Operation.WRITE
            raise CommandFailed(f"{name}: {reason(code, lacks(cluster, missing, ResourceType.TOPIC, name))}")
        if code == INVALID_TOPIC_EXCEPTION or (code != NONE and not is_retriable(code)):
            raise CommandFailed(f"{name}: {reason(code, None)}")
        if clock.monotonic_ms() > deadline_ms:
            if code == UNKNOWN_TOPIC_OR_PARTITION:
                raise CommandFailed(
                    f"there is no topic {name}, and the broker creates none by itself (auto.create.topics.enable); "
                    f"`tiered topics create {name}` does"
                )
            raise CommandFailed(f"{name}: {reason(code, None) if code else 'a partition has no leader'}")
        await asyncio.sleep(CREATE_RETRY_MS / 1000)
