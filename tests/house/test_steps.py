"""What `make test` asks a second time and what it never does, and what the long tests are."""

import os
import sys
import tempfile
from typing import Any

from tests.dependency_scan import verdict
from tests.steps import (
    MOST_ASKED_AGAIN,
    SKIPPED,
    TERRAFORM,
    TESTS_FAILED,
    Step,
    giving_way,
    passed_of,
    run_all,
    steps,
    to_ask_again,
    word,
)

PROCESSES = [f"tests/faults/test_kill.py::test_{number}" for number in range(MOST_ASKED_AGAIN + 1)]
INTERRUPTED = 2


def test_few_failed_tests_of_processes_are_asked_once_more() -> None:
    assert to_ask_again(TESTS_FAILED, PROCESSES[:1]) == (PROCESSES[0],)
    assert to_ask_again(TESTS_FAILED, PROCESSES[:-1]) == tuple(PROCESSES[:-1])


def test_many_failures_are_no_accident() -> None:
    assert to_ask_again(TESTS_FAILED, PROCESSES) == ()


def test_a_test_without_processes_has_one_chance_and_takes_it_from_the_others() -> None:
    for path in (
        "tests/unit/hot/test_log.py",
        "tests/properties/hot/test_log_model.py",
        "tests/simulation/test_disk.py",
    ):
        assert to_ask_again(TESTS_FAILED, [PROCESSES[0], f"{path}::test"]) == ()


def test_a_run_that_did_not_end_by_itself_has_failed() -> None:
    assert to_ask_again(INTERRUPTED, PROCESSES[:1]) == ()


def test_properties_are_tried_at_length_with_the_long_tests_unless_some_are_named() -> None:
    assert [each.name for each in steps("soak", [])] == ["soak", "properties"]
    assert [each.name for each in steps("soak", ["-k", "kill"])] == ["soak"]


def test_terraform_goes_on_with_localstack_unless_some_tests_are_named() -> None:
    assert [each.name for each in steps("terraform", [])] == ["terraform", "localstack"]
    assert [each.name for each in steps("terraform", ["-k", "moto"])] == ["terraform"]


def test_a_scan_that_could_not_look_is_not_called_passed() -> None:
    unknown: dict[str, Any] = {"name": "a", "skip_reason": "not found"}
    whole: dict[str, Any] = {"name": "b", "version": "1", "vulns": []}
    weak: dict[str, Any] = {"name": "c", "version": "2", "vulns": [{"id": "CVE-2026-1", "fix_versions": ["3"]}]}
    assert [word(verdict(each)[0]) for each in ([unknown], [unknown, whole], [unknown, whole, weak])] == [
        "skipped",
        "passed",
        "FAILED",
    ]
    assert "CVE-2026-1" in verdict([weak])[1]
    assert [word(code) for code in (0, 1, 2, -9, SKIPPED)] == ["passed", "FAILED", "FAILED", "FAILED", "skipped"]


def test_what_the_last_words_count_is_what_passed() -> None:
    assert passed_of("....\n=== short test summary info\n5309 passed, 1 warning in 540.12s (0:09:00)\n") == 5309
    assert passed_of("FAILED tests/a.py::b\n1 failed, 12 passed in 3.00s\n") == 12
    assert passed_of("Success: 12 passed over 3 files\nno tests ran in 0.01s\n") == 0
    assert passed_of("") == 0


def test_what_gives_way_runs_beside_the_others_and_both_are_counted() -> None:
    """Each waits until the other has begun: one after the other they would wait for ever."""
    with tempfile.TemporaryDirectory() as folder:
        meet = (
            "import pathlib, sys, time\n"
            "here, there = sys.argv[1:]\n"
            "pathlib.Path(here).touch()\n"
            "end = time.monotonic() + 60\n"
            "while not pathlib.Path(there).exists():\n"
            "    assert time.monotonic() < end\n"
            "    time.sleep(0.01)\n"
            "print('2 passed in 0.01s')\n"
        )
        one, two = f"{folder}/one", f"{folder}/two"
        beside = giving_way(Step(name="beside", argv=(sys.executable, "-c", meet, one, two)))
        in_turn = Step(name="in turn", argv=(sys.executable, "-c", meet, two, one))
        results = run_all([beside, in_turn], os.environ)
    assert [(each.name, each.code, each.passed) for each in results] == [("in turn", 0, 2), ("beside", 0, 2)]


def test_every_test_folder_is_part_of_exactly_one_step_of_make_test() -> None:
    """What gives way must not run again with the others, and nothing may fall between them."""
    by_name = {each.name: each.argv for each in steps("test", [])}
    ignored = {word.removeprefix("--ignore=") for word in by_name["tests"] if word.startswith("--ignore=")}
    named = {word for name in ("tests of one process", "tests with Spark") for word in by_name[name]}
    assert ignored == {word for word in named if word.startswith("tests/")} | {TERRAFORM}
