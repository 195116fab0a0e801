"""By what the password of somebody unknown is checked: as that of most users, so that it takes as long; and how much of
the threads that check passwords one address may have."""

import asyncio
import threading
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from tiered.account import Account, on_behalf_of
from tiered.broker.security.credentials import THREADS, Credentials
from tiered.meta.security import ScramCredentialRow
from tiered.rules.security.sasl import scram
from tiered.rules.security.sasl.mechanism import ScramMechanism
from tiered.server.kafka.transport.turns import Stepped, let_others

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512


def row(user_name: str, mechanism: ScramMechanism) -> ScramCredentialRow:
    size = mechanism.digest_bytes
    return ScramCredentialRow(
        user_name=user_name,
        mechanism=str(mechanism),
        salt=b"salt",
        stored_key=bytes(size),
        server_key=bytes(size),
        iterations=4096,
    )


@pytest.mark.parametrize("usual", [SHA_256, SHA_512])
async def test_somebody_unknown_costs_what_most_users_cost(
    usual: ScramMechanism, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[ScramMechanism] = []

    def is_password(mechanism: ScramMechanism, *_: object) -> bool:
        asked.append(mechanism)
        return False

    monkeypatch.setattr(scram, "is_password", is_password)
    rows = tuple(row(name, usual) for name in ("alice", "bob"))
    state: Any = SimpleNamespace(security=SimpleNamespace(credentials=rows))
    nothing: Any = None
    credentials = Credentials(state=state, feed=nothing, changes=nothing)
    for name in ("alice", "nobody"):
        assert await credentials.by_password(name, "x") is None
    credentials.close()
    assert asked == [usual, usual]


async def test_an_address_that_tries_passwords_and_hangs_up_fills_the_room_of_no_other() -> None:
    state: Any = SimpleNamespace(security=SimpleNamespace(credentials=()))
    nothing: Any = None
    credentials, may_end = Credentials(state=state, feed=nothing, changes=nothing), threading.Event()

    def checked(address: str) -> "asyncio.Task[bool]":
        step = partial(on_behalf_of, Account(address))
        return asyncio.create_task(Stepped(credentials.in_turn(lambda: may_end.wait(30)), step=step, pause=let_others))

    for _ in range(3):
        tries = [checked("203.0.113.7") for _ in range(400)]
        await asyncio.sleep(0.01)
        for task in tries:
            task.cancel()
        await asyncio.wait(tries)
    other = checked("198.51.100.1")
    await asyncio.sleep(0.01)
    assert credentials._pool.pending == THREADS + 1, "the other's is the next"
    may_end.set()
    assert await other
    credentials.close()
