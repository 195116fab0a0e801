"""PySpark's daemon with everything imported that its workers need: Spark forks each worker from it.

To import the source, Arrow and boto3 takes a worker longer than most reads of these tests. On a cluster workers live
for hours. Must never start a thread or open a connection: workers inherit what is here.
"""

import gc
import importlib
import pkgutil

import boto3.session
from pyspark import daemon

import pyspark_tiered

gc.disable()
for name in ("pyspark.worker", "pyspark.sql.worker.plan_data_source_read", "botocore.httpsession"):
    importlib.import_module(name)
for each in pkgutil.iter_modules(pyspark_tiered.__path__, "pyspark_tiered."):
    importlib.import_module(each.name)
# The service's description, which botocore parses for the first client of a process.
boto3.session.Session(region_name="us-east-1").client("s3", aws_access_key_id="none", aws_secret_access_key="none")
gc.freeze()
gc.enable()

if __name__ == "__main__":
    daemon.manager()
