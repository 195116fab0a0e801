"""What `make test` asks a second time and what it never does, and what the long tests are."""

from typing import Any

from tests.dependency_scan import verdict
from tests.steps import MOST_ASKED_AGAIN, SKIPPED, TESTS_FAILED, steps, to_ask_again, word

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
    assert [[each.name for each in group] for group in steps("soak", [])] == [["soak"], ["properties"]]
    assert [[each.name for each in group] for group in steps("soak", ["-k", "kill"])] == [["soak"]]


def test_terraform_goes_on_with_localstack_unless_some_tests_are_named() -> None:
    assert [[each.name for each in group] for group in steps("terraform", [])] == [["terraform"], ["localstack"]]
    assert [[each.name for each in group] for group in steps("terraform", ["-k", "moto"])] == [["terraform"]]


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
