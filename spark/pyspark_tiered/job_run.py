"""How a job of `spark/jobs` waits for Spark: the action in a thread, a look at its progress from the caller's.

Owns that thread, and that Ctrl-C ends what Spark does for it. Must never print: what is shown is the job's.
"""

import threading
from collections.abc import Callable
from typing import TypeVar

from pyspark.sql import SparkSession

T = TypeVar("T")

LOOK_SECONDS = 0.5


def watched(spark: SparkSession, action: Callable[[], T], look: Callable[[], None]) -> T:
    """What `action` gives, or raises; `look` is called twice a second meanwhile, and once at the end.

    When the caller is interrupted, the session's jobs are cancelled, and `action` is waited for.
    """
    found: list[T] = []
    raised: list[BaseException] = []

    def act() -> None:
        try:
            found.append(action())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that asked
            raised.append(error)

    thread = threading.Thread(target=act, name="spark-action", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(LOOK_SECONDS)
            look()
    except BaseException:
        spark.sparkContext.cancelAllJobs()
        thread.join()
        raise
    if raised:
        raise raised[0]
    return found[0]
