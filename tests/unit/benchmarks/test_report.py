"""The report of `make bench`: medians, ratios to the reference, a file that machines read and a table for people."""

import json
from pathlib import Path

from benchmarks.report import Report

FACTS = {
    "cpus": 2, "cpu": "a cpu", "memory_gb": 8.0, "kernel": "6", "python": "3.11", "idle_share_before": 0.9, "rounds": 3,
}  # fmt: skip


def run(mb_per_s: float) -> dict[str, float]:
    return {"mb_per_s": mb_per_s, "records_per_s": 1.0, "broker_cpu_s_per_gb": 0.2, "client_cpu_s_per_gb": 1.0}


def report() -> Report:
    return Report(
        FACTS,
        throughput={"produce": {"tiered": [run(100), run(300), run(200)], "mock": [run(100), run(100), run(160)]}},
        start={"ready_s": [0.5, 0.3, 0.4], "first_ack_s": [0.6], "idle_rss_mb": [70.0], "idle_cpu_percent": [0.1]},
        replay={"Spark replay": {"rows_per_s": [3.0, 1.0, 2.0]}},
        commits={
            "SQLite": {name: [{"commits_per_s": rate}] * 3 for name, rate in (("together", 50.0), ("alone", 5.0))}
        },
        beside_kafka={
            "transactions": {
                "kafka": [
                    {"answers_per_s": 200.0, "p50_ms": 5.0, "p99_ms": 9.0, "whole_p99_ms": 9.5, "broker_cpu_ms": 3.0}
                ],
                "tiered": [
                    {"answers_per_s": 1250.0, "p50_ms": 4.0, "p99_ms": 8.0, "whole_p99_ms": 8.5, "broker_cpu_ms": 1.5}
                ],
            }
        },
        replication={
            "produce 1 KiB": {"one": [{"mb_per_s": 100.0}], "three": [{"mb_per_s": 60.0}, {"mb_per_s": 70.0}]},
            "steady": {"one": [{"p50_ms": 1.0, "p99_ms": 2.0}], "three": [{"p50_ms": 3.0, "p99_ms": 4.5}]},
        },
        verification={
            "16 KiB": {
                "SHA-256": [{"mb_per_s": 800.0, "cpu_s_per_gb": 1.0}],
                "verify": [{"mb_per_s": 600.0, "cpu_s_per_gb": 1.5}],
            }
        },
        cold={
            "consume cold": {"ranged GETs": [{"mb_per_s": 200.0}], "tiered": [{"mb_per_s": 150.0}]},
            "a tail": {"alone": [{"p50_ms": 1.0, "p99_ms": 2.0}], "beside": [{"p50_ms": 1.5, "p99_ms": 3.0}]},
        },
        spark={
            "100 B, local[2]": {
                "tiered": [
                    {
                        "rows_per_s": 3e6,
                        "mb_per_s": 300.0,
                        "cpu_us_per_row": 0.6,
                        "broker_cpu_us_per_row": 0.0,
                        "task_peak_mb": 200.0,
                    }
                ],
                "connector": [
                    {"rows_per_s": 5e5, "mb_per_s": 50.0, "cpu_us_per_row": 3.0, "broker_cpu_us_per_row": 0.5}
                ],
            }
        },
        uploading={
            "16 KiB": {
                "boto3": [{"mb_per_s": 400.0, "cpu_s_per_gb": 2.0, "puts_per_gib": 34.0}],
                "tiered": [{"mb_per_s": 300.0, "cpu_s_per_gb": 2.5, "puts_per_gib": 34.0}],
            }
        },
    )


def test_medians_and_the_ratio_to_the_reference() -> None:
    medians = report().medians()
    assert medians["produce"]["tiered"]["mb_per_s"] == 200
    assert medians["produce"]["throughput_ratio"] == 2.0
    assert medians["ready_s"] == 0.4
    assert medians["Spark replay"]["rows_per_s"] == 2.0
    assert medians["commits on SQLite"] == {"together": 50.0, "alone": 5.0}


def test_every_run_is_in_the_file_and_every_scenario_in_the_table(tmp_path: Path) -> None:
    path = report().write(tmp_path, "stamp")
    assert len(json.loads(path.read_text())["runs"]["throughput"]["produce"]["tiered"]) == 3
    table = (tmp_path / "stamp.md").read_text()
    assert "| produce | tiered | 200 |" in table
    assert "| 2.00 |" in table
    assert "| Spark replay | 2 rows/s |" in table
    assert "| SQLite, together | 50 | 10.0 |" in table
    assert "| transactions | tiered | 1,250 | 6.25 | 4.00 | 8.00 | 8.50 | 1.50 |" in table
    assert "| produce 1 KiB | three | 65 | 0.65 |" in table
    assert "| steady | three |  |  | 3.00 | 4.50 |" in table
    assert "| consume cold | tiered | 150 | 0.75 |" in table
    assert "| 100 B, local[2] | tiered | 3,000,000 | 300 | 0.60 | 0.00 | 1.00 | 200 |" in table
    assert "| 100 B, local[2] | connector | 500,000 | 50 | 3.00 | 0.50 | 6.00 |  |" in table
    assert "| a tail | beside |  |  | 1.50 | 3.00 |" in table
    assert "| 16 KiB | verify | 600 | 1.50 | 0.75 |" in table
    assert "| 16 KiB | tiered | 300 | 2.50 | 1.25 | 34 |" in table
