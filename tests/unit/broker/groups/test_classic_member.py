"""One member of a classic group: when its silence counts, and what is shown of it."""

import asyncio
from dataclasses import replace

from tests.unit.broker.groups.coordinators import joining
from tiered.broker.groups.classic_member import ClassicMember
from tiered.broker.groups.values import JoinResult, MemberProtocol
from tiered.errors import NotCoordinator
from tiered.wire.consumer_protocol import Assignment, encode_assignment

RESULT = JoinResult(
    generation=1, protocol_type="consumer", protocol_name="range", leader="m", member_id="m", members=(),
    skip_assignment=False,
)  # fmt: skip


async def test_a_member_that_waits_is_heard_of_until_its_connection_goes() -> None:
    expired: list[str] = []
    member = ClassicMember("m", replace(joining(), session_timeout_ms=1), expired.append)
    waiting = member.wait_for_join()
    assert (member.is_heard_of, member.session.is_set) == (True, False)
    waiting.cancel()
    async with asyncio.timeout(20):
        while not expired:
            await asyncio.sleep(0.001)
    assert expired == ["m"], "silence counts from then on"
    assert (member.is_heard_of, member.has_joined) == (False, True), "the rebalance does not wait for it once more"
    assert not member.answer_join(RESULT), "nobody gets the answer"
    member.leave(NotCoordinator("elsewhere"))


async def test_metadata_of_no_consumer_is_shown_as_bytes_and_only_in_a_generation() -> None:
    garbage = MemberProtocol(name="range", metadata=b"\xff")
    member = ClassicMember("m", replace(joining(topic="orders"), protocols=(garbage,)), print)
    member.assignment = b"\xff"
    shown = member.describe("range")
    assert (shown.subscribed_topics, shown.assignment) == ((), {})
    assert (shown.metadata_bytes, shown.assignment_bytes) == (b"\xff", b"\xff")
    member.update(joining(topic="orders"))
    member.assignment = encode_assignment(Assignment(partitions={"orders": (1,)}, user_data=None))
    assert member.describe("range").assignment == {"orders": (1,)}
    between = member.describe("")
    assert between.subscribed_topics == ("orders",)
    assert (between.assignment, between.metadata_bytes, between.assignment_bytes) == ({}, b"", b"")
