"""Which Python a Spark session starts as its workers.

Spark takes the one that `PYSPARK_PYTHON` names, and without it the first `python3` on the path: another one than the
driver's where a virtual environment is not activated, as in an IDE, a notebook or cron. Must never overrule a user's
choice, and never name a path of the driver's machine to executors on other machines.
"""

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tiered.errors import InvalidConfig

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


def use_this_python(spark: "SparkSession") -> None:
    """Makes the driver's Python that of the workers too, where all are on this machine and nobody chose another one."""
    context = _context(spark)
    if context is None or not sys.executable or not str(context.master).startswith("local"):
        return
    if not os.environ.get("PYSPARK_PYTHON") and not context.getConf().contains("spark.pyspark.python"):
        context.pythonExec = sys.executable


def check_workers(spark: "SparkSession", source: str) -> None:
    """Nothing where a worker can load the data source of this name. Raises `InvalidConfig` that says what to set."""
    context = _context(spark)
    if context is None or _is_this_python(context.pythonExec):
        return
    try:
        spark.read.format(source).load()  # A worker says which columns there are; nothing is read.
    except (PySparkException, Py4JError) as error:  # The latter where the command cannot be run at all.
        raise InvalidConfig(
            f"Spark starts its Python workers as {context.pythonExec}, which cannot load pyspark_tiered: before the "
            "session begins, set PYSPARK_PYTHON to a Python that has it on the driver and on every executor (the "
            f"driver's is {sys.executable})"
        ) from error


def _context(spark: "SparkSession") -> "SparkContext | None":
    """The session's context; None with Spark Connect, whose server starts the workers."""
    context: SparkContext | None = getattr(spark, "sparkContext", None)
    return context


def _is_this_python(command: str) -> bool:
    path = shutil.which(command)
    if path is None or not sys.executable:
        return False
    named, own = Path(path), Path(sys.executable)
    return named.parent == own.parent and named.resolve() == own.resolve()
