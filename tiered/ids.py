"""Names of things: the identifiers that every room shares.

Owns the types only. Never makes an identifier (randomness lives in `runtime`) and never does I/O.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple, NewType
from uuid import UUID

TopicId = NewType("TopicId", UUID)
BrokerId = NewType("BrokerId", int)
ProducerId = NewType("ProducerId", int)
LeaderEpoch = NewType("LeaderEpoch", int)

NO_LEADER_EPOCH = LeaderEpoch(-1)
NO_TOPIC_ID = TopicId(UUID(int=0))

_LEGAL_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}\Z")


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition of one incarnation of a topic: a recreated topic has another `topic_id`."""

    topic_id: TopicId
    partition: int


class InSyncReplica(NamedTuple):
    """A member of the ISR, and the registration with which it became one."""

    broker_id: int
    broker_epoch: int


class DataFolderOwner(NamedTuple):
    """The broker, and its cluster, that a data folder belongs to."""

    broker_id: int
    cluster_id: str


class KeptDisk(NamedTuple):
    """A data folder that a restore took along, as its broker's last registration left it (-1: not known)."""

    broker_id: int
    cluster_id: str
    broker_epoch: int

    @property
    def owner(self) -> DataFolderOwner:
        return DataFolderOwner(self.broker_id, self.cluster_id)


def is_legal_topic_name(name: str) -> bool:
    """True when Kafka would accept `name`: 1 to 249 of `[a-zA-Z0-9._-]`, and neither `.` nor `..`."""
    return _LEGAL_TOPIC_NAME.match(name) is not None and name not in (".", "..")
