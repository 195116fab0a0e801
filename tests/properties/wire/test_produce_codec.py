"""The hand-written Produce codec says the same as kio, in every version, and survives whatever is sent."""

import importlib
import random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties.wire.kio_samples import kio_bytes, kio_message, raw, sample
from tiered.errors import MalformedRequest
from tiered.ids import NO_TOPIC_ID
from tiered.wire import produce
from tiered.wire.primitives import TRUNCATED, CurrentLeader, NodeEndpoint

VERSIONS = range(produce.MIN_VERSION, produce.MAX_VERSION + 1)


def kio_class(version: int, kind: str) -> Any:
    module = importlib.import_module(f"kio.schema.produce.v{version}.{kind}")
    return getattr(module, f"Produce{kind.title()}")


def id_of(topic: Any, version: int) -> Any:
    return (topic.topic_id or NO_TOPIC_ID) if version >= 13 else None


def name_of(topic: Any, version: int) -> Any:
    return None if version >= 13 else topic.name


def as_response(message: Any, version: int) -> produce.ProduceResponse:
    topics = []
    for topic in message.responses:
        results = []
        for each in topic.partition_responses:
            leader = getattr(each, "current_leader", None)
            results.append(
                produce.PartitionResult(
                    partition_index=each.index,
                    error_code=raw(each.error_code),
                    base_offset=each.base_offset,
                    log_append_time_ms=-1 if each.log_append_time is None else raw(each.log_append_time),
                    log_start_offset=getattr(each, "log_start_offset", -1),
                    record_errors=[
                        produce.RecordError(error.batch_index, error.batch_index_error_message)
                        for error in getattr(each, "record_errors", ())
                    ],
                    error_message=getattr(each, "error_message", None),
                    current_leader=None
                    if leader is None or (leader.leader_id, leader.leader_epoch) == (-1, -1)
                    else CurrentLeader(leader.leader_id, leader.leader_epoch),
                )
            )
        topics.append(produce.TopicResult(name_of(topic, version), id_of(topic, version), results))
    endpoints = tuple(
        NodeEndpoint(each.node_id, each.host, each.port, each.rack) for each in getattr(message, "node_endpoints", ())
    )
    return produce.ProduceResponse(topics, raw(message.throttle_time), endpoints)


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_decode_to_what_kio_decodes(version: int) -> None:
    rng = random.Random(version)
    for _ in range(60):
        message = sample(kio_class(version, "request"), rng)
        padding = rng.randbytes(rng.randint(0, 9))
        data = padding + kio_bytes(message)
        found = produce.decode_produce_request(data + b"\xff" * 5, len(padding), len(data), version)
        assert (found.acks, found.timeout_ms) == (message.acks, raw(message.timeout))
        assert found.transactional_id == message.transactional_id
        assert [(each.name, each.topic_id) for each in found.topics] == [
            (name_of(each, version), id_of(each, version)) for each in message.topic_data
        ]
        for ours, theirs in zip(found.topics, message.topic_data, strict=True):
            assert [(index, None if start == -1 else data[start:end]) for index, start, end in ours.partitions] == [
                (each.index, each.records) for each in theirs.partition_data
            ]


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_encode_to_the_bytes_kio_writes(version: int) -> None:
    rng = random.Random(version)
    for _ in range(60):
        message = sample(kio_class(version, "request"), rng)
        topics = [
            produce.TopicBatches(
                name_of(topic, version),
                id_of(topic, version),
                [(each.index, each.records) for each in topic.partition_data],
            )
            for topic in message.topic_data
        ]
        assert produce.encode_produce_request(
            topics,
            version,
            acks=message.acks,
            timeout_ms=raw(message.timeout),
            transactional_id=message.transactional_id,
        ) == kio_bytes(message)


@pytest.mark.parametrize("version", VERSIONS)
def test_responses_are_the_bytes_kio_writes_and_decode_again(version: int) -> None:
    rng = random.Random(version)
    for _ in range(60):
        message = sample(kio_class(version, "response"), rng)
        expected = as_response(message, version)
        data = produce.encode_produce_response(expected.topics, version, expected.throttle_ms, expected.node_endpoints)
        assert data == kio_bytes(message)
        assert kio_message(type(message), bytes(data)) == message
        assert produce.decode_produce_response(data, 0, len(data), version) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_the_response_about_one_batch_is_the_bytes_kio_writes(version: int) -> None:
    rng = random.Random(version)
    for _ in range(200):
        response = as_response(sample(kio_class(version, "response"), rng), version)
        for topic in response.topics:
            for result in topic.partitions:
                plain = result[:5] if rng.random() < 0.5 else result
                one = [topic._replace(partitions=[produce.PartitionResult(*plain)])]
                data = bytes(produce.encode_produce_response(one, version, response.throttle_ms))
                message = kio_message(kio_class(version, "response"), data)
                assert kio_bytes(message) == data
                assert as_response(message, version).topics[0].partitions[0][:5] == result[:5]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_truncation_of_a_request_is_malformed(version: int) -> None:
    rng = random.Random(version)
    for _ in range(5):
        data = kio_bytes(sample(kio_class(version, "request"), rng))
        for end in range(len(data)):
            with pytest.raises(MalformedRequest):
                produce.decode_produce_request(data, 0, end, version)
            with pytest.raises(MalformedRequest):
                produce.decode_produce_request(data[:end], 0, len(data), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_truncation_of_a_response_is_malformed(version: int) -> None:
    rng = random.Random(version)
    for _ in range(5):
        data = kio_bytes(sample(kio_class(version, "response"), rng))
        for end in range(len(data)):
            with pytest.raises(MalformedRequest):
                produce.decode_produce_response(data, 0, end, version)


@settings(max_examples=100, deadline=None)
@given(
    version=st.sampled_from(list(VERSIONS)),
    kind=st.sampled_from(("request", "response")),
    seed=st.integers(0, 1000),
    changes=st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=6),
)
def test_altered_messages_parse_or_are_malformed(
    version: int, kind: str, seed: int, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(kio_bytes(sample(kio_class(version, kind), random.Random(seed))))
    for where, value in changes:
        data[where % len(data)] = value
    decode: Any = getattr(produce, f"decode_produce_{kind}")
    try:
        found = decode(data, 0, len(data), version)
    except MalformedRequest:
        return
    if kind == "request":
        for topic in found.topics:
            for _, start, end in topic.partitions:
                assert (start, end) == (-1, -1) or 0 <= start <= end <= len(data)


def test_a_request_of_one_batch_is_read_as_any_other_however_it_is_altered() -> None:
    rng = random.Random(0)
    short = 0
    for _ in range(20_000):
        size = rng.choice((None, 0, 1, 2, 125, 126, 127, 128, 200))
        topic = produce.TopicBatches(
            None, UUID(bytes=rng.randbytes(16)), [(rng.randrange(9), None if size is None else rng.randbytes(size))]
        )
        data = bytearray(produce.encode_produce_request([topic], 13, acks=-1, timeout_ms=30_000))
        for _ in range(rng.randrange(3)):
            data[rng.randrange(len(data))] = rng.choice((0, 1, 2, 3, 0x7F, 0x80, 0xFF))
        start = rng.randrange(9)
        end = start + (len(data) if rng.random() < 0.7 else rng.randrange(len(data)))
        data = bytearray(start) + data + b"\x00" * rng.randrange(9)
        view = memoryview(data)[:end]
        try:
            expected = produce._decode_flexible(view, start, True)
        except (*TRUNCATED, MalformedRequest):
            with pytest.raises(MalformedRequest):
                produce.decode_produce_request(data, start, end, 13)
            continue
        assert produce.decode_produce_request(data, start, end, 13) == expected
        short += len(view) - start > 29 and produce._decode_one_batch(data, start, end) == expected
    assert short > 5_000


@settings(max_examples=100, deadline=None)
@given(version=st.sampled_from(list(VERSIONS)), data=st.binary(max_size=200))
def test_noise_is_malformed_or_parses(version: int, data: bytes) -> None:
    for decode in (produce.decode_produce_request, produce.decode_produce_response):
        try:
            decode(data, 0, len(data), version)
        except MalformedRequest:
            continue


@pytest.mark.parametrize("version", [8, 9])
def test_a_request_of_more_than_a_million_partitions_is_refused(version: int) -> None:
    topics = [produce.TopicBatches("t", None, [(0, None)] * count) for count in (2, 999_999)]
    data = produce.encode_produce_request(topics, version, acks=1, timeout_ms=1)
    with pytest.raises(MalformedRequest, match="split"):
        produce.decode_produce_request(data, 0, len(data), version)
