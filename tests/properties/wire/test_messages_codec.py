"""Every message of every version: our encoders write what kio writes, our decoders read what kio reads."""

import dataclasses
import importlib
import random
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties.wire.kio_samples import kio_bytes, kio_message, raw, sample
from tiered.errors import MalformedRequest
from tiered.wire import messages
from tiered.wire.schema import Message, MessagePlan, plan_of

KINDS = ("request", "response")
ALL = [
    (api_key, version, kind)
    for api_key, (_, first, last) in messages.APIS.items()
    for version in range(first, last + 1)
    for kind in KINDS
]


def kio_class(api_key: int, version: int, kind: str) -> Any:
    package = messages.APIS[api_key][0]
    module = importlib.import_module(f"kio.schema.{package}.v{version}.{kind}")
    return getattr(module, messages.message_class(api_key, version, kind).__name__)


def ours(value: Any) -> Any:
    """A kio value as our messages carry it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        made = plan_of(type(value)).message_class()
        for field in made.plan.fields:
            found = ours(getattr(value, field.name))
            setattr(made, field.name, -1 if found is None and field.kafka_type == "datetime_i64" else found)
        return made
    if isinstance(value, tuple):
        return tuple(ours(each) for each in value)
    return raw(value)


def decoder_of(api_key: int, version: int, kind: str) -> Any:
    return (
        messages.request_decoder(api_key, version) if kind == "request" else messages.response_decoder(api_key, version)
    )


def in_pieces(api_key: int, version: int, data: bytes, position: int) -> tuple[Any, int]:
    """(the request, how many pieces it was)"""
    decoding, pieces = messages.request_decoder_in_pieces(api_key, version)(data, position), 0
    while True:
        try:
            next(decoding)
        except StopIteration as end:
            return end.value, pieces
        pieces += 1


@pytest.mark.parametrize(("topics", "partitions"), [(1, 10_000), (10_000, 1), (100, 100), (1, 4097), (1, 8192)])
def test_a_request_of_ten_thousand_items_is_read_in_pieces_at_whatever_depth(topics: int, partitions: int) -> None:
    numbers = messages.request(61, 0)  # DescribeProducers has arrays of numbers, ListOffsets of structures.
    of_numbers = numbers.DescribeProducersRequest(
        topics=[
            numbers.TopicRequest(name=f"topic-{number}", partition_indexes=range(partitions))
            for number in range(topics)
        ]
    )
    structures = messages.request(2, 7)
    of_structures = structures.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=[
            structures.ListOffsetsTopic(
                name=f"topic-{number}",
                partitions=[
                    structures.ListOffsetsPartition(partition_index=index, current_leader_epoch=-1, timestamp=-1)
                    for index in range(partitions)
                ],
            )
            for number in range(topics)
        ],
    )
    for api_key, version, message, least_pieces in ((61, 0, of_numbers, 2), (2, 7, of_structures, 60)):
        data = bytes(messages.encode(message))
        read, pieces = in_pieces(api_key, version, data, 0)
        assert read == messages.request_decoder(api_key, version)(data, 0)
        assert pieces >= least_pieces
        with pytest.raises(MalformedRequest):
            in_pieces(api_key, version, data[:-1], 0)


@pytest.mark.parametrize("api_key", [key for key in messages.APIS if key not in (0, 1)])
def test_no_request_has_an_array_in_a_tagged_field(api_key: int) -> None:
    """It would be read in one piece. Produce and Fetch have codecs of their own."""

    def tagged_arrays(plan: MessagePlan) -> list[str]:
        own = [field.name for field in plan.fields if field.tag is not None and field.is_array]
        return own + [name for field in plan.fields if field.message for name in tagged_arrays(field.message)]

    _, first, last = messages.APIS[api_key]
    for version in range(first, last + 1):
        assert tagged_arrays(messages.message_class(api_key, version, "request").plan) == []


@pytest.mark.parametrize("api_key", messages.APIS)
def test_every_message_is_written_and_read_as_kio_does(api_key: int) -> None:
    _, first, last = messages.APIS[api_key]
    for version in range(first, last + 1):
        for kind in KINDS:
            rng = random.Random(api_key * 100 + version)
            decode = decoder_of(api_key, version, kind)
            for _ in range(15):
                theirs = sample(kio_class(api_key, version, kind), rng)
                message, data = ours(theirs), kio_bytes(theirs)
                assert messages.encode(message) == data, (version, kind, message)
                pieces = bytearray()
                assert sum(1 for _ in messages.encode_in_pieces(message, pieces)) >= 1
                assert pieces == data, (version, kind, message)
                assert decode(b"head" + data + b"tail", 4) == ours(kio_message(type(theirs), data))
                assert decode(memoryview(data), 0) == decode(data, 0)
                if kind == "request":
                    assert in_pieces(api_key, version, b"head" + data + b"tail", 4)[0] == decode(data, 0)


@pytest.mark.parametrize("api_key", messages.APIS)
def test_every_truncation_is_malformed(api_key: int) -> None:
    _, first, last = messages.APIS[api_key]
    for version in range(first, last + 1):
        for kind in KINDS:
            rng = random.Random(api_key * 100 + version)
            data = kio_bytes(sample(kio_class(api_key, version, kind), rng, max_items=2))[:3000]
            whole = decoder_of(api_key, version, kind)
            for end in range(len(data)):
                with pytest.raises(MalformedRequest):
                    whole(data[:end], 0)


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_counts_are_malformed_and_allocate_nothing(kind: str) -> None:
    for api_key, version, each in ALL:
        if each != kind:
            continue
        decode = decoder_of(api_key, version, kind)
        for data in (b"\xff\xff\xff\xff\x07" * 20, b"\x7f\xff\xff\xff" * 25, b"\xff\xff\xff\xff\xff\xff" * 20):
            try:
                decode(data, 0)
            except MalformedRequest:
                continue


def test_announced_items_that_do_not_fit_are_refused_before_they_are_read() -> None:
    with pytest.raises(MalformedRequest, match="announces 2147483647"):
        messages.request_decoder(3, 8)(struct.pack(">i", 0x7FFFFFFF), 0)
    with pytest.raises(MalformedRequest):
        messages.request_decoder(3, 12)(b"\xff\xff\xff\xff\x07", 0)


def test_a_message_of_more_than_a_million_items_is_refused() -> None:
    count = 1_000_001
    with pytest.raises(MalformedRequest, match="split"):
        messages.request_decoder(3, 1)(struct.pack(">i", count) + b"\x00\x00" * count, 0)


@settings(max_examples=100, deadline=None)
@given(
    which=st.sampled_from(ALL),
    seed=st.integers(0, 1000),
    changes=st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=6),
)
def test_altered_messages_parse_or_are_malformed(
    which: tuple[int, int, str], seed: int, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(kio_bytes(sample(kio_class(*which), random.Random(seed), max_items=2)))
    for where, value in changes:
        if data:
            data[where % len(data)] = value
    try:
        found = decoder_of(*which)(bytes(data), 0)
    except MalformedRequest:
        return
    assert isinstance(found, Message)
    # What was read can be written, and reads as the same again.
    assert repr(decoder_of(*which)(messages.encode(found), 0)) == repr(found)


def test_first_and_last_versions_know_every_class_and_field() -> None:
    for api_key, (package, first, last) in messages.APIS.items():
        for kind in KINDS:
            modules = {v: importlib.import_module(f"kio.schema.{package}.v{v}.{kind}") for v in range(first, last + 1)}
            for version, module in modules.items():
                for name, found in vars(module).items():
                    if not hasattr(found, "__flexible__") or found.__module__ != module.__name__:
                        continue
                    assert {f.name for f in dataclasses.fields(found)} <= messages._fields_elsewhere(
                        name, api_key, kind
                    ), (package, version, kind, name)
