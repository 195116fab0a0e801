"""Classes of messages: one for each of kio's, whoever asks for it first."""

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from kio.schema.offset_fetch.v7.request import OffsetFetchRequest

from tiered.wire import schema
from tiered.wire.schema import MessagePlan, plan_of

THREADS = 8


def test_threads_that_ask_at_once_get_one_class() -> None:
    known = schema._plans.pop(OffsetFetchRequest, None)
    together = Barrier(THREADS)

    def ask(_: int) -> MessagePlan:
        together.wait()
        return plan_of(OffsetFetchRequest)

    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(THREADS) as threads:
            plans = list(threads.map(ask, range(THREADS)))
    finally:
        sys.setswitchinterval(usual_s)
        if known is not None:
            schema._plans[OffsetFetchRequest] = known
    assert len({id(plan.message_class) for plan in plans}) == 1
