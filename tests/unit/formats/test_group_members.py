"""The stored members of groups: what is read is what was written, and nothing else is read."""

import zlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.golden import regenerate as golden
from tests.properties.formats.batches import mutations
from tiered.errors import CorruptObject, UnknownFormat
from tiered.formats import group_members
from tiered.formats.checkpoint_bytes import encode_checkpoint
from tiered.formats.group_members import (
    KeptClassicGroup,
    KeptClassicMember,
    KeptConsumerGroup,
    KeptConsumerMember,
    KeptProtocol,
    decode_classic_group,
    decode_consumer_group,
    encode_classic_group,
    encode_consumer_group,
)

CLASSIC, CONSUMER = encode_classic_group(golden.classic_group()), encode_consumer_group(golden.consumer_group())
PLAIN, STATIC = golden.classic_group().members
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@settings(max_examples=settings().max_examples * 2)
@given(
    st.builds(
        KeptClassicMember,
        member_id=texts,
        client_id=texts,
        client_host=texts,
        session_timeout_ms=st.integers(0, 2**31 - 1),
        rebalance_timeout_ms=st.integers(-1, 2**31 - 1),
        protocols=st.lists(st.builds(KeptProtocol, name=texts, metadata=st.binary(max_size=20)), max_size=2).map(
            lambda found: (KeptProtocol(name="range", metadata=b""), *found)
        ),
        assignment=st.binary(max_size=20),
        instance_id=st.none() | texts,
    )
)
def test_any_classic_member_comes_back_as_it_was(member: KeptClassicMember) -> None:
    group = KeptClassicGroup(generation=1, protocol_name="range", leader=member.member_id, members=(member,))
    assert decode_classic_group(encode_classic_group(group)) == group


@pytest.mark.parametrize("whole", [CLASSIC, CONSUMER], ids=["classic", "consumer"])
def test_altered_bytes_are_refused(whole: bytes) -> None:
    decode = decode_classic_group if whole is CLASSIC else decode_consumer_group

    @settings(max_examples=settings().max_examples * 4)
    @given(mutations(whole))
    def check(data: bytes) -> None:
        if data != whole:
            with pytest.raises(CorruptObject):
                decode(data)

    check()


@pytest.mark.parametrize(
    "group",
    [
        KeptClassicGroup(generation=1, protocol_name="range", leader="nobody", members=(PLAIN,)),
        KeptClassicGroup(generation=1, protocol_name="other", leader=PLAIN.member_id, members=(PLAIN,)),
        KeptClassicGroup(generation=1, protocol_name="range", leader="", members=()),
        KeptClassicGroup(generation=1, protocol_name="range", leader=PLAIN.member_id, members=(PLAIN, PLAIN)),
        KeptClassicGroup(
            generation=1,
            protocol_name="range",
            leader="a",
            members=(replace(STATIC, member_id="a"), replace(STATIC, member_id="b")),
        ),
        KeptClassicGroup(
            generation=1, protocol_name="range", leader=PLAIN.member_id, members=(replace(PLAIN, protocols=()),)
        ),
    ],
)
def test_a_classic_group_that_cannot_be_is_refused(group: KeptClassicGroup) -> None:
    with pytest.raises(CorruptObject):
        decode_classic_group(encode_classic_group(group))


def test_a_consumer_group_in_which_two_have_one_partition_is_refused() -> None:
    plain: KeptConsumerMember = golden.consumer_group().members[0]
    for members in ((plain, replace(plain, member_id="other")), (plain, plain), ()):
        group: KeptConsumerGroup = replace(golden.consumer_group(), members=members)
        with pytest.raises(CorruptObject):
            decode_consumer_group(encode_consumer_group(group))


def test_another_version_and_the_other_kind_are_refused() -> None:
    newer = zlib.compress(encode_checkpoint("tiered.classic-group/2", golden.classic_group()))
    with pytest.raises(UnknownFormat):
        decode_classic_group(newer)
    with pytest.raises(CorruptObject):
        decode_consumer_group(CLASSIC)


def test_bytes_that_unpack_to_too_much_are_refused_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_members, "MAX_CHECKPOINT_BYTES", 100)
    with pytest.raises(CorruptObject, match="too many"):
        decode_classic_group(zlib.compress(bytes(1 << 20)))
    with pytest.raises(CorruptObject, match="more than 100"):
        encode_classic_group(golden.classic_group())
