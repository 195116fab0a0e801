"""A connection handles requests while earlier answers wait for others, and answers in the order of the requests."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.unit.server.echo import Client, Echo, served
from tiered.errors import RequestTimedOut
from tiered.server.kafka.transport.requests import MAX_OVERLAPPING, MAX_WAITING_BYTES


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with served(Echo) as client:
        yield client


async def test_later_requests_are_handled_and_answered_after_those_that_wait(client: Client) -> None:
    await client.send(b"wait 1", b"wait 2", b"now", b"none", b"last")
    await client.handled(5)
    client.echo.gates[b"wait 2"].set_result(None)
    await asyncio.sleep(0.01)
    client.echo.gates[b"wait 1"].set_result(None)
    assert await client.answers(4) == [b"wait 1", b"wait 2", b"now", b"last"]


async def test_a_request_that_may_not_be_overtaken_holds_up_the_next_one(client: Client) -> None:
    await client.send(b"wait", b"hold", b"after")
    await client.handled(2)
    await asyncio.sleep(0.01)
    assert client.echo.handled == [b"wait", b"hold"]
    client.echo.gates[b"hold"].set_result(None)
    await client.handled(3)
    client.echo.gates[b"wait"].set_result(None)
    assert await client.answers(3) == [b"wait", b"hold", b"after"]


async def test_a_request_may_hold_up_the_next_one_for_its_first_part_alone(client: Client) -> None:
    await client.send(b"both 1", b"both 2", b"now")
    await client.handled(1)
    await asyncio.sleep(0.01)
    for number in (1, 2):
        assert client.echo.handled == [b"both 1", b"both 2"][:number]
        client.echo.gates.pop(b"both %d" % number).set_result(None)
        await client.handled(number + 1)
        await asyncio.sleep(0.01)
    client.echo.gates[b"both 2"].set_result(None)
    await asyncio.sleep(0.01)
    client.echo.gates[b"both 1"].set_result(None)
    assert await client.answers(3) == [b"both 1", b"both 2", b"now"]


async def test_no_more_than_so_many_answers_wait(client: Client) -> None:
    frames = [b"wait %d" % number for number in range(MAX_OVERLAPPING + 10)]
    await client.send(*frames)
    await client.handled(MAX_OVERLAPPING)
    await asyncio.sleep(0.01)
    assert len(client.echo.handled) == MAX_OVERLAPPING
    for number, frame in enumerate(frames):
        await client.handled(min(MAX_OVERLAPPING + number, len(frames)))
        while frame not in client.echo.gates:
            await asyncio.sleep(0)
        client.echo.gates[frame].set_result(None)
        assert await client.answers(1) == [frame]


async def test_answers_that_are_known_count_among_those_that_wait(client: Client) -> None:
    frames = [b"now %d" % number for number in range(MAX_OVERLAPPING + 10)]
    await client.send(b"wait", *frames)
    await client.handled(MAX_OVERLAPPING)
    await asyncio.sleep(0.01)
    assert len(client.echo.handled) == MAX_OVERLAPPING
    client.echo.gates[b"wait"].set_result(None)
    assert await client.answers(1 + len(frames)) == [b"wait", *frames]


async def test_no_more_than_so_many_bytes_of_answers_wait(client: Client) -> None:
    frames = [b"now %d" % number + bytes(MAX_WAITING_BYTES // 2) for number in range(6)]
    sending = asyncio.create_task(client.send(b"wait", *frames))
    await client.handled(3)
    await asyncio.sleep(0.01)
    assert len(client.echo.handled) == 3
    client.echo.gates[b"wait"].set_result(None)
    assert await client.answers(1 + len(frames)) == [b"wait", *frames]
    await sending


async def test_an_answer_that_fails_ends_the_connection_and_all_that_wait(client: Client) -> None:
    await client.send(b"wait 1", b"wait 2")
    await client.handled(2)
    client.echo.gates[b"wait 2"].set_exception(RequestTimedOut("no"))
    with pytest.raises((AssertionError, ConnectionError)):
        await client.answers(1)
    assert client.echo.ended
    assert client.echo.gates[b"wait 1"].cancelled()


async def let_go(client: Client, frame: bytes) -> None:
    parked = client.echo.parked[frame]
    parked.is_let_go = True
    parked.call()
    await asyncio.sleep(0.01)


async def test_answers_without_a_task_keep_the_order_and_let_later_requests_in(client: Client) -> None:
    await client.send(b"park 60000", b"park 60001", b"now")
    await client.handled(3)
    await let_go(client, b"park 60001")
    await let_go(client, b"park 60000")
    assert await client.answers(3) == [b"park 60000", b"park 60001", b"now"]


async def test_one_without_a_task_may_hold_up_the_next_request(client: Client) -> None:
    await client.send(b"park 60000", b"pause 60000", b"after")
    await client.handled(2)
    await let_go(client, b"park 60000")
    assert client.echo.handled == [b"park 60000", b"pause 60000"]
    await let_go(client, b"pause 60000")
    assert await client.answers(3) == [b"park 60000", b"pause 60000", b"after"]


async def test_several_calls_in_one_turn_are_one_look_and_a_look_may_be_in_vain(client: Client) -> None:
    await client.send(b"park 60000")
    await client.handled(1)
    parked = client.echo.parked[b"park 60000"]
    for _ in range(3):
        parked.call()
    await asyncio.sleep(0.01)
    assert parked.looks == [False]
    await let_go(client, b"park 60000")
    assert await client.answers(1) == [b"park 60000"]
    parked.call()
    await asyncio.sleep(0.01)
    assert parked.looks == [False, False]


async def test_each_has_its_answer_when_its_own_patience_is_over(client: Client) -> None:
    await client.send(b"park 60000", b"park 30", b"park 10")
    await client.handled(3)
    quick, long = client.echo.parked[b"park 10"], client.echo.parked[b"park 60000"]
    async with asyncio.timeout(10):
        while not (quick.looks and client.echo.parked[b"park 30"].looks):
            await asyncio.sleep(0.005)
    assert (quick.looks, long.looks) == ([True], [])
    await let_go(client, b"park 60000")
    assert await client.answers(3) == [b"park 60000", b"park 30", b"park 10"]


async def test_what_still_has_to_be_done_for_an_answer_is_a_task(client: Client) -> None:
    await client.send(b"park 60000", b"now")
    await client.handled(2)
    client.echo.parked[b"park 60000"].finishing = client.echo.later(b"park 60000")
    client.echo.parked[b"park 60000"].call()
    await asyncio.sleep(0.01)
    client.echo.gates[b"park 60000"].set_result(None)
    assert await client.answers(2) == [b"park 60000", b"now"]


@pytest.mark.parametrize("error", [RequestTimedOut("no"), ValueError("a bug")])
async def test_one_without_a_task_that_fails_ends_the_connection_and_cancels_the_others(
    client: Client, error: Exception
) -> None:
    await client.send(b"park 60000", b"park 60001")
    await client.handled(2)
    client.echo.parked[b"park 60001"].error = error
    await let_go(client, b"park 60001")
    assert client.echo.ended
    assert client.echo.parked[b"park 60000"].is_cancelled
    await let_go(client, b"park 60000")
    assert client.echo.parked[b"park 60000"].looks == []


async def test_no_more_than_so_many_wait_without_a_task(client: Client) -> None:
    frames = [b"park %d" % (60_000 + number) for number in range(MAX_OVERLAPPING + 10)]
    await client.send(*frames)
    await client.handled(MAX_OVERLAPPING)
    await asyncio.sleep(0.01)
    assert len(client.echo.handled) == MAX_OVERLAPPING
    await let_go(client, frames[0])
    assert len(client.echo.handled) == MAX_OVERLAPPING + 1
