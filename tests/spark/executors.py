"""A standalone Spark cluster: a master, and two workers that each run one executor, all of them real processes.

Owns these processes. Each worker has an address of its own, because Spark lets no second attempt of a task begin on the
host of the first.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pyspark

WORKERS = ("127.0.0.2", "127.0.0.3")
_DEPLOY = "org.apache.spark.deploy"
_DEADLINE_S = 120


@contextmanager
def two_executors(folder: Path) -> Iterator[str]:
    """The master's URL. Applications run one after another, and lose their executors when they end."""
    with ExitStack() as stack:
        master = folder / "master.log"
        stack.enter_context(_running(master, "master.Master", "--host", "127.0.0.1", "--port", "0"))
        url = _said(master, r"Starting Spark master at (spark://\S+)")
        for host in WORKERS:
            log = folder / f"{host}.log"
            room = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / host))
            stack.enter_context(_running(log, "worker.Worker", "--host", host, *room, url))
            _said(log, "(Successfully registered)")
        yield url


@contextmanager
def _running(log: Path, name: str, *arguments: str) -> Iterator[None]:
    home = Path(pyspark.__file__).parent
    told = {
        "SPARK_HOME": str(home),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        # An application whose executors die again and again is given new ones.
        "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [home / "bin" / "spark-class", f"{_DEPLOY}.{name}", "--webui-port", "0", *arguments],
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=os.environ | told,
        )
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # A worker's executors too.
        process.wait()


def _said(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + _DEADLINE_S
    while (found := re.search(pattern, log.read_text())) is None:
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
    return found[1]
