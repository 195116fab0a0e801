"""Compacts the cold tier of compacted topics: of each key the newest record stays, offsets are what they were.

    spark-submit spark/jobs/compact.py --store s3://logs/prod --meta postgresql://tiered@db/tiered --topic accounts

Owns the job: what is due is found out of SQL, the newest offset of each key by executors, and then, wave by wave,
executors write the compacted objects and the driver swaps them into the metadata store (in the order of
`broker.tiering.cold_compaction`). Must never ask a broker. Whatever stops it, nothing is lost: what was swapped in is
done, what was not is swept, and the next run goes on.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyspark_tiered import compaction
from pyspark_tiered.cold_read import store_of
from pyspark_tiered.compaction import ScannedSegment
from pyspark_tiered.job_run import job_session, stages, watched
from tiered.broker.tiering.cold_compaction import ColdCompaction, DueCompactions, DuePartition, Order
from tiered.cli.arguments import Parser, positive
from tiered.cli.failure import EXIT_FAILED, EXIT_OK, CommandFailed
from tiered.cli.main import ended
from tiered.cli.meta_password import meta_url, password_argument
from tiered.cli.output import counted, print_json
from tiered.cli.progress import long_work
from tiered.errors import CorruptObject
from tiered.meta.engine import Database
from tiered.runtime import SystemClock

WAVE_BYTES_A_CORE = 256 << 20
"""A wave has to be written within tiered.upload.timeout.ms, or the brokers take it for dead."""

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"

Show = Callable[[int, str], None]


def build_parser() -> Parser:
    parser = Parser(
        prog="compact.py",
        description="Compact what compacted topics have in the object store: of each key the newest record stays, "
        "tombstones for delete.retention.ms. Offsets stay as they are, and brokers serve all the time. The summary is "
        "one JSON object on stdout. Exit code 0 when all that was due is compacted, 1 when some of it is not (run it "
        "again: it goes on), 2 usage.",
    )
    parser.add_argument("--store", metavar="URL", required=True, help="the object store, as executors see it")
    parser.add_argument("--meta", metavar="URL", required=True, help="the metadata store, as for `tiered serve --meta`")
    password_argument(parser)
    parser.add_argument("-t", "--topic", metavar="TOPIC", action="append", help="this topic alone; may be repeated")
    parser.add_argument(
        "--all", action="store_true", dest="everything",
        help="also what is not due by min.cleanable.dirty.ratio and max.compaction.lag.ms",
    )  # fmt: skip
    parser.add_argument("--plan", action="store_true", help="say what is due, and change nothing")
    parser.add_argument(
        "--wave-mib", metavar="N", type=positive, help="swap after so many MiB of segments (256 for each core)"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job and gives its exit code."""
    arguments = build_parser().parse_args(argv)
    return ended("compact.py", lambda: run(arguments))


def run(arguments: argparse.Namespace) -> int:
    clock = SystemClock()
    started_ms = clock.monotonic_ms()
    database = Database.open(meta_url(arguments))
    try:
        job = ColdCompaction(database, store_of(arguments.store))
        found = job.look(arguments.topic)
        chosen = [each for each in found.partitions if each.rows and (each.due.is_due or arguments.everything)]
        keys = 0
        if chosen and not arguments.plan:
            spark = job_session("tiered-compact")
            keys = Compact(spark, arguments, job, found, chosen).run()
        summary = _summary(found, chosen, job) | {"keys": keys}
        print_json(summary | {"seconds": round((clock.monotonic_ms() - started_ms) / 1000, 3)})
        return EXIT_FAILED if job.state.failed else EXIT_OK
    finally:
        database.close_sync()


class Compact:
    """One run over the chosen partitions."""

    def __init__(
        self,
        spark: SparkSession,
        arguments: argparse.Namespace,
        job: ColdCompaction,
        found: DueCompactions,
        chosen: Sequence[DuePartition],
    ) -> None:
        self._spark = spark
        self._store_url = store_of(arguments.store).url
        self._job = job
        self._found = found
        self._chosen = chosen
        cores = spark.sparkContext.defaultParallelism
        self._wave_bytes = arguments.wave_mib << 20 if arguments.wave_mib else cores * WAVE_BYTES_A_CORE
        rows = [(index, partition, row) for index, partition in enumerate(chosen) for row in partition.rows]
        self._numbers = {row.object_id: number for number, (_, _, row) in enumerate(rows)}
        self._scanned = [
            ScannedSegment(number=self._numbers[row.object_id], partition=index, place=partition.place_of(row))
            for index, partition, row in rows
        ]

    def run(self) -> int:
        """How many keys there are. Raises CommandFailed when Spark gives up."""
        log_bytes = sum(each.place.segment.log_bytes for each in self._scanned)
        segments = counted(len(self._scanned), "segment")
        partitions_before = self._spark.conf.get(SHUFFLE_PARTITIONS)
        self._spark.conf.set(SHUFFLE_PARTITIONS, self._shuffle_partitions(log_bytes, int(partitions_before or 1)))
        newest = compaction.newest_offsets(self._spark, self._store_url, self._scanned)
        try:
            # Each byte is read twice.
            with long_work(2 * log_bytes, segments) as show:
                keys = watched(newest.count, lambda: show(0, f"keys of {segments}: {stages(self._spark)}"))
                unreadable = compaction.unreadable(newest)
                for segment in self._scanned:
                    if segment.number in unreadable:
                        key = segment.place.segment.object_key
                        words = f"{key} cannot be read: `tiered verify` says what is wrong with it"
                        self._job.cannot_read(self._chosen[segment.partition], CorruptObject(words))
                self._write(newest, show, log_bytes)
                return keys - len(unreadable)
        except PySparkException as error:
            raise CommandFailed(
                f"Spark gave up, and what was swapped in stays: {str(error).splitlines()[0]}"
            ) from error
        finally:
            newest.unpersist()
            self._spark.conf.set(SHUFFLE_PARTITIONS, partitions_before or 1)

    def _shuffle_partitions(self, log_bytes: int, allowed: int) -> int:
        """As many as there are tasks in the scan, or cores: what is kept is not coalesced, and each costs a task in
        every wave."""
        wanted = max(self._spark.sparkContext.defaultParallelism, log_bytes // compaction.SCAN_BYTES)
        return min(wanted, allowed)

    def _write(self, newest: DataFrame, show: Show, done_bytes: int) -> None:
        job = self._job
        for wave in job.waves(self._chosen, wave_bytes=self._wave_bytes):
            orders = job.begin(self._found, wave)
            if orders:
                self._carry_out(newest, orders)
            done_bytes += sum(row.log_bytes for _, row in wave)
            replaced = counted(job.state.replaced_segments, "segment")
            show(done_bytes, f"{replaced} replaced, {job.state.removed_records:,} records removed")

    def _carry_out(self, newest: DataFrame, orders: Sequence[Order]) -> None:
        numbered = {self._numbers[order.row.object_id]: order for order in orders}
        try:
            done = compaction.rewritten(
                self._spark,
                self._store_url,
                newest,
                {number: order.rewrite for number, order in numbered.items()},
            )
        except BaseException:
            # Also for Ctrl-C: what nobody will swap in need not wait for the brokers to sweep it.
            self._job.give_up(orders)
            raise
        self._job.finish(orders, {order.object_id: done[number] for number, order in numbered.items()})


def _summary(found: DueCompactions, chosen: Sequence[DuePartition], job: ColdCompaction) -> dict[str, Any]:
    state = job.state
    due = {id(each) for each in chosen}
    return {
        "partitions": [
            {
                "topic": each.topic.name,
                "partition": each.partition,
                "chosen": id(each) in due,
                "why": each.due.why.value,
                "dirty_ratio": round(each.due.dirty_ratio, 4),
                "segments": len(each.rows),
                "end_offset": each.due.end_offset,
                "held_by_snapshot": each.held_by,
                "failed": state.failed.get(each.name),
            }
            for each in found.partitions
        ],
        "looked_at_segments": state.looked_at_segments,
        "replaced_segments": state.replaced_segments,
        "removed_records": state.removed_records,
        "removed_bytes": state.removed_bytes,
    }


if __name__ == "__main__":
    sys.exit(main())
