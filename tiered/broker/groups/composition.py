"""The group coordinator of one broker, put together.

Owns the order in which its parts are made, and the ties from below to the coordinator: it is made last. Must never
decide anything.
"""

from collections.abc import Iterable

from tiered.broker.context import BrokerContext
from tiered.broker.groups.checkpoints import GroupCheckpointWriter
from tiered.broker.groups.commit_writer import OffsetCommits
from tiered.broker.groups.committed_offsets import Offsets
from tiered.broker.groups.coordinator import GroupCoordinator
from tiered.broker.groups.group import Group
from tiered.broker.groups.memory import GroupMemory
from tiered.broker.groups.offset_expiry import OffsetExpiry
from tiered.broker.groups.offsets_topic import OffsetsTopic
from tiered.broker.groups.slot_balance import SlotBalance
from tiered.broker.groups.slots import HeldSlots
from tiered.broker.host.resource_configs import ResourceConfigs
from tiered.broker.partitions.topics import Topics
from tiered.broker.security.access import Access
from tiered.broker.view.image import ClusterImage
from tiered.meta.coordinator_slots import SlotRow


def group_coordinator(
    *,
    context: BrokerContext,
    topics: Topics,
    image: ClusterImage,
    access: Access,
    resource_configs: ResourceConfigs,
    group_checkpoints: GroupCheckpointWriter,
    slots: HeldSlots,
) -> GroupCoordinator:
    """Not started yet."""

    def slots_learned(rows: Iterable[SlotRow]) -> None:
        made.slots_changed(rows)

    def find_group(group_id: str) -> Group | None:
        return made.find(group_id)

    def forget_group(group_id: str) -> None:
        made.forget(group_id)

    memory = GroupMemory(lambda: context.settings.groups.tiered_group_memory_bytes)
    offsets_topic = OffsetsTopic(context=context, topics=topics, slots=slots, memory=memory)
    commits = OffsetCommits(
        context=context,
        slots=slots,
        group_checkpoints=group_checkpoints,
        offsets_topic=offsets_topic,
        slots_learned=slots_learned,
    )
    expiry = OffsetExpiry(
        context=context, topics=topics, slots=slots, commits=commits, find_group=find_group, forget_group=forget_group
    )
    made = GroupCoordinator(
        context=context,
        topics=topics,
        image=image,
        access=access,
        resource_configs=resource_configs,
        group_checkpoints=group_checkpoints,
        memory=memory,
        slots=slots,
        balance=SlotBalance(context=context, image=image),
        offsets=Offsets(context=context, slots=slots, commits=commits, expiry=expiry),
        offsets_topic=offsets_topic,
    )
    return made
