"""A broker that pauses after each item of a long loop, so that whatever can happen in a pause does.

`BrokerProcess(..., prefix=TURN_BY_TURN)` starts one: what stands behind the prefix is `python -m tiered.cli ...`.
"""

import runpy
import sys

from tiered import runtime

TURN_BY_TURN = (sys.executable, "-m", "tests.support.turn_by_turn")

if __name__ == "__main__":
    runtime.TURN_MS = 0.0
    del sys.argv[1:3]
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
