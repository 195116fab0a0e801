"""What a leader finds for a follower's question, without its door: for tests whose brokers share one event loop."""

import asyncio

from tiered.broker.broker import Broker
from tiered.broker.replication.answer import FollowerFetchLook
from tiered.wire.fetch import FetchRequest


async def found_for(broker: Broker, request: FetchRequest) -> FollowerFetchLook:
    """As the door finds it: now, when there is enough, or at the end of the follower's patience."""
    answers = broker.replication.answers
    found = answers.look(request, is_first=True)
    if answers.is_enough(found, request):
        return found
    wait = answers.wait(request, found)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait.patience_ms / 1000.0
    changed = asyncio.Event()
    wait.begin(changed.set)
    try:
        while True:
            is_last = False
            try:
                async with asyncio.timeout_at(deadline):
                    await changed.wait()
            except TimeoutError:
                is_last = True
            changed.clear()
            enough = wait.found(is_last=is_last)
            if enough is not None:
                return enough
    finally:
        wait.cancel()
