"""What consumers say in group messages: read as far as it goes, whatever version is claimed."""

import struct

import pytest

from tiered.errors import MalformedRequest
from tiered.wire.consumer_protocol import Subscription, decode_subscription, encode_subscription

WHOLE = Subscription(topics=("a", "b"), owned_partitions={"a": (0, 2)}, generation=7, rack="r", user_data=b"u")
ENCODED = encode_subscription(WHOLE)
TOPICS_END = len(encode_subscription(Subscription(topics=("a", "b"), version=0))) - 4
"""Where the topics end, and user data begins."""


def test_a_subscription_is_read_as_it_was_written() -> None:
    assert decode_subscription(ENCODED) == WHOLE


@pytest.mark.parametrize("end", range(TOPICS_END, len(ENCODED)))
def test_a_subscription_that_ends_early_keeps_what_is_there(end: int) -> None:
    found = decode_subscription(ENCODED[:end])
    assert found.topics == ("a", "b")
    assert found.user_data in (None, b"u")
    assert found.owned_partitions in ({}, {"a": (0, 2)})
    assert (found.generation, found.rack) in ((-1, None), (7, None))


@pytest.mark.parametrize("version", [-1, 0, 1, 2, 3, 4, 32767])
def test_topics_are_read_whatever_version_is_claimed(version: int) -> None:
    for rest in (b"", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"):
        assert decode_subscription(struct.pack(">h", version) + ENCODED[2:TOPICS_END] + rest).topics == ("a", "b")


@pytest.mark.parametrize("data", [ENCODED[:end] for end in range(TOPICS_END)])
def test_a_subscription_without_all_its_topics_is_none(data: bytes) -> None:
    with pytest.raises(MalformedRequest):
        decode_subscription(data)
