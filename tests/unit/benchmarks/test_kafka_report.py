"""`make bench-kafka`: the table of cells, its targets, and the verdict on each number."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.kafka.cells import BY_NAME, MATRIX, SUITES, THREE, Cell, Target, chosen, targets
from benchmarks.kafka.measures import MEASURES, together
from benchmarks.kafka.page import merged
from benchmarks.kafka.plots import latencies_svg, ratios_svg, ticks
from benchmarks.kafka.report import METRICS, Range, Row, document, rows, table, write

FACTS = {
    "cpus": 2, "cpu": "a cpu", "memory_gb": 8.0, "kernel": "6", "python": "3.11", "idle_share_before": 0.9, "rounds": 3,
    "kafka": "4.2.0", "command": "--quick",
}  # fmt: skip
PRODUCE = Cell(suite="throughput", what="produce")
SVG = "{http://www.w3.org/2000/svg}"


def row(metric: str, ours: float, kafkas: float, target: Target | None) -> Row:
    return Row(cell="", metric=metric, ours=Range.of([ours]), kafkas=Range.of([kafkas]), target=target)


# Cells


def test_no_two_cells_have_one_name_so_that_each_has_its_topic_and_its_row() -> None:
    assert len({cell.name for cell in MATRIX}) == len(MATRIX)


def test_a_cell_is_named_for_what_differs_from_the_plainest() -> None:
    assert PRODUCE.name == "produce, 1 KiB, acks=1"
    cell = Cell(suite="x", what="produce", size_bytes=100, acks="all", partitions=8, clients=8, linger_ms=0,
                compression="zstd", brokers=THREE, over_tls=True)  # fmt: skip
    assert cell.name == "produce, 100 B, acks=all, 8 partitions, linger 0 ms, zstd, 8 clients, 3 brokers, TLS"


def test_every_cell_can_be_measured_and_its_targets_are_of_numbers_that_the_table_shows() -> None:
    assert {cell.what for cell in MATRIX} == set(MEASURES)
    assert {target.metric for cell in MATRIX for target in targets(cell)} <= set(METRICS)


def test_suites_and_the_quick_look_choose_from_the_matrix_in_its_order() -> None:
    assert chosen(None, is_quick=False) == list(MATRIX)
    for suite in SUITES:
        whole = [cell for cell in MATRIX if cell.suite == suite]
        assert chosen([suite], is_quick=False) == chosen([suite], is_quick=True) == whole
    quick = chosen(None, is_quick=True)
    assert {"throughput", "latency", "connections", "partitions"} == {cell.suite for cell in quick}
    assert len(quick) < 10


# The report


@pytest.mark.parametrize(
    ("metric", "ours", "target", "is_missed"),
    [
        ("mb_per_s", 100.0, Target(metric="mb_per_s", ratio=1.0), False),
        ("mb_per_s", 99.0, Target(metric="mb_per_s", ratio=1.0), True),
        ("p99_ms", 50.0, Target(metric="p99_ms", ratio=0.5), False),
        ("p99_ms", 51.0, Target(metric="p99_ms", ratio=0.5), True),
        ("p99_ms", 0.0, Target(metric="p99_ms", ratio=0.5), False),
        ("create_s", 10.1, Target(metric="create_s", value=10.0), True),
        ("idle_cpu_percent", 2.0, Target(metric="idle_cpu_percent", ratio=0.3, value=1.0), True),
        ("idle_cpu_percent", 0.9, Target(metric="idle_cpu_percent", ratio=0.3, value=1.0), False),
        ("memory_mb", 1000.0, None, False),
    ],
)
def test_a_target_is_missed_when_one_of_its_bounds_is(
    metric: str, ours: float, target: Target | None, is_missed: bool
) -> None:
    assert row(metric, ours, 100.0, target).is_missed is is_missed


def test_behind_is_whoever_is_slower_or_needs_more() -> None:
    assert row("mb_per_s", 99.0, 100.0, None).is_behind
    assert not row("mb_per_s", 101.0, 100.0, None).is_behind
    assert row("p50_ms", 101.0, 100.0, None).is_behind


def test_a_number_that_apache_kafka_has_at_nothing_gives_no_ratio() -> None:
    none = row("idle_cpu_percent", 1.0, 0.0, Target(metric="idle_cpu_percent", ratio=0.3))
    assert none.ratio is None
    assert not none.is_missed


def test_several_clients_count_from_the_first_that_began_to_the_last_that_ended() -> None:
    one = {"started_s": 10.0, "ended_s": 11.0, "records": 1e6, "client_cpu_s_per_gb": 1.0}
    other = {"started_s": 10.5, "ended_s": 12.0, "records": 3e6, "client_cpu_s_per_gb": 2.0}
    whole = together([one, other], 1000, cpu=2.0)
    assert whole == {
        "mb_per_s": 2000.0, "records_per_s": 2e6, "broker_cpu_s_per_gb": 0.5, "client_cpu_s_per_gb": 1.75,
    }  # fmt: skip


def test_every_run_is_in_the_file_and_medians_with_their_range_in_the_table(tmp_path: Path) -> None:
    ours, kafkas = (
        [{"mb_per_s": each, "load": each} for each in some] for some in ((100.0, 300.0, 200.0), (100.0, 90.0, 110.0))
    )
    path = write(tmp_path, "stamp", document({PRODUCE: {"tiered": ours, "kafka": kafkas}}, FACTS))
    kept = json.loads(path.read_text())["suites"]["throughput"]
    assert kept["runs"][PRODUCE.name] == {"tiered": ours, "kafka": kafkas}
    assert kept["facts"]["load"] == "90.0 to 300.0"
    said = "| produce, 1 KiB, acks=1 | MB/s | 200 (100 to 300) | 100 (90 to 110) | 2.00 | ≥ 1 × | reached |"
    assert said in path.with_suffix(".md").read_text()


def test_a_single_run_has_no_range() -> None:
    assert "| p50 ms | 2.00 | 4.00 | 0.50 |  |  |" in table([row("p50_ms", 2.0, 4.0, None)])


def test_a_cell_that_was_interrupted_has_no_row() -> None:
    assert list(rows({PRODUCE.name: {"tiered": [{"mb_per_s": 1.0}]}})) == []


def test_of_each_suite_the_page_has_what_was_measured_last() -> None:
    old, new = ({"runs": {"one cell": age, "another": age}} for age in ("old", "new"))
    part = {"runs": {"one cell": "newest"}}
    documents = [{"suites": {"tls": old, "throughput": old}}, {"suites": {"tls": new}}, {"suites": {"tls": part}}]
    assert list(merged(documents)["suites"].items()) == [("throughput", old), ("tls", new)]


def test_cells_are_chosen_by_their_suite_and_by_their_name() -> None:
    one = [cell.name for cell in chosen([PRODUCE.name, "tls"], is_quick=True)]
    assert one[0] == PRODUCE.name
    assert {BY_NAME[name].suite for name in one[1:]} == {"tls"}


# The pictures


def test_what_is_better_by_ten_lies_as_far_from_one_as_what_is_worse_by_ten() -> None:
    dots = [row(metric, ratio, 1.0, None) for metric, ratio in (("mb_per_s", 10.0), ("broker_cpu_s_per_gb", 0.1))]
    image = ElementTree.fromstring(ratios_svg(dots))
    (throughput, cpu) = (float(each.attrib["cx"]) for each in image.findall(f"{SVG}circle")[2:])
    (one,) = (float(each.attrib["x1"]) for each in image.findall(f"{SVG}line") if each.attrib["stroke"] == "#64748b")
    assert throughput - one == pytest.approx(one - cpu, abs=0.1)
    assert throughput > one


def test_each_side_of_a_cell_reaches_from_its_p50_to_its_p99() -> None:
    image = ElementTree.fromstring(latencies_svg([row("p50_ms", 0.2, 0.3, None), row("p99_ms", 0.9, 1.7, None)]))
    ends = [float(each.attrib["cx"]) for each in image.findall(f"{SVG}circle")[2:]]
    joined = [each for each in image.findall(f"{SVG}line") if each.attrib.get("stroke-width")]
    assert [(float(each.attrib["x1"]), float(each.attrib["x2"])) for each in joined] == [
        tuple(ends[:2]),
        tuple(ends[2:]),
    ]
    assert ends[0] < ends[2] < ends[1] < ends[3]


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(0.09, 2.1, [0.1, 0.2, 0.5, 1, 2]), (3.0, 4.0, []), (10.0, 10.0, [10])]
)
def test_a_logarithmic_scale_has_1_2_and_5_of_each_power_of_ten(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == expected
