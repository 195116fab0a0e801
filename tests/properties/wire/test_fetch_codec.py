"""The hand-written Fetch codec says the same as kio, in every version, and survives whatever is sent."""

import importlib
import random
import struct
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties.wire.kio_samples import kio_bytes, kio_message, raw, sample
from tiered.errors import MalformedRequest
from tiered.ids import NO_TOPIC_ID
from tiered.wire import fetch, frames
from tiered.wire.primitives import CurrentLeader, NodeEndpoint

VERSIONS = range(fetch.MIN_VERSION, fetch.MAX_VERSION + 1)


@dataclass(frozen=True)
class Elsewhere:
    """A payload that is not in memory."""

    content: bytes

    @property
    def length(self) -> int:
        return len(self.content)


def kio_class(version: int, kind: str) -> Any:
    module = importlib.import_module(f"kio.schema.fetch.v{version}.{kind}")
    return getattr(module, f"Fetch{kind.title()}")


def key_of(topic: Any, version: int) -> tuple[Any, Any]:
    return (None, topic.topic_id or NO_TOPIC_ID) if version >= 13 else (topic.topic, None)


def as_request(message: Any, version: int) -> fetch.FetchRequest:
    state = getattr(message, "replica_state", None)
    return fetch.FetchRequest(
        replica_id=message.replica_id if state is None else state.replica_id,
        replica_epoch=-1 if state is None else state.replica_epoch,
        max_wait_ms=raw(message.max_wait),
        min_bytes=message.min_bytes,
        max_bytes=message.max_bytes,
        isolation_level=message.isolation_level,
        session_id=getattr(message, "session_id", 0),
        session_epoch=getattr(message, "session_epoch", -1),
        topics=[
            fetch.FetchTopic(
                *key_of(topic, version),
                [
                    fetch.FetchPartition(
                        each.partition,
                        getattr(each, "current_leader_epoch", -1),
                        each.fetch_offset,
                        getattr(each, "last_fetched_epoch", -1),
                        getattr(each, "log_start_offset", -1),
                        each.partition_max_bytes,
                        getattr(each, "replica_directory_id", None),
                        getattr(each, "high_watermark", fetch.HIGH_WATERMARK_NOT_SENT),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in message.topics
        ],
        forgotten_topics=[
            fetch.ForgottenTopic(*key_of(topic, version), list(topic.partitions))
            for topic in getattr(message, "forgotten_topics_data", ())
        ],
        rack_id=getattr(message, "rack_id", ""),
        cluster_id=getattr(message, "cluster_id", None),
    )


def served(message: Any) -> Any:
    """The response without what we never send: snapshot ids, and null instead of empty records."""
    return replace(
        message,
        responses=tuple(
            replace(
                topic,
                partitions=tuple(
                    replace(
                        each,
                        records=each.records or b"",
                        **({"snapshot_id": type(each.snapshot_id)()} if hasattr(each, "snapshot_id") else {}),
                    )
                    for each in topic.partitions
                ),
            )
            for topic in message.responses
        ),
    )


def as_response(message: Any, version: int) -> fetch.FetchResponse:
    topics = []
    for topic in message.responses:
        results = []
        for each in topic.partitions:
            diverging = getattr(each, "diverging_epoch", None)
            leader = getattr(each, "current_leader", None)
            results.append(
                fetch.FetchPartitionResult(
                    partition_index=each.partition_index,
                    error_code=raw(each.error_code),
                    high_watermark=each.high_watermark,
                    last_stable_offset=each.last_stable_offset,
                    log_start_offset=getattr(each, "log_start_offset", -1),
                    records=each.records,
                    aborted_transactions=None
                    if each.aborted_transactions is None
                    else [
                        fetch.AbortedTransaction(aborted.producer_id, aborted.first_offset)
                        for aborted in each.aborted_transactions
                    ],
                    preferred_read_replica=getattr(each, "preferred_read_replica", -1),
                    diverging_epoch=None
                    if diverging is None or diverging == type(diverging)()
                    else fetch.EpochEndOffset(diverging.epoch, diverging.end_offset),
                    current_leader=None
                    if leader is None or leader == type(leader)()
                    else CurrentLeader(leader.leader_id, leader.leader_epoch),
                )
            )
        topics.append(fetch.FetchTopicResult(*key_of(topic, version), results))
    return fetch.FetchResponse(
        raw(message.throttle_time),
        raw(getattr(message, "error_code", 0)),
        getattr(message, "session_id", 0),
        topics,
        tuple(
            NodeEndpoint(each.node_id, each.host, each.port, each.rack)
            for each in getattr(message, "node_endpoints", ())
        ),
    )


def content(result: fetch.FetchPartitionResult) -> bytes:
    """Of a result whose records are in memory."""
    assert isinstance(result.records, bytes | bytearray | memoryview)
    return bytes(result.records)


def joined(segments: list[Any]) -> bytes:
    return b"".join(each.content if isinstance(each, Elsewhere) else bytes(each) for each in segments)


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= fetch.FIRST_WITH_REPLICA_STATE])
def test_what_a_follower_shows_comes_back(version: int) -> None:
    shown = UUID(int=1 << 100)
    topics = [fetch.FetchTopic(None, UUID(int=7), [fetch.FetchPartition(0, 1, 2, 3, 4, 5)])]
    asked = fetch.FetchRequest(2, 9, 500, 1, 1 << 20, 0, 0, -1, topics, [], "", "c", replica_incarnation=shown)
    written = fetch.encode_fetch_request(asked, version)
    assert fetch.decode_fetch_request(written, 0, len(written), version) == asked
    without = fetch.encode_fetch_request(asked._replace(replica_incarnation=None), version)
    assert fetch.decode_fetch_request(without, 0, len(without), version).replica_incarnation is None
    short = written.replace(b"\x10" + shown.bytes, b"\x0f" + shown.bytes)
    with pytest.raises(MalformedRequest):
        fetch.decode_fetch_request(short, 0, len(short), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_decode_to_what_kio_decodes(version: int) -> None:
    rng = random.Random(version)
    for _ in range(60):
        message = sample(kio_class(version, "request"), rng)
        padding = rng.randbytes(rng.randint(0, 9))
        data = padding + kio_bytes(message)
        found = fetch.decode_fetch_request(data + b"\xff" * 5, len(padding), len(data), version)
        assert found == as_request(message, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_encode_to_the_bytes_kio_writes(version: int) -> None:
    rng = random.Random(version)
    for _ in range(60):
        message = sample(kio_class(version, "request"), rng)
        assert fetch.encode_fetch_request(as_request(message, version), version) == kio_bytes(message)


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_response_frames_are_the_bytes_kio_writes_and_decode_again(version: int, elsewhere: bool) -> None:
    rng = random.Random(version)
    for _ in range(60):
        message = served(sample(kio_class(version, "response"), rng))
        expected = as_response(message, version)
        topics = expected.topics
        if elsewhere:
            topics = [
                each._replace(partitions=[p._replace(records=Elsewhere(content(p))) for p in each.partitions])
                for each in topics
            ]
        frame = joined(
            fetch.encode_fetch_response(
                version,
                77,
                expected.error_code,
                expected.session_id,
                topics,
                expected.throttle_ms,
                expected.node_endpoints,
            )
        )
        assert frames.read_frame_length(frame, 0) == len(frame) - 4
        correlation_id, body = frames.read_response_header(frame, 4, len(frame), 1, version)
        assert correlation_id == 77
        assert frame[body:] == kio_bytes(message)
        assert kio_message(type(message), frame[body:]) == message
        assert fetch.decode_fetch_response(frame, body, len(frame), version) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_payloads_keep_their_place_among_the_segments(version: int) -> None:
    big = bytes(range(256)) * 64
    payloads: list[fetch.Payload | bytes | bytearray | memoryview | None] = [
        Elsewhere(b"one" * 9), big, None, b"small", memoryview(big), bytearray(big), Elsewhere(b""),
    ]  # fmt: skip
    results = [fetch.FetchPartitionResult(index, records=each) for index, each in enumerate(payloads)]
    topic_id = None if version < 13 else UUID(int=5)
    topics = [fetch.FetchTopicResult("t" if version < 13 else None, topic_id, results)]
    segments = fetch.encode_fetch_response(version, 1, 0, 0, topics)
    assert [each for each in segments if isinstance(each, Elsewhere)] == [payloads[0]]
    frame = joined(segments)
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    _, body = frames.read_response_header(frame, 4, len(frame), 1, version)
    found = fetch.decode_fetch_response(frame, body, len(frame), version)
    assert [content(each) for each in found.topics[0].partitions] == [
        b"one" * 9, big, b"", b"small", big, big, b"",
    ]  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_every_truncation_of_a_request_is_malformed(version: int) -> None:
    rng = random.Random(version)
    for _ in range(5):
        data = kio_bytes(sample(kio_class(version, "request"), rng))
        for end in range(len(data)):
            with pytest.raises(MalformedRequest):
                fetch.decode_fetch_request(data, 0, end, version)
            with pytest.raises(MalformedRequest):
                fetch.decode_fetch_request(data[:end], 0, len(data), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_truncation_of_a_response_is_malformed(version: int) -> None:
    rng = random.Random(version)
    for _ in range(5):
        data = kio_bytes(sample(kio_class(version, "response"), rng))
        for end in range(len(data)):
            with pytest.raises(MalformedRequest):
                fetch.decode_fetch_response(data, 0, end, version)


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
    decode: Any = getattr(fetch, f"decode_fetch_{kind}")
    try:
        decode(data, 0, len(data), version)
    except MalformedRequest:
        return


@settings(max_examples=100, deadline=None)
@given(version=st.sampled_from(list(VERSIONS)), data=st.binary(max_size=200))
def test_noise_is_malformed_or_parses(version: int, data: bytes) -> None:
    for decode in (fetch.decode_fetch_request, fetch.decode_fetch_response):
        try:
            decode(data, 0, len(data), version)
        except MalformedRequest:
            continue


@pytest.mark.parametrize("version", [4, 12])
def test_a_request_of_more_than_a_million_partitions_is_refused(version: int) -> None:
    asked = fetch.FetchPartition(0, -1, 0, -1, -1, 1)
    topics = [fetch.FetchTopic("t", None, [asked] * count) for count in (2, 999_999)]
    data = fetch.encode_fetch_request(fetch.FetchRequest(-1, -1, 1, 1, 1, 0, 0, -1, topics), version)
    with pytest.raises(MalformedRequest, match="split"):
        fetch.decode_fetch_request(data, 0, len(data), version)
