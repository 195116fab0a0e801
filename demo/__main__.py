"""`make demo`: produce a year of flights, tier them, replay the bucket with Spark, follow the tail, compare.

Owns the order of the story and its words. Exits 0 only when what was produced, replayed and streamed agrees.
"""

import argparse
import bisect
import contextlib
import os
import shutil
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from demo.checksum import Checksum
from demo.flights import ALL_FLIGHTS, Flight, read_flights
from demo.services import BUCKET, Broker, ServiceFailed, s3_client, s3_server, store_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "flights"
PARTITIONS = 4
TOPIC_CONFIGS = {
    "segment.bytes": str(4 << 20),  # small, so that a year of flights is some thirty segments
    "segment.ms": "8000",  # the last, partly filled ones are closed by their age
    "retention.ms": "-1",  # these records are from 2013 and may stay
    "local.retention.ms": "1",  # what is in the bucket leaves the local disk
}
BROKER_SETTINGS = {
    "log.retention.check.interval.ms": "500",
    "tiered.upload.interval.ms": "200",
    "log.segment.delete.delay.ms": "0",
}
DECEMBER_MS = 1_385_874_000_000  # 2013-12-01T00:00 in New York: what arrives while Spark already follows
LIVE_SHARE = 0.09  # the same of a part of the year that has no December
LIVE_SECONDS = 30
STREAM_BATCHES = 20
TIER_TIMEOUT_SECONDS = 90
STREAM_TIMEOUT_SECONDS = 120


@dataclass(slots=True)
class Row:
    """One line of the summary."""

    what: str
    checksum: Checksum
    seconds: float | None = None


@dataclass(slots=True, kw_only=True)
class Story:
    """Everything that the steps share."""

    console: Console
    folder: Path
    flights: list[Flight]
    broker: Broker
    s3_url: str
    produced: Checksum = field(default_factory=Checksum)
    end_offsets: dict[int, int] = field(default_factory=dict)

    def say(self, text: str) -> None:
        self.console.print(f"  {text}")

    def title(self, number: int, text: str) -> None:
        self.console.print(f"\n[bold cyan]{number}. {text}[/]")

    def progress(self) -> Progress:
        columns = (TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        return Progress(*columns, console=self.console)


def create_topic(story: Story) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": story.broker.bootstrap})
    topic = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1, config=TOPIC_CONFIGS)
    admin.create_topics([topic])[TOPIC].result(30)


def keep_tail_hot(story: Story) -> None:
    """From now on only full segments are closed, so that what arrives next stays on the broker's disk for a while."""
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

    change = ConfigEntry("segment.ms", "600000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[change])
    admin = AdminClient({"bootstrap.servers": story.broker.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(30)


def produce(story: Story, flights: list[Flight], *, per_second: int | None = None, show: bool = True) -> float:
    """Produces `flights` with acks=all and an idempotent producer; every acknowledgement goes into the checksum."""
    from confluent_kafka import KafkaError, Message, Producer

    def acknowledged(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise ServiceFailed(f"a record was not acknowledged: {error}")
        partition, offset = message.partition(), message.offset()
        key, value, (_, timestamp_ms) = message.key(), message.value(), message.timestamp()
        assert partition is not None and offset is not None and key is not None and value is not None
        story.produced.add_record(partition=partition, offset=offset, timestamp_ms=timestamp_ms, key=key, value=value)
        story.end_offsets[partition] = max(story.end_offsets.get(partition, 0), offset + 1)

    producer = Producer(
        {"bootstrap.servers": story.broker.bootstrap, "enable.idempotence": True, "linger.ms": 20, "acks": "all"}
    )
    started = time.monotonic()
    with story.progress() if show else contextlib.nullcontext() as progress:
        task = progress.add_task("produced", total=len(flights)) if progress else None
        for number, flight in enumerate(flights):
            while True:
                try:
                    producer.produce(
                        TOPIC, flight.value, flight.key, timestamp=flight.timestamp_ms, on_delivery=acknowledged
                    )
                    break
                except BufferError:
                    producer.poll(0.05)
            if number % 1000 == 0:
                producer.poll(0)
                if progress and task is not None:
                    progress.update(task, completed=number)
                if per_second is not None:
                    time.sleep(max(0.0, started + number / per_second - time.monotonic()))
        left = producer.flush(60)
        if progress and task is not None:
            progress.update(task, completed=len(flights))
    if left:
        raise ServiceFailed(f"{left} records were not acknowledged within a minute")
    return time.monotonic() - started


def wait_until_cold(story: Story) -> float:
    """Waits until every record is in the bucket and no local copy is left, by what the catalogue says."""
    started = time.monotonic()
    total = sum(story.end_offsets.values())
    uploaded = moved = 0
    with story.progress() as progress:
        in_bucket = progress.add_task("in the bucket", total=total)
        only_there = progress.add_task("only in the bucket", total=total)
        while time.monotonic() - started < TIER_TIMEOUT_SECONDS:
            tiers = records_by_tier(story)
            uploaded, moved = tiers["cold"] + tiers["both"], tiers["cold"]
            progress.update(in_bucket, completed=uploaded)
            progress.update(only_there, completed=moved)
            if moved == total:
                return time.monotonic() - started
            time.sleep(0.25)
    raise ServiceFailed(
        f"after {TIER_TIMEOUT_SECONDS} s {uploaded:,} of {total:,} records are in the bucket, {moved:,} only there"
    )


def show_bucket(story: Story) -> None:
    objects = 0
    size_bytes = 0
    for page in s3_client(story.s3_url).get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
        for each in page.get("Contents", []):
            if each["Key"].endswith(".seg"):
                objects += 1
                size_bytes += each["Size"]
    local = sum(path.stat().st_size for path in (story.folder / "data" / "log").rglob("*.log"))
    story.say(
        f"the bucket holds {objects} segments, {size_bytes / 1e6:.1f} MB; local log files hold {local / 1e6:.1f} MB"
    )


def replay(story: Story, spark: "SparkSession") -> Row:
    from demo.checksum import checksum_of
    from demo.sparks import from_bucket

    started = time.monotonic()
    frame = from_bucket(spark, store=store_url(story.s3_url), topic=TOPIC)
    checksum = checksum_of(frame)
    seconds = time.monotonic() - started
    story.say(f"Spark read {checksum.records:,} records in {seconds:.1f} s from {frame.rdd.getNumPartitions()} splits")
    frame.createOrReplaceTempView("flights")
    table = Table("carrier", "flights", "mean delay at departure", box=None, padding=(0, 3))
    for row in spark.sql(
        "select string(key) carrier, count(*) n,"
        " avg(cast(get_json_object(string(value), '$.dep_delay') as double)) delay"
        " from flights group by 1 order by 2 desc limit 5"
    ).collect():
        table.add_row(row["carrier"], f"{row['n']:,}", f"{row['delay']:.1f} min")
    story.console.print(table)
    return Row("replayed from the bucket", checksum, seconds)


def follow(story: Story, spark: "SparkSession", live: list[Flight]) -> Row:
    """Streams from the first flight while December arrives; interrupts the stream once, and lets it catch up."""
    from demo.sparks import Followed, wait_for

    stream = Followed(spark, store_url(story.s3_url), TOPIC, story.folder / "checkpoint")
    batch = max(1000, len(story.flights) // STREAM_BATCHES)
    started = time.monotonic()
    query = stream.start(story.broker.bootstrap, records_per_batch=batch, until_caught_up=False)
    failures: list[BaseException] = []

    def send() -> None:
        try:
            produce(story, live, per_second=max(1, len(live) // LIVE_SECONDS), show=False)
        except BaseException as error:  # noqa: BLE001 - handed over to the main thread, which raises it.
            failures.append(error)

    sender = threading.Thread(target=send, name="december")
    sender.start()
    seam = len(story.flights) - len(live)
    with story.progress() as progress:
        task = progress.add_task("streamed", total=len(story.flights))

        def crossed() -> bool:
            progress.update(task, completed=stream.checksum.records)
            return stream.checksum.records > seam

        if not wait_for(query, crossed, timeout_seconds=STREAM_TIMEOUT_SECONDS):
            raise ServiceFailed(f"the stream did not reach the tail within {STREAM_TIMEOUT_SECONDS} s")
        query.stop()
        sender.join(STREAM_TIMEOUT_SECONDS)
        if failures:
            raise failures[0]
        before = stream.checksum.records
        query = stream.start(story.broker.bootstrap, records_per_batch=batch, until_caught_up=True)
        if not query.awaitTermination(STREAM_TIMEOUT_SECONDS):
            raise ServiceFailed(f"the stream did not catch up within {STREAM_TIMEOUT_SECONDS} s")
        if (failure := query.exception()) is not None:
            raise failure
        progress.update(task, completed=stream.checksum.records)
    story.say(
        f"interrupted after {before:,} records, {before - seam:,} of them past the seam; "
        f"the checkpoint took it to {stream.checksum.records:,}"
    )
    return Row("streamed across the seam", stream.checksum, time.monotonic() - started)


def summary(console: Console, groups: list[list[Row]], *, seconds: float) -> bool:
    """Shows each group, whose first row is what was produced; True when all rows of every group agree."""
    table = Table("what", "records", "checksum", "seconds", "records/s", title="What was produced is what was read")
    agreed = True
    for written, *read in groups:
        for row in (written, *read):
            same = row.checksum == written.checksum
            agreed = agreed and same
            colour = "green" if same else "red"
            table.add_row(
                row.what,
                f"[{colour}]{row.checksum.records:,}[/]",
                f"[{colour}]{row.checksum}[/]",
                f"{row.seconds:.1f}" if row.seconds is not None else "",
                f"{row.checksum.records / row.seconds:,.0f}" if row.seconds else "",
            )
        table.add_section()
    console.print()
    console.print(table)
    verdict = "[bold green]agreed[/]" if agreed else "[bold red]DISAGREED[/]"
    console.print(f"{verdict}: counts and checksums of produced, replayed and streamed records, in {seconds:.0f} s")
    return agreed


def records_by_tier(story: Story) -> dict[str, int]:
    """How many records are hot, cold or both now, by what the catalogue says."""
    counts = {"hot": 0, "cold": 0, "both": 0}
    for partition in story.end_offsets:
        for segment in story.broker.segments(TOPIC, partition):
            counts[segment["tier"]] += segment["end_offset"] - segment["base_offset"]
    return counts


def split(flights: list[Flight]) -> tuple[list[Flight], list[Flight]]:
    """What is produced first, and what arrives live: December, or the last part of what there is."""
    live_from = bisect.bisect_left(flights, DECEMBER_MS, key=lambda flight: flight.timestamp_ms)
    if live_from == len(flights):
        live_from -= max(1, int(len(flights) * LIVE_SHARE))
    return flights[:live_from], flights[live_from:]


def tell(console: Console, folder: Path, flights: list[Flight]) -> bool:
    from demo.sparks import across_both_tiers, session

    started = time.monotonic()
    past, live = split(flights)
    with s3_server(folder) as s3_url:
        broker = Broker(folder=folder, store=store_url(s3_url), settings=BROKER_SETTINGS)
        story = Story(console=console, folder=folder, flights=flights, broker=broker, s3_url=s3_url)
        try:
            story.title(1, "Start an S3 server and a broker")
            story.say(f"ready after {broker.start():.2f} s: Kafka at {broker.bootstrap}, HTTP at {broker.http}")
            create_topic(story)
            story.say(f"topic {TOPIC}, {PARTITIONS} partitions, segments of 4 MiB")

            story.title(2, f"Produce {len(past):,} flights with confluent-kafka (idempotent, acks=all)")
            produce_seconds = produce(story, past)
            produced_past = Checksum() + story.produced
            story.say(f"acknowledged {produced_past.records:,} records in {produce_seconds:.1f} s")

            story.title(3, "Closed segments go to the bucket, and leave the local disk")
            wait_until_cold(story)
            show_bucket(story)

            story.title(4, "Stop the broker; replay everything with Spark, from the bucket alone")
            broker.stop()
            spark_started = time.monotonic()
            spark = session(folder)
            spark.range(1000).count()  # Classes are loaded once, before anything is timed.
            story.say(f"Spark is up after {time.monotonic() - spark_started:.1f} s")
            replayed = replay(story, spark)

            story.title(5, f"Start the broker again; stream from the first flight while {len(live):,} more arrive")
            story.say(f"ready after {broker.start():.2f} s")
            keep_tail_hot(story)
            streamed = follow(story, spark, live)

            story.title(6, "Read both tiers at once, each record from the tier that has it")
            batch_started = time.monotonic()
            frame = across_both_tiers(spark, store=store_url(s3_url), bootstrap=broker.bootstrap, topic=TOPIC)
            from demo.checksum import checksum_of

            both = Row("read from both tiers", checksum_of(frame), time.monotonic() - batch_started)
            tiers = records_by_tier(story)
            story.say(
                f"{both.checksum.records:,} records; now {tiers['cold']:,} are only in the bucket, "
                f"{tiers['hot']:,} only on the broker's disk, {tiers['both']:,} on both"
            )
            spark.stop()
            broker.stop()
        finally:
            broker.kill()
    groups = [
        [Row("produced until then", produced_past, produce_seconds), replayed],
        [Row("produced in all", story.produced), streamed, both],
    ]
    return summary(console, groups, seconds=time.monotonic() - started)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description="The whole story with real flights.")
    parser.add_argument("--records", type=int, default=ALL_FLIGHTS, help="how many flights (all 336,776)")
    parser.add_argument("--folder", type=Path, default=Path(".demo"), help="where data and logs go; emptied first")
    options = parser.parse_args()
    from demo.sparks import require_java

    require_java()
    folder: Path = options.folder.absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.environ |= {"AWS_ACCESS_KEY_ID": "demo", "AWS_SECRET_ACCESS_KEY": "demo", "AWS_EC2_METADATA_DISABLED": "true"}
    console = Console(highlight=False)
    # Spark and its JVM are talkative on stderr; the story goes to stdout.
    with (folder / "spark.log").open("wb") as log:
        os.dup2(log.fileno(), sys.stderr.fileno())
    try:
        return 0 if tell(console, folder, read_flights(options.records)) else 1
    except (ServiceFailed, KeyboardInterrupt) as error:
        console.print(f"\n[bold red]failed[/]: {str(error) or 'interrupted'}\nlogs are in {folder}")
    except Exception:  # noqa: BLE001 - the end of a command
        console.print_exception()
        console.print(f"logs are in {folder}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
