"""Every served API, the rights that it needs, and what it says without them: docs/security-rights.md as data."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.components.batches import batch
from tests.support.some_requests import codes_in
from tiered.wire import fetch, messages, produce
from tiered.wire.consumer_protocol import PROTOCOL_TYPE

TOPIC, GROUP, CLUSTER, TXN = 29, 30, 31, 53
KNOWN, ABSENT = "known-name", "other-name"
"""A topic and a group that are there, and names as long of which neither is."""

Right = tuple[str, str]
"""(operation, kind of resource), on the name that the request is about."""


@dataclass(frozen=True, slots=True)
class Row:
    """One request about `name`, the rights that all of them are needed for it, and the code that it has without."""

    key: int
    version: int
    rights: tuple[Right, ...]
    denied: int
    body: Callable[[str], bytes]
    codes: Callable[[bytes], list[int]]

    def __str__(self) -> str:
        return f"{self.key}.{self.version}"


def _codes_in(key: int, version: int) -> Callable[[bytes], list[int]]:
    """Every error code of an answer, wherever it stands."""
    return lambda answer: codes_in(messages.response_decoder(key, version)(answer, 0))


def _row(
    key: int,
    version: int,
    rights: tuple[Right, ...],
    denied: int,
    make: Callable[[Any, str], Any],
) -> Row:
    def body(name: str) -> bytes:
        return bytes(messages.encode(make(messages.request(key, version), name)))

    return Row(key, version, rights, denied, body, _codes_in(key, version))


def _produce(name: str) -> bytes:
    topics = [produce.TopicBatches(name, None, [(0, batch())])]
    return produce.encode_produce_request(topics, 9, acks=1, timeout_ms=5000)


def _produce_codes(answer: bytes) -> list[int]:
    decoded = produce.decode_produce_response(answer, 0, len(answer), 9)
    return [each.error_code for topic in decoded.topics for each in topic.partitions]


def _fetch(name: str) -> bytes:
    topics = [fetch.FetchTopic(name, None, [fetch.FetchPartition(0, -1, 0, -1, -1, 1 << 20)])]
    return fetch.encode_fetch_request(fetch.FetchRequest(-1, -1, 0, 1, 1 << 20, 0, 0, -1, topics), 11)


def _fetch_codes(answer: bytes) -> list[int]:
    decoded = fetch.decode_fetch_response(answer, 0, len(answer), 11)
    return [decoded.error_code, *(each.error_code for topic in decoded.topics for each in topic.partitions)]


def _configs(r: Any, kind: int, name: str) -> Any:
    names = {2: "retention.ms", 4: "log.retention.ms", 8: "root", 16: "interval.ms", 32: "share.session.timeout.ms"}
    config = r.AlterableConfig(name=names[kind], value="6000", config_operation=0)
    resource = r.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    return r.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)


def _old_configs(r: Any, name: str) -> Any:
    config = r.AlterableConfig(name="retention.ms", value="1")
    resource = r.AlterConfigsResource(resource_type=2, resource_name=name, configs=[config])
    return r.AlterConfigsRequest(resources=[resource], validate_only=False)


def _described_configs(r: Any, kind: int, name: str) -> Any:
    asked = r.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    return r.DescribeConfigsRequest(resources=[asked], include_synonyms=False, include_documentation=False)


def _new_topic(r: Any, name: str) -> Any:
    topic = r.CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    return r.CreateTopicsRequest(topics=[topic], timeout=5000, validate_only=False)


def _beat(r: Any, name: str) -> Any:
    return r.ConsumerGroupHeartbeatRequest(
        group_id=name, member_id="m", member_epoch=7, instance_id=None, rack_id=None, rebalance_timeout=-1,
        subscribed_topic_names=[name], subscribed_topic_regex=None, server_assignor=None, topic_partitions=None,
    )  # fmt: skip


def _join(r: Any, name: str) -> Any:
    return r.JoinGroupRequest(
        group_id=name, session_timeout=6000, rebalance_timeout=6000, member_id="", group_instance_id=None,
        protocol_type=PROTOCOL_TYPE, protocols=[], reason=None,
    )  # fmt: skip


def _commit(r: Any, name: str) -> Any:
    partition = r.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_leader_epoch=-1, committed_metadata=""
    )
    return r.OffsetCommitRequest(
        group_id=name, generation_id_or_member_epoch=-1, member_id="", group_instance_id=None,
        topics=[r.OffsetCommitRequestTopic(name=name, partitions=[partition])],
    )  # fmt: skip


def _sent_offsets(r: Any, name: str) -> Any:
    partition = r.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_leader_epoch=-1, committed_metadata=""
    )
    return r.TxnOffsetCommitRequest(
        transactional_id=name, group_id=name, producer_id=1, producer_epoch=0,
        topics=[r.TxnOffsetCommitRequestTopic(name=name, partitions=[partition])],
    )  # fmt: skip


def _committed(r: Any, name: str) -> Any:
    topic = r.OffsetFetchRequestTopics(name=name, partition_indexes=[0])
    group = r.OffsetFetchRequestGroup(group_id=name, topics=[topic])
    return r.OffsetFetchRequest(groups=[group], require_stable=False)


def _offset_delete(r: Any, name: str) -> Any:
    partition = r.OffsetDeleteRequestPartition(partition_index=0)
    return r.OffsetDeleteRequest(group_id=name, topics=[r.OffsetDeleteRequestTopic(name=name, partitions=[partition])])


def _list_offsets(r: Any, name: str) -> Any:
    partition = r.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)
    topic = r.ListOffsetsTopic(name=name, partitions=[partition])
    return r.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[topic])


def _metadata(r: Any, name: str) -> Any:
    return r.MetadataRequest(
        topics=[r.MetadataRequestTopic(name=name)], allow_auto_topic_creation=True,
        include_cluster_authorized_operations=True, include_topic_authorized_operations=True,
    )  # fmt: skip


def _reassign(r: Any, name: str) -> Any:
    topic = r.ReassignableTopic(name=name, partitions=[r.ReassignablePartition(partition_index=0, replicas=[9])])
    return r.AlterPartitionReassignmentsRequest(timeout=5000, topics=[topic])


def _elect(r: Any, name: str) -> Any:
    topic = r.TopicPartitions(topic=name, partitions=[0])
    return r.ElectLeadersRequest(election_type=0, topic_partitions=[topic], timeout=5000)


def _leader_epoch(r: Any, name: str) -> Any:
    partition = r.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    topic = r.OffsetForLeaderTopic(topic=name, partitions=[partition])
    return r.OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])


def _delete_records(r: Any, name: str) -> Any:
    partition = r.DeleteRecordsPartition(partition_index=0, offset=-1)
    topic = r.DeleteRecordsTopic(name=name, partitions=[partition])
    return r.DeleteRecordsRequest(topics=[topic], timeout=5000)


def _more_partitions(r: Any, name: str) -> Any:
    topic = r.CreatePartitionsTopic(name=name, count=2, assignments=None)
    return r.CreatePartitionsRequest(topics=[topic], timeout=5000, validate_only=False)


def _producer_id(r: Any, transactional_id: str | None) -> Any:
    return r.InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout=60_000, producer_id=-1, producer_epoch=-1
    )


def _transaction_partition(r: Any, name: str) -> Any:
    return r.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name, v3_and_below_producer_id=1, v3_and_below_producer_epoch=0,
        v3_and_below_topics=[r.AddPartitionsToTxnTopic(name=name, partitions=(0,))],
    )  # fmt: skip


def _transaction_offsets(r: Any, name: str) -> Any:
    return r.AddOffsetsToTxnRequest(transactional_id=name, producer_id=1, producer_epoch=0, group_id=name)


def _transaction_end(r: Any, name: str) -> Any:
    return r.EndTxnRequest(transactional_id=name, producer_id=1, producer_epoch=0, committed=False)


def _marker(r: Any, name: str) -> Any:
    topic = r.WritableTxnMarkerTopic(name=name, partition_indexes=(0,))
    marker = r.WritableTxnMarker(
        producer_id=1, producer_epoch=0, transaction_result=False, topics=[topic], coordinator_epoch=0
    )
    return r.WriteTxnMarkersRequest(markers=[marker])


def _coordinator(r: Any, kind: int, name: str) -> Any:
    return r.FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])


def _described_group(r: Any, name: str) -> Any:
    return r.DescribeGroupsRequest(groups=[name], include_authorized_operations=True)


def _moving(r: Any, _: str) -> Any:
    return r.ListPartitionReassignmentsRequest(timeout=5000, topics=None)


def _brokers(r: Any, _: str) -> Any:
    return r.DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=1)


def _elsewhere(r: Any, name: str) -> Any:
    topic = r.AlterReplicaLogDirTopic(name=name, partitions=(0,))
    return r.AlterReplicaLogDirsRequest(dirs=[r.AlterReplicaLogDir(path="/elsewhere", topics=[topic])])


def _quorum(r: Any, _: str) -> Any:
    partition = r.PartitionData(partition_index=0)
    return r.DescribeQuorumRequest(topics=[r.TopicData(topic_name="__cluster_metadata", partitions=[partition])])


def _other_feature(r: Any, name: str) -> Any:
    update = r.FeatureUpdateKey(feature=name, max_version_level=1, upgrade_type=1)
    return r.UpdateFeaturesRequest(timeout=5000, feature_updates=[update], validate_only=False)


def _producers(r: Any, name: str) -> Any:
    return r.DescribeProducersRequest(topics=[r.TopicRequest(name=name, partition_indexes=(0,))])


def _page(r: Any, name: str) -> Any:
    return r.DescribeTopicPartitionsRequest(topics=[r.TopicRequest(name=name)], response_partition_limit=10)


def _quotas(r: Any, _: str) -> Any:
    return r.DescribeClientQuotasRequest(components=[], strict=False)


def _new_quota(r: Any, name: str) -> Any:
    entity = [r.EntityData(entity_type="user", entity_name=name)]
    operation = r.OpData(key="producer_byte_rate", value=1e6, remove=False)
    return r.AlterClientQuotasRequest(entries=[r.EntryData(entity=entity, ops=[operation])], validate_only=False)


def _acl_filter(name: str) -> dict[str, Any]:
    return {
        "resource_type_filter": 1, "resource_name_filter": name, "pattern_type_filter": 1, "principal_filter": None,
        "host_filter": None, "operation": 1, "permission_type": 1,
    }  # fmt: skip


def _acls(r: Any, name: str) -> Any:
    return r.DescribeAclsRequest(**_acl_filter(name))


def _new_acl(r: Any, name: str) -> Any:
    new = r.AclCreation(
        resource_type=2, resource_name=name, resource_pattern_type=3, principal="User:x", host="*", operation=3,
        permission_type=3,
    )  # fmt: skip
    return r.CreateAclsRequest(creations=[new])


def _no_acl(r: Any, name: str) -> Any:
    return r.DeleteAclsRequest(filters=[r.DeleteAclsFilter(**_acl_filter(name))])


def _no_user(r: Any, name: str) -> Any:
    deletion = r.ScramCredentialDeletion(name=name, mechanism=1)
    return r.AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[])


_READ_GROUP = (("READ", "GROUP"),)
_ALTER_CLUSTER = (("ALTER", "CLUSTER"),)
_DESCRIBE_CLUSTER = (("DESCRIBE", "CLUSTER"),)

ROWS: tuple[Row, ...] = (
    Row(0, 9, (("WRITE", "TOPIC"),), TOPIC, _produce, _produce_codes),
    Row(1, 11, (("READ", "TOPIC"),), TOPIC, _fetch, _fetch_codes),
    _row(2, 7, (("DESCRIBE", "TOPIC"),), TOPIC, _list_offsets),
    _row(3, 8, (("DESCRIBE", "TOPIC"),), TOPIC, _metadata),
    _row(8, 8, (("READ", "GROUP"), ("READ", "TOPIC")), GROUP, _commit),
    _row(9, 8, (("DESCRIBE", "GROUP"), ("DESCRIBE", "TOPIC")), GROUP, _committed),
    _row(10, 4, (("DESCRIBE", "GROUP"),), GROUP, lambda r, n: _coordinator(r, 0, n)),
    _row(10, 4, (("DESCRIBE", "TRANSACTIONAL_ID"),), TXN, lambda r, n: _coordinator(r, 1, n)),
    _row(11, 7, _READ_GROUP, GROUP, _join),
    _row(
        12, 4, _READ_GROUP, GROUP,
        lambda r, n: r.HeartbeatRequest(group_id=n, generation_id=1, member_id="m", group_instance_id=None),
    ),
    _row(
        13, 3, _READ_GROUP, GROUP,
        lambda r, n: r.LeaveGroupRequest(
            group_id=n, members=[r.MemberIdentity(member_id="m", group_instance_id=None)]
        ),
    ),
    _row(
        14, 5, _READ_GROUP, GROUP,
        lambda r, n: r.SyncGroupRequest(
            group_id=n, generation_id=1, member_id="m", group_instance_id=None, protocol_type=None,
            protocol_name=None, assignments=[],
        ),
    ),
    _row(15, 6, (("DESCRIBE", "GROUP"),), GROUP, _described_group),
    _row(16, 4, (), 0, lambda r, n: r.ListGroupsRequest(states_filter=[])),
    _row(17, 1, (), 0, lambda r, n: r.SaslHandshakeRequest(mechanism="PLAIN")),
    _row(18, 3, (), 0, lambda r, n: r.ApiVersionsRequest(client_software_name="t", client_software_version="1")),
    _row(19, 7, (("CREATE", "TOPIC"),), TOPIC, _new_topic),
    _row(20, 5, (("DELETE", "TOPIC"),), TOPIC, lambda r, n: r.DeleteTopicsRequest(topic_names=[n], timeout=5000)),
    _row(21, 2, (("DELETE", "TOPIC"),), TOPIC, _delete_records),
    _row(22, 4, (("IDEMPOTENT_WRITE", "CLUSTER"),), CLUSTER, lambda r, n: _producer_id(r, None)),
    _row(22, 4, (("WRITE", "TRANSACTIONAL_ID"),), TXN, _producer_id),
    _row(23, 4, (("DESCRIBE", "TOPIC"),), TOPIC, _leader_epoch),
    _row(24, 3, (("WRITE", "TRANSACTIONAL_ID"), ("WRITE", "TOPIC")), TXN, _transaction_partition),
    _row(25, 3, (("WRITE", "TRANSACTIONAL_ID"), ("READ", "GROUP")), TXN, _transaction_offsets),
    _row(26, 3, (("WRITE", "TRANSACTIONAL_ID"),), TXN, _transaction_end),
    _row(27, 1, _ALTER_CLUSTER, CLUSTER, _marker),
    _row(
        28, 3, (("WRITE", "TRANSACTIONAL_ID"), ("READ", "GROUP"), ("READ", "TOPIC")), TXN, _sent_offsets,
    ),
    _row(29, 3, _DESCRIBE_CLUSTER, CLUSTER, _acls),
    _row(30, 3, _ALTER_CLUSTER, CLUSTER, _new_acl),
    _row(31, 3, _ALTER_CLUSTER, CLUSTER, _no_acl),
    _row(32, 4, (("DESCRIBE_CONFIGS", "TOPIC"),), TOPIC, lambda r, n: _described_configs(r, 2, n)),
    _row(32, 4, (("DESCRIBE_CONFIGS", "CLUSTER"),), CLUSTER, lambda r, n: _described_configs(r, 4, "1")),
    _row(33, 2, (("ALTER_CONFIGS", "TOPIC"),), TOPIC, _old_configs),
    _row(44, 1, (("ALTER_CONFIGS", "TOPIC"),), TOPIC, lambda r, n: _configs(r, 2, n)),
    _row(44, 1, (("ALTER_CONFIGS", "CLUSTER"),), CLUSTER, lambda r, n: _configs(r, 4, "1")),
    _row(34, 2, _ALTER_CLUSTER, CLUSTER, _elsewhere),
    _row(32, 4, (("DESCRIBE_CONFIGS", "GROUP"),), GROUP, lambda r, n: _described_configs(r, 32, n)),
    _row(32, 4, (("DESCRIBE_CONFIGS", "CLUSTER"),), CLUSTER, lambda r, n: _described_configs(r, 8, "1")),
    _row(44, 1, (("ALTER_CONFIGS", "CLUSTER"),), CLUSTER, lambda r, n: _configs(r, 8, "1")),
    _row(32, 4, (("DESCRIBE_CONFIGS", "CLUSTER"),), CLUSTER, lambda r, n: _described_configs(r, 16, n)),
    _row(44, 1, (("ALTER_CONFIGS", "CLUSTER"),), CLUSTER, lambda r, n: _configs(r, 16, n)),
    _row(44, 1, (("ALTER_CONFIGS", "GROUP"),), GROUP, lambda r, n: _configs(r, 32, n)),
    _row(35, 4, _DESCRIBE_CLUSTER, CLUSTER, lambda r, n: r.DescribeLogDirsRequest(topics=None)),
    _row(36, 2, (), 0, lambda r, n: r.SaslAuthenticateRequest(auth_bytes=b"")),
    _row(37, 3, (("ALTER", "TOPIC"),), TOPIC, _more_partitions),
    _row(42, 2, (("DELETE", "GROUP"),), GROUP, lambda r, n: r.DeleteGroupsRequest(groups_names=[n])),
    _row(43, 2, _ALTER_CLUSTER, CLUSTER, _elect),
    _row(45, 0, _ALTER_CLUSTER, CLUSTER, _reassign),
    _row(46, 0, _DESCRIBE_CLUSTER, CLUSTER, _moving),
    _row(47, 0, (("DELETE", "GROUP"), ("READ", "TOPIC")), GROUP, _offset_delete),
    _row(48, 1, (("DESCRIBE_CONFIGS", "CLUSTER"),), CLUSTER, _quotas),
    _row(49, 1, (("ALTER_CONFIGS", "CLUSTER"),), CLUSTER, _new_quota),
    _row(50, 0, _DESCRIBE_CLUSTER, CLUSTER, lambda r, n: r.DescribeUserScramCredentialsRequest(users=None)),
    _row(51, 0, _ALTER_CLUSTER, CLUSTER, _no_user),
    _row(55, 2, _DESCRIBE_CLUSTER, CLUSTER, _quorum),
    _row(57, 2, _ALTER_CLUSTER, CLUSTER, _other_feature),
    _row(60, 1, (), 0, _brokers),
    _row(61, 0, (("READ", "TOPIC"),), TOPIC, _producers),
    _row(
        65, 0, (("DESCRIBE", "TRANSACTIONAL_ID"),), TXN,
        lambda r, n: r.DescribeTransactionsRequest(transactional_ids=[n]),
    ),
    _row(66, 0, (), 0, lambda r, n: r.ListTransactionsRequest(state_filters=[], producer_id_filters=[])),
    _row(64, 0, _ALTER_CLUSTER, CLUSTER, lambda r, n: r.UnregisterBrokerRequest(broker_id=7)),
    _row(68, 0, (("READ", "GROUP"), ("DESCRIBE", "TOPIC")), GROUP, _beat),
    _row(
        76, 1, (("READ", "GROUP"),), GROUP,
        lambda r, n: r.ShareGroupHeartbeatRequest(
            group_id=n, member_id="m", member_epoch=7, rack_id=None, subscribed_topic_names=None
        ),
    ),
    _row(
        69, 0, (("DESCRIBE", "GROUP"),), GROUP,
        lambda r, n: r.ConsumerGroupDescribeRequest(group_ids=[n], include_authorized_operations=True),
    ),
    _row(75, 0, (("DESCRIBE", "TOPIC"),), TOPIC, _page),
    _row(71, 0, (), 0, lambda r, n: r.GetTelemetrySubscriptionsRequest(client_instance_id=None)),
    _row(
        72, 0, (), 0,
        lambda r, n: r.PushTelemetryRequest(
            client_instance_id=None, subscription_id=1, terminating=False, compression_type=0, metrics=b""
        ),
    ),
    _row(
        74, 1, (("DESCRIBE_CONFIGS", "CLUSTER"),), CLUSTER,
        lambda r, n: r.ListConfigResourcesRequest(resource_types=()),
    ),
)  # fmt: skip
