"""A broker that leaves the lead to others within seconds where it alone does not reach the object store, and not within
a minute.

`BrokerProcess(..., prefix=SOON_WITHOUT_STORE)` starts one: what stands behind the prefix is `python -m tiered.cli ...`.
"""

import runpy
import sys

from tiered.broker.view import store_reach

SOON_WITHOUT_STORE = (sys.executable, "-m", "tests.support.soon_without_store")
PASS_ON_AFTER_MS = 3_000.0

if __name__ == "__main__":
    store_reach.LOOK_AGAIN_MS = 200.0
    store_reach.REPORT_AFTER_MS = 500.0
    store_reach.PASS_ON_AFTER_MS = PASS_ON_AFTER_MS
    del sys.argv[1:3]
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
