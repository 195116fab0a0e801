"""Constructors, defaults and special values of messages."""

import subprocess
import sys
from typing import Self
from uuid import UUID

import pytest

from tiered.errors import MalformedRequest, UnsupportedVersion
from tiered.wire import messages, produce


def test_names_are_those_of_kio_and_values_are_raw() -> None:
    reply = messages.reply(3, 12)
    message = reply.MetadataResponse(
        throttle_time=5,
        brokers=[reply.MetadataResponseBroker(node_id=1, host="localhost", port=9092, rack=None)],
        cluster_id="c",
        controller_id=1,
        topics=[
            reply.MetadataResponseTopic(error_code=0, name="t", topic_id=UUID(int=9), is_internal=False, partitions=[])
        ],
    )
    found = messages.response_decoder(3, 12)(messages.encode(message), 0)
    assert found.throttle_time == 5
    assert found.brokers[0].rack is None
    assert found.topics[0].topic_id == UUID(int=9)
    assert found.topics[0].topic_authorized_operations == -(1 << 31)


@pytest.mark.parametrize("version", range(14))
def test_fields_of_other_versions_are_ignored(version: int) -> None:
    reply = messages.reply(3, version)
    data = messages.encode(
        reply.MetadataResponse(
            throttle_time=0,
            brokers=[reply.MetadataResponseBroker(node_id=1, host="h", port=1, rack="r")],
            cluster_id=None,
            controller_id=1,
            topics=[],
            cluster_authorized_operations=-1,
            error_code=0,
        )
    )
    assert messages.response_decoder(3, version)(data, 0).brokers[0].host == "h"


def test_structures_of_other_versions_can_be_made_and_are_ignored() -> None:
    reply = messages.reply(18, 0)
    features = [reply.SupportedFeatureKey(name="f", min_version=0, max_version=1)]
    message = reply.ApiVersionsResponse(error_code=35, api_keys=[], supported_features=features)
    assert messages.encode(message) == b"\x00\x23\x00\x00\x00\x00"


def test_names_of_no_version_are_type_errors() -> None:
    with pytest.raises(TypeError, match="no field partition in any version"):
        messages.reply(3, 1).MetadataResponseBroker(node_id=1, host="h", port=1, rack=None, partition=1)
    with pytest.raises(AttributeError, match="no MetadataAnswer"):
        messages.reply(3, 1).MetadataAnswer  # noqa: B018


def test_missing_fields_are_type_errors() -> None:
    with pytest.raises(TypeError, match=r"MetadataResponseBroker.*port"):
        messages.reply(3, 1).MetadataResponseBroker(node_id=1, host="h")


def test_known_tagged_fields_are_sent_unless_they_have_their_default() -> None:
    reply = messages.reply(18, 3)
    plain = reply.ApiVersionsResponse(error_code=0, api_keys=[])
    assert messages.encode(plain) == b"\x00\x00\x01\x00\x00\x00\x00\x00"
    message = reply.ApiVersionsResponse(error_code=0, api_keys=(), finalized_features_epoch=7)
    assert messages.encode(message)[7:] == b"\x01\x01\x08" + (7).to_bytes(8, "big")
    assert messages.response_decoder(18, 3)(messages.encode(message), 0) == message
    assert messages.encode(
        reply.ApiVersionsResponse(error_code=0, api_keys=[], supported_features=[])
    ) == messages.encode(plain)


def test_null_where_there_is_none_is_refused_on_both_sides() -> None:
    reply = messages.reply(3, 9)
    with pytest.raises(TypeError):
        messages.encode(reply.MetadataResponse(brokers=[], controller_id=1, topics=None))
    with pytest.raises(TypeError):
        messages.encode(
            reply.MetadataResponse(
                brokers=[reply.MetadataResponseBroker(node_id=1, host=None, port=1)], controller_id=1, topics=[]
            )
        )
    with pytest.raises(MalformedRequest, match="name is null"):
        messages.request_decoder(3, 9)(b"\x02\x00\x00\x00\x00\x00\x00", 0)


@pytest.mark.parametrize("timestamp", [-6, -5, -4, -3, -2, -1, 0, 1_763_700_000_000])
def test_timestamps_of_list_offsets_are_numbers(timestamp: int) -> None:
    request = messages.request(2, 11)
    message = request.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=[
            request.ListOffsetsTopic(
                name="t", partitions=[request.ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
            )
        ],
        timeout=30_000,
    )
    found = messages.request_decoder(2, 11)(messages.encode(message), 0)
    assert found.topics[0].partitions[0].timestamp == timestamp
    assert found.timeout == 30_000


def test_unknown_error_codes_stay_numbers() -> None:
    reply = messages.reply(12, 4)
    data = messages.encode(reply.HeartbeatResponse(error_code=12_345))
    assert messages.response_decoder(12, 4)(data, 0).error_code == 12_345


@pytest.mark.parametrize(("api_key", "version"), [(3, 14), (3, -1), (4, 0), (9999, 0), (2, 0)])
def test_unknown_versions_are_unsupported(api_key: int, version: int) -> None:
    for ask in (messages.reply, messages.request, messages.request_decoder, messages.response_decoder):
        with pytest.raises(UnsupportedVersion):
            ask(api_key, version)


def test_importing_the_room_imports_no_schema() -> None:
    code = "import sys, tiered.wire.messages, tiered.wire.fetch; print([m for m in sys.modules if 'kio.schema' in m])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_decoding_does_not_import_the_reader_that_aborts() -> None:
    code = (
        "import sys\nfrom tiered.wire import messages\n"
        "messages.request_decoder(3, 12), messages.encode(messages.reply(12, 4).HeartbeatResponse(error_code=0))\n"
        "print('kio._kio_native' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_a_message_is_imported_without_hypothesis_where_it_is_installed() -> None:
    """kio would import it to register its types, which takes longer than all of a broker's own modules."""
    program = "import sys; from tiered.wire import messages; messages.request_decoder(3, 12)"
    found = subprocess.run(
        [sys.executable, "-c", f"{program}; print('hypothesis' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "False"


@pytest.mark.parametrize("words", ["n" * 40_000, "é" * 20_000])
@pytest.mark.parametrize("version", [4, 5])
def test_words_about_an_error_are_cut_to_what_clients_read(words: str, version: int) -> None:
    """They may repeat names of any length."""
    cut = words.encode()[:32_767].decode(errors="ignore")
    reply = messages.reply(19, version)
    result = reply.CreatableTopicResult(
        name="t",
        topic_id=None,
        error_code=42,
        error_message=words,
        num_partitions=-1,
        replication_factor=-1,
        configs=[],
    )
    data = messages.encode(reply.CreateTopicsResponse(throttle_time=0, topics=[result]))
    assert messages.response_decoder(19, version)(data, 0).topics[0].error_message == cut
    answers = [produce.TopicResult("t", None, [produce.PartitionResult(0, 3, error_message=words)])]
    body = produce.encode_produce_response(answers, version + 4)
    (found,) = produce.decode_produce_response(body, 0, len(body), version + 4).topics[0].partitions
    assert found.error_message == cut


def test_a_text_that_kafkas_readers_refuse_is_refused_in_every_codec() -> None:
    """In flexible versions too, whose lengths have room for it: what is stored of it could not be sent again."""
    for name in ("n" * 32_767, "n" * 32_768):
        heartbeat = messages.request(68, 0).ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=0,
            instance_id=None,
            rack_id=None,
            rebalance_timeout=1,
            subscribed_topic_names=[name],
            server_assignor=None,
            topic_partitions=None,
        )
        encoded = messages.encode(heartbeat)
        topics = [produce.TopicBatches(name, None, [])]
        batches = produce.encode_produce_request(topics, 9, acks=1, timeout_ms=1)
        if len(name) == 32_767:
            assert messages.request_decoder(68, 0)(encoded, 0).subscribed_topic_names == (name,)
            assert produce.decode_produce_request(batches, 0, len(batches), 9).topics[0].name == name
            continue
        with pytest.raises(MalformedRequest, match="subscribed_topic_names has 32768 bytes"):
            messages.request_decoder(68, 0)(encoded, 0)
        with pytest.raises(MalformedRequest, match="32768 bytes"):
            produce.decode_produce_request(batches, 0, len(batches), 9)


class Counted(str):
    """A name that counts how many of its kind there are."""

    __slots__ = ()
    alive = 0

    def __new__(cls, text: str) -> Self:
        cls.alive += 1
        return super().__new__(cls, text)

    def __del__(self) -> None:
        Counted.alive -= 1


@pytest.mark.parametrize(
    ("groups", "topics", "partitions"), [(1, 5_000, 1), (1, 1, 5_000), (1, 65, 64), (40, 40, 40), (5_000, 0, 0)]
)
def test_a_large_message_is_freed_some_items_at_a_time(groups: int, topics: int, partitions: int) -> None:
    make = messages.reply(9, 8)
    message = make.OffsetFetchResponse(
        throttle_time=0,
        groups=tuple(
            make.OffsetFetchResponseGroup(
                group_id=Counted("g"),
                error_code=0,
                topics=tuple(
                    make.OffsetFetchResponseTopics(
                        name=Counted("t"),
                        partitions=tuple(
                            make.OffsetFetchResponsePartitions(
                                partition_index=number,
                                committed_offset=1,
                                committed_leader_epoch=0,
                                metadata=Counted("m"),
                                error_code=0,
                            )
                            for number in range(partitions)
                        ),
                    )
                    for _ in range(topics)
                ),
            )
            for _ in range(groups)
        ),
    )
    kept = message.groups[0]
    kept_count = 1 + topics * (1 + partitions) if groups > 1 else Counted.alive
    before, most = Counted.alive, 0
    assert before == groups * (1 + topics * (1 + partitions))
    for _ in messages.freed_in_pieces(message):
        before, most = Counted.alive, max(most, before - Counted.alive)
    assert most <= 2 * 256
    assert (message.groups, Counted.alive) == ((), kept_count), "somebody else has one group, and that is whole"
    assert [len(topic.partitions) for topic in kept.topics] == [partitions] * topics


def test_the_names_of_a_large_request_are_freed_some_at_a_time() -> None:
    """They went all at once, with the last step: 100,000 took 4 ms, and structures without arrays 7."""
    before = Counted.alive
    request = messages.request(42, 2).DeleteGroupsRequest(groups_names=tuple(Counted("g") for _ in range(5_000)))
    left = [Counted.alive - before for _ in messages.freed_in_pieces(request)]
    assert left == [max(0, 5_000 - 256 * step) for step in range(1, 21)]
