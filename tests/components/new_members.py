"""Members of KIP-848 groups by hand: ConsumerGroupHeartbeat field by field, and what else such members send."""

from typing import Any, Self
from uuid import UUID

from tests.broker_process import BrokerProcess
from tests.clients.raw import KafkaDoor, RawConnection
from tiered.runtime import new_uuid
from tiered.wire import messages

HEARTBEAT, DESCRIBE, CREATE_TOPICS, CREATE_PARTITIONS, DELETE_TOPICS, METADATA = 68, 69, 19, 37, 20, 3
COMMIT, FETCH_OFFSETS = 8, 9


class NewMember:
    """It does only what it is told: `owned` changes when `obey` is called, and is sent when `tell` is asked for."""

    def __init__(
        self,
        broker: KafkaDoor,
        group_id: str,
        *,
        version: int = 1,
        instance_id: str | None = None,
        topics: list[str] | None = None,
        pattern: str | None = None,
        assignor: str | None = None,
        rebalance_timeout_ms: int = 10_000,
    ) -> None:
        self.broker = broker
        self.group_id = group_id
        self.version = version
        self.instance_id = instance_id
        self.topics = topics
        self.pattern = pattern
        self.assignor = assignor
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.member_id = str(new_uuid())
        self.epoch = 0
        self.assigned: dict[UUID, set[int]] = {}
        self.owned: dict[UUID, set[int]] = {}
        self.connection = RawConnection(broker, timeout_s=60.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def ask(self, **changes: Any) -> Any:
        """The answer to a heartbeat that says nothing but ids and epoch, and `changes`."""
        namespace = messages.request(HEARTBEAT, self.version)
        if isinstance(changes.get("topic_partitions"), dict):
            changes["topic_partitions"] = [
                namespace.TopicPartitions(topic_id=topic_id, partitions=sorted(held))
                for topic_id, held in changes["topic_partitions"].items()
            ]
        fields: dict[str, Any] = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance_id,
            "topic_partitions": None,
        }
        request = namespace.ConsumerGroupHeartbeatRequest(**(fields | changes))
        answer = self.connection.ask(HEARTBEAT, self.version, request)
        if answer.error_code == 0:
            self.member_id = answer.member_id
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.assigned = {each.topic_id: set(each.partitions) for each in answer.assignment.topic_partitions}
        return answer

    def everything(self) -> dict[str, Any]:
        """The fields of a full heartbeat."""
        fields: dict[str, Any] = {
            "rebalance_timeout": self.rebalance_timeout_ms,
            "subscribed_topic_names": self.topics,
            "server_assignor": self.assignor,
            "topic_partitions": self.owned,
        }
        if self.version >= 1:
            fields["subscribed_topic_regex"] = self.pattern
        return fields

    def join(self, **changes: Any) -> Any:
        """The answer to the first heartbeat of a life, which succeeds."""
        self.epoch, self.owned = 0, {}
        answer = self.ask(**(self.everything() | changes))
        assert answer.error_code == 0, answer
        return answer

    def beat(self, *, tell: bool = False) -> Any:
        """The answer to a heartbeat that succeeds; with `tell` it says what the member owns."""
        answer = self.ask(**({"topic_partitions": self.owned} if tell else {}))
        assert answer.error_code == 0, answer
        return answer

    def obey(self) -> Any:
        """Gives up and takes what it was told, and says so."""
        self.owned = self.assigned
        return self.beat(tell=True)

    @property
    def partitions(self) -> set[int]:
        """What it may use of all its topics together, by numbers."""
        return {each for held in self.assigned.values() for each in held}

    # Offsets

    def commit(self, topic: str, offset: int, *, version: int = 9, **changes: Any) -> int:
        """The error code of one partition's commit."""
        namespace = messages.request(COMMIT, version)
        fields: dict[str, Any] = {
            "group_id": self.group_id,
            "generation_id_or_member_epoch": self.epoch,
            "member_id": self.member_id,
            "group_instance_id": None,
            "topics": [
                namespace.OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        namespace.OffsetCommitRequestPartition(
                            partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
                        )
                    ],
                )
            ],
        }
        answer = self.connection.ask(COMMIT, version, namespace.OffsetCommitRequest(**(fields | changes)))
        return int(answer.topics[0].partitions[0].error_code)

    def fetch_offset(self, topic: str, **changes: Any) -> tuple[int, int]:
        """(error code of the group, the committed offset of partition 0 or -1)"""
        namespace = messages.request(FETCH_OFFSETS, 9)
        fields: dict[str, Any] = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "topics": [namespace.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])],
        }
        group = namespace.OffsetFetchRequestGroup(**(fields | changes))
        answer = self.connection.ask(
            FETCH_OFFSETS, 9, namespace.OffsetFetchRequest(groups=[group], require_stable=False)
        ).groups[0]
        return answer.error_code, answer.topics[0].partitions[0].committed_offset if answer.topics else -1


def settle(*members: NewMember, rounds: int = 6) -> None:
    """Everybody does what it is told until nothing changes."""
    for _ in range(rounds):
        before = [(member.epoch, member.assigned) for member in members]
        for member in members:
            member.obey()
        if before == [(member.epoch, member.assigned) for member in members]:
            return
    raise AssertionError(f"the group does not come to rest: {[(m.epoch, m.assigned, m.owned) for m in members]}")


def described(broker: BrokerProcess, group_id: str, *, version: int = 1) -> Any:
    """ConsumerGroupDescribe of one group."""
    with RawConnection(broker) as connection:
        request = messages.request(DESCRIBE, version).ConsumerGroupDescribeRequest(
            group_ids=[group_id], include_authorized_operations=False
        )
        return connection.ask(DESCRIBE, version, request).groups[0]


def create_topic(broker: BrokerProcess, name: str, partitions: int) -> UUID:
    """The new topic's id."""
    with RawConnection(broker) as connection:
        namespace = messages.request(CREATE_TOPICS, 7)
        topic = namespace.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
        )
        request = namespace.CreateTopicsRequest(topics=[topic], timeout=10_000, validate_only=False)
        found = connection.ask(CREATE_TOPICS, 7, request).topics[0]
        assert found.error_code == 0, found
        topic_id: UUID = found.topic_id
        return topic_id


def grow_topic(broker: BrokerProcess, name: str, partitions: int) -> None:
    with RawConnection(broker) as connection:
        namespace = messages.request(CREATE_PARTITIONS, 3)
        topic = namespace.CreatePartitionsTopic(name=name, count=partitions, assignments=None)
        request = namespace.CreatePartitionsRequest(topics=[topic], timeout=10_000, validate_only=False)
        assert connection.ask(CREATE_PARTITIONS, 3, request).results[0].error_code == 0


def delete_topic(broker: BrokerProcess, name: str) -> None:
    with RawConnection(broker) as connection:
        namespace = messages.request(DELETE_TOPICS, 6)
        topic = namespace.DeleteTopicState(name=name, topic_id=None)
        request = namespace.DeleteTopicsRequest(topics=[topic], timeout=10_000)
        assert connection.ask(DELETE_TOPICS, 6, request).responses[0].error_code == 0
