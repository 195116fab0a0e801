"""Headers and frame lengths: which shape a version has, and what happens to bytes that are none."""

import importlib
import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties.wire.kio_samples import kio_bytes
from tiered.errors import MalformedRequest
from tiered.wire import fetch, frames, messages, produce
from tiered.wire.primitives import varint


def test_flexible_versions_agree_with_kio() -> None:
    index = importlib.import_module("kio.index")
    seen = 0
    for api_key, first in frames.FLEXIBLE_FROM.items():
        for api_version in range(20):
            try:
                request = index.load_request_schema(api_key, api_version)
            except Exception:
                continue
            seen += 1
            assert frames.is_flexible(api_key, api_version) == request.__flexible__, (api_key, api_version, first)
    assert seen > 250


@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "ü" * 100])
@pytest.mark.parametrize(("api_key", "api_version"), [(0, 8), (0, 9), (17, 1), (18, 0), (18, 4), (3, 13)])
def test_request_headers_are_read_as_they_were_written(api_key: int, api_version: int, client_id: str | None) -> None:
    data = b"junk" + frames.request_header(api_key, api_version, -5, client_id)
    found = frames.read_request_header(data + b"behind", 4, len(data))
    assert found == (api_key, api_version, -5, client_id, len(data))


def test_request_header_is_what_kio_writes() -> None:
    from kio.schema.request_header.v1.header import RequestHeader as HeaderV1
    from kio.schema.request_header.v2.header import RequestHeader as HeaderV2
    from kio.static.primitive import i16, i32

    for cls, version in ((HeaderV1, 8), (HeaderV2, 9)):
        header = cls(request_api_key=i16(0), request_api_version=i16(version), correlation_id=i32(9), client_id="me")
        assert frames.request_header(0, version, 9, "me") == kio_bytes(header)


def test_tagged_fields_of_a_header_are_skipped() -> None:
    data = frames.request_header(0, 9, 1, "c")[:-1] + b"\x02\x00\x01a\x07\x02bc"
    assert frames.read_request_header(data + b"body", 0, len(data) + 4)[-1] == len(data)


def test_a_hundred_tagged_fields_are_skipped_and_more_are_refused_unread() -> None:
    """Each takes its sender two bytes: eight MiB of them held up everybody else for seconds."""
    for count, is_read in ((100, True), (101, False), (127, False), (128, False), (4_000_000, False)):
        data = struct.pack(">hhih", 18, 3, 1, -1) + varint(count) + b"\x07\x00" * min(count, 200)
        if is_read:
            assert frames.read_request_header(data, 0, len(data))[-1] == len(data)
            continue
        with pytest.raises(MalformedRequest, match="tagged fields"):
            frames.read_request_header(data, 0, len(data))


def test_messages_with_more_tagged_fields_than_there_may_be_are_refused() -> None:
    many = varint(101) + b"\x07\x00" * 101
    asked = struct.pack(">iiiibii", -1, 100, 1, 1000, 0, 0, -1) + b"\x01\x01\x01" + many
    produced = b"\x00" + struct.pack(">hi", 1, 1000) + b"\x01" + many
    for decode in (
        lambda: messages.request_decoder(18, 3)(b"\x02a\x02a" + many, 0),
        lambda: messages.request_decoder(1, 12)(asked, 0),
        lambda: fetch.decode_fetch_request(asked, 0, len(asked), 12),
        lambda: produce.decode_produce_request(produced, 0, len(produced), 9),
    ):
        with pytest.raises(MalformedRequest, match="tagged fields"):
            decode()


@pytest.mark.parametrize("version", [3, 9, 13])
def test_topics_without_batches_are_refused_before_they_are_read(version: int) -> None:
    """A million of them, in 18 MB, were five seconds of the event loop."""
    topic = {3: b"\x00\x01a" + bytes(4), 9: b"\x02a\x01\x00", 13: bytes(16) + b"\x01\x00"}[version]
    for count, is_read in ((50_000, True), (50_001, False)):
        length = struct.pack(">i", count) if version == 3 else varint(count + 1)
        body = (b"\xff\xff" if version == 3 else b"\x00") + struct.pack(">hi", 1, 1000) + length
        body += topic * count + b"\x00"
        if is_read:
            assert len(produce.decode_produce_request(body, 0, len(body), version).topics) == count
            continue
        with pytest.raises(MalformedRequest, match="items"):
            produce.decode_produce_request(body, 0, len(body), version)


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_fetch_of_more_topics_than_there_can_be_is_refused_before_they_are_read(is_forgotten: bool) -> None:
    """Topics by their ids, without partitions: 8 MiB of them were two seconds of the event loop."""
    topic, none = bytes(16) + b"\x01\x00", varint(1)

    def decoded(count: int) -> fetch.FetchRequest:
        many = varint(count + 1) + topic * count
        body = struct.pack(">iiibii", 100, 1, 1000, 0, 0, -1) + (none + many if is_forgotten else many + none)
        return fetch.decode_fetch_request(body + b"\x01\x00", 0, len(body) + 2, 15, max_items=1000)

    found = decoded(1000)
    assert len(found.forgotten_topics if is_forgotten else found.topics) == 1000
    with pytest.raises(MalformedRequest, match="more than 1000 items"):
        decoded(1001)


def test_unknown_api_has_a_header_without_tagged_fields() -> None:
    data = frames.request_header(999, 9, 1, "c")
    assert frames.read_request_header(data + b"\xff" * 9, 0, len(data) + 9)[-1] == len(data)


@pytest.mark.parametrize("version", [8, 9])
def test_every_truncation_of_a_header_is_malformed(version: int) -> None:
    data = frames.request_header(0, version, 1, "client")
    for end in range(len(data)):
        with pytest.raises(MalformedRequest):
            frames.read_request_header(data + b"next frame", 0, end)


def test_hostile_lengths_are_malformed() -> None:
    head = b"\x00\x00\x00\x09\x00\x00\x00\x01"
    for rest in (
        b"\xff\xfe",
        b"\x7f\xffabc",
        b"\x00\x01\xff\x00",
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\xff\xff\x01\x00\x70",
    ):
        with pytest.raises(MalformedRequest):
            frames.read_request_header(head + rest, 0, len(head + rest))


@settings(max_examples=settings().max_examples * 4, deadline=None)
@given(data=st.binary(max_size=60))
def test_noise_is_malformed_or_a_header_within_its_bounds(data: bytes) -> None:
    try:
        *_, body_position = frames.read_request_header(data, 0, len(data))
    except MalformedRequest:
        return
    assert 10 <= body_position <= len(data)


def test_api_versions_answers_with_the_oldest_header() -> None:
    assert frames.response_header(7, 18, 4) == b"\x00\x00\x00\x07"
    assert frames.response_header(7, 18, 0) == b"\x00\x00\x00\x07"
    assert frames.response_header(7, 3, 8) == b"\x00\x00\x00\x07"
    assert frames.response_header(7, 3, 9) == b"\x00\x00\x00\x07\x00"


def test_response_headers_are_read_as_they_were_written() -> None:
    rng = random.Random(1)
    for api_key, api_version in ((18, 4), (3, 8), (3, 9), (1, 18)):
        correlation_id = rng.randrange(1 << 31)
        data = frames.response_header(correlation_id, api_key, api_version)
        assert frames.read_response_header(data, 0, len(data), api_key, api_version) == (correlation_id, len(data))
        for end in range(len(data)):
            with pytest.raises(MalformedRequest):
                frames.read_response_header(data, 0, end, api_key, api_version)


def test_frame_lengths() -> None:
    assert frames.read_frame_length(frames.frame_length(300), 0) == 300
    for data in (b"\xff\xff\xff\xff", b"\x00\x00\x00", b""):
        with pytest.raises(MalformedRequest):
            frames.read_frame_length(data, 0)
