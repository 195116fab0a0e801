"""What each broker alone knows of itself: its version, over HTTP, and the use of its disk, over the Kafka protocol.

Owns the reasons in place of what a broker does not say. Must never fail because one broker is away.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tiered.cli.arguments import Unnamed
from tiered.cli.client.http_api import HttpApi
from tiered.cli.failure import CommandFailed, UsageError
from tiered.errors import TieredError
from tiered.peer import Cluster
from tiered.peer.broker_admin import DescribedBroker, DescribedCluster, LocalDisk, describe_disk

DISK_TIMEOUT_S = 5.0
OUT_OF_SERVICE = "it is out of service"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnFacts:
    """The facts of one broker; `unknown` has the reason for each of `version` and `disk` that is None."""

    version: str | None
    disk: LocalDisk | None
    unknown: Mapping[str, str]


async def own_facts(
    cluster: Cluster, described: DescribedCluster, http_url: str, command_config: str | None
) -> dict[int, OwnFacts]:
    """The facts of every broker, by id. `http_url` is the address of any broker of the cluster."""
    versions, disks = await asyncio.gather(
        asyncio.to_thread(broker_versions, described, http_url, command_config),
        _disks(cluster, described.brokers.values()),
    )
    return {broker_id: _facts(versions[broker_id], disks[broker_id]) for broker_id in described.brokers}


def _facts(version: str | CommandFailed, disk: LocalDisk | CommandFailed) -> OwnFacts:
    facts = {"version": version, "disk": disk}
    return OwnFacts(
        version=None if isinstance(version, CommandFailed) else version,
        disk=None if isinstance(disk, CommandFailed) else disk,
        unknown={name: str(fact) for name, fact in facts.items() if isinstance(fact, CommandFailed)},
    )


def broker_versions(
    described: DescribedCluster, http_url: str, command_config: str | None = None
) -> dict[int, str | CommandFailed]:
    """The version of every broker, by id, or why it is not known."""
    try:
        answer = HttpApi.beside_kafka(http_url, command_config).cluster()
        if answer.get("cluster_id") != described.cluster_id:
            raise CommandFailed(f"the broker at {http_url} belongs to another cluster; --http URL names one of this")
    except (CommandFailed, UsageError) as error:
        named = CommandFailed(f"nothing at {http_url} says it; --http names a broker's HTTP address")
        reason = named if isinstance(http_url, Unnamed) else CommandFailed(str(error))
        return dict.fromkeys(described.brokers, reason)
    rows = {row.get("broker_id"): row for row in answer["brokers"]}
    return {broker_id: _version(rows.get(broker_id, {})) for broker_id in described.brokers}


def _version(row: Mapping[str, object]) -> str | CommandFailed:
    if isinstance(version := row.get("version"), str):
        return version
    return CommandFailed(OUT_OF_SERVICE if row.get("state") == "fenced" else "it does not answer over HTTP")


async def _disks(cluster: Cluster, brokers: Iterable[DescribedBroker]) -> dict[int, LocalDisk | CommandFailed]:
    known = list(brokers)
    return dict(
        zip(
            (broker.broker_id for broker in known),
            await asyncio.gather(*(_disk(cluster, broker) for broker in known)),
            strict=True,
        )
    )


async def _disk(cluster: Cluster, broker: DescribedBroker) -> LocalDisk | CommandFailed:
    if broker.is_fenced:
        return CommandFailed(OUT_OF_SERVICE)
    try:
        async with asyncio.timeout(DISK_TIMEOUT_S):
            return await describe_disk(cluster, broker.broker_id)
    except TimeoutError:
        return CommandFailed(f"it does not answer within {DISK_TIMEOUT_S:g} s")
    except TieredError as error:
        return CommandFailed(str(error))
