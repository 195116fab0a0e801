"""What Apache Kafka's own load tools print, as numbers."""

from benchmarks.kafka.tools import arguments, consumed, produced

PRODUCED = """\
Warmup first 50000 records. Steady state results will print after the complete test summary.
162136 records sent, 32401.3 records/sec (31.64 MB/sec), 753.2 ms avg latency, 1688.0 ms max latency.
200000 records sent, 35155.563368 records/sec (34.33 MB/sec), 706.94 ms avg latency, 1688.00 ms max latency, \
642 ms 50th, 1510 ms 95th, 1660 ms 99th, 1684 ms 99.9th.
150000 steady state records sent, 186567.164179 records/sec (17.79 MB/sec), 1159.64 ms avg latency, 1687.00 ms max \
latency, 1032 ms 50th, 1637 ms 95th, 1647 ms 99th, 1686 ms 99.9th.
"""
CONSUMED = """\
start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, \
fetch.MB.sec, fetch.nMsg.sec
2026-11-26 09:11:09:289, 2026-11-26 09:11:15:005, 390.6250, 68.3389, 400000, 69979.0063, 3504, 2212, 176.5936, \
180831.8264
"""


def test_the_producers_figures_are_those_after_its_warm_up() -> None:
    assert produced(PRODUCED) == {"records_per_s": 186567.164179, "p50_ms": 1032.0, "p99_ms": 1647.0}


def test_the_consumers_figures_are_without_the_forming_of_its_group() -> None:
    assert consumed(CONSUMED) == {"records": 400000.0, "records_per_s": 180831.8264}


def test_a_quarter_of_what_the_producer_sends_without_a_limit_is_its_warm_up() -> None:
    told = " ".join(arguments("produce", "there:1", "topic", records=1000, size_bytes=100, acks="all"))
    assert "--num-records 1000 --record-size 100 --throughput -1 --warmup-records 250" in told
    assert "acks=all" in told
