"""kill -9 at every step of a compaction of the cold tier: nothing is lost or left behind, and the next run goes on."""

import os
import random
import signal
import subprocess
import sys

import pytest

from tests.support.cold_compaction import COMPACT, SETTINGS, committed, eventually, is_purged
from tests.support.cold_passes import compact
from tests.support.compacted_topics import Read, expected, read_confluent, write
from tests.unit.cold.verified_store import verify
from tiered.cold.opening import open_store
from tiered.testing import LocalCluster, cluster

POINTS = ["compact.planned", "compact.stored", "meta.replacements.swap.half", "compact.swapped"]
DYING = "import sys; from tests.support.cold_passes import compact_store; compact_store(*sys.argv[1:])"


def run_until_killed(c: LocalCluster, topic: str, point: str) -> None:
    """In the second wave: there is something done, something half done and something to do."""
    done = subprocess.run(
        [sys.executable, "-c", DYING, c.sql_url, c.store_url, topic],
        env={**os.environ, **c.aws_environ, "TIERED_CRASH_AT": f"{point}:2"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def wait_for(c: LocalCluster, topic: str, wanted: Read) -> None:
    """Returns once consumers read that."""
    eventually(lambda: read_confluent(c, topic) == wanted, "consumers read the newest of each key")


@pytest.mark.soak
def test_a_job_that_is_killed_at_any_step_loses_nothing_and_the_next_run_goes_on() -> None:
    chance, topics = random.Random(9), list[str]()
    # Objects of dead jobs are swept soon, and a job that lives needs less than that for a wave.
    with cluster(s3="moto", settings={**SETTINGS, "tiered.upload.timeout.ms": 5_000}) as c:
        for point in POINTS:
            topic = c.create_topic(configs=COMPACT)
            written = write(c, topic, [(b"key-%d" % chance.randrange(9), b"%d" % n + b"v" * 400) for n in range(40)])
            c.tier(topic, keep_local=False)
            before = [(row.base_offset, row.end_offset) for row in committed(c, topic)]
            run_until_killed(c, topic, point)
            found = read_confluent(c, topic)
            assert {*expected(written)} <= {*found} <= {*written}, point
            assert [(row.base_offset, row.end_offset) for row in committed(c, topic)] == before, point
            assert compact(c, topic).failed == {}, point
            wait_for(c, topic, expected(written))
            topics.append(topic)
        # The sweeps of all of them at once: each waits for the deadline of what the dead had planned.
        eventually(lambda: all(is_purged(c, topic) for topic in topics), "the controller sweeps what nobody owns")
        found_in_store = verify(open_store(c.store_url), with_orphans=True)
        assert (found_in_store.problems, found_in_store.orphans) == ([], [])
