"""A driver whose environment is not activated: Spark's workers have to be its Python, or an error says what to set."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs import verify
from pyspark_tiered import register
from tests.spark.bucket import Bucket, batches_of, records
from tiered.errors import InvalidConfig

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.spark


@pytest.fixture
def unactivated(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Spark as it is when only the path says which Python to start, and the first one there is not the driver's."""
    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "python3")
    yield monkeypatch
    monkeypatch.undo()
    register(spark)


def filled(bucket: Bucket) -> Bucket:
    bucket.add_segment("orders", 0, batches_of(records(0, 10)))
    bucket.publish()
    return bucket


def test_a_registered_source_reads_with_the_drivers_python(
    unactivated: pytest.MonkeyPatch, spark: SparkSession, bucket: Bucket
) -> None:
    register(spark)
    orders = spark.read.format("tiered").option("store", filled(bucket).url).option("subscribe", "orders")
    assert orders.load().count() == 10


def test_jobs_run_with_the_drivers_python(
    unactivated: pytest.MonkeyPatch, bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify.main([filled(bucket).url]) == 0
    assert capsys.readouterr().out.startswith("checked 1 of 1 segment in 1 partition")


@pytest.mark.slow
def test_a_job_runs_by_plain_python_where_the_environment_is_not_activated(bucket: Bucket, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").symlink_to("/bin/false")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    environment["PATH"] = f"{tmp_path}/bin:{environment['PATH']}"
    environment["PYTHONPATH"] = f"{ROOT}:{ROOT}/spark"
    words = ["--store", filled(bucket).url, "--topic", "orders", "--to-parquet", f"{tmp_path}/orders"]
    job = subprocess.run(
        [sys.executable, f"{ROOT}/spark/jobs/replay.py", *words], env=environment, capture_output=True, text=True
    )
    assert job.returncode == 0, job.stderr
    assert json.loads(job.stdout)["records"] == 10, "stdout is the summary alone"


@pytest.mark.parametrize("command", ["python3", "no-such-python"])
def test_a_python_that_the_user_chose_is_kept_and_refused_by_name_if_it_lacks_the_package(
    unactivated: pytest.MonkeyPatch, spark: SparkSession, command: str
) -> None:
    unactivated.setenv("PYSPARK_PYTHON", command)
    unactivated.setattr(spark.sparkContext, "pythonExec", command)
    with pytest.raises(InvalidConfig, match=f"as {command}, which cannot load pyspark_tiered: .* set PYSPARK_PYTHON"):
        register(spark)
    assert spark.sparkContext.pythonExec == command


def test_executors_on_other_machines_are_not_given_the_drivers_path(
    unactivated: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    unactivated.setattr(spark.sparkContext, "master", "spark://master:7077")
    with pytest.raises(InvalidConfig, match="as python3, which cannot load pyspark_tiered"):
        register(spark)
    assert spark.sparkContext.pythonExec == "python3"
