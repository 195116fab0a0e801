"""Cuts, refused connections, and answers that are lost while the question had its effect."""

import asyncio
from random import Random

import pytest

from tests.simulation.loop import Process, SimLoop
from tests.simulation.network import Network, Unanswered


def test_an_answer_comes_back_from_the_other_process(loop: SimLoop) -> None:
    network, process = Network(loop, Random(1)), Process(loop, "b2")

    async def work() -> str:
        return "hello"

    async def ask() -> str:
        return await network.call("b1", "b2", process, work, timeout_s=1)

    assert loop.run_until_complete(ask()) == "hello"
    assert 0 < loop.time() < 0.2


def test_an_error_comes_back_as_it_was_raised(loop: SimLoop) -> None:
    network, process = Network(loop, Random(1)), Process(loop, "b2")

    async def work() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        loop.run_until_complete(network.call("b1", "b2", process, work, timeout_s=1))


@pytest.mark.parametrize(("cut", "effect"), [(("b1", "b2"), 0), (("b2", "b1"), 1)])
def test_a_one_way_cut_loses_the_question_or_the_answer(loop: SimLoop, cut: tuple[str, str], effect: int) -> None:
    network, process, done = Network(loop, Random(1)), Process(loop, "b2"), []
    network.cut(*cut)

    async def work() -> None:
        done.append(1)

    with pytest.raises(Unanswered):
        loop.run_until_complete(network.call("b1", "b2", process, work, timeout_s=1))
    assert len(done) == effect


def test_a_dead_process_refuses_at_once_and_a_stopped_one_answers_later(loop: SimLoop) -> None:
    network = Network(loop, Random(1))
    dead, stopped = Process(loop, "b2"), Process(loop, "b3")
    dead.kill()
    stopped.pause()
    loop.call_later(0.5, stopped.resume)

    async def work() -> float:
        return loop.time()

    async def ask() -> None:
        with pytest.raises(Unanswered, match="refused"):
            await network.call("b1", "b2", dead, work, timeout_s=10)
        assert loop.time() < 0.2
        assert await network.call("b1", "b3", stopped, work, timeout_s=10) >= 0.5

    loop.run_until_complete(asyncio.wait_for(ask(), 5))
