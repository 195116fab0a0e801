"""What the jobs of `spark/jobs` run in: their session, and a thread that tells how far the caller's action is.

Owns that thread. The action stays where it was called: a session, its data sources and Ctrl-C belong to that thread.
Must never print: what is shown is the job's.
"""

import threading
from collections.abc import Callable
from typing import TypeVar

from pyspark.sql import SparkSession

from pyspark_tiered import register

T = TypeVar("T")

LOOK_SECONDS = 0.5


def job_session(name: str) -> SparkSession:
    """The session of the job of this name, from whichever Python it was started. Raises `InvalidConfig`."""
    spark = SparkSession.builder.appName(name).getOrCreate()
    register(spark)
    return spark


def watched(action: Callable[[], T], look: Callable[[], None]) -> T:
    """The result or the error of `action`; `look` is called twice a second meanwhile, and once at the end."""
    over = threading.Event()

    def looking() -> None:
        while not over.wait(LOOK_SECONDS):
            look()

    thread = threading.Thread(target=looking, name="progress", daemon=True)
    thread.start()
    try:
        return action()
    finally:
        over.set()
        thread.join()
        look()


def stages(spark: SparkSession) -> str:
    """How many tasks of the stages that run now are done."""
    tracker = spark.sparkContext.statusTracker()
    found = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
    done, total = sum(each.numCompletedTasks for each in found if each), sum(each.numTasks for each in found if each)
    return f"{done:,} of {total:,} tasks"
