"""Which tests are part of which step, what the steps' words come to, and how long each test took."""

import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.dependency_scan import verdict
from tests.steps import (
    ALONE,
    BROWSER,
    CLUSTERS,
    LATER,
    OF_ONE_PROCESS,
    ROOT,
    SKIPPED,
    SPARK,
    TERRAFORM,
    WORKERS,
    Step,
    files_with,
    giving_way,
    passed_of,
    pytest,
    run_all,
    seconds_of,
    skipped_of,
    steps,
    word,
)


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


def test_the_summary_says_what_was_skipped_and_why() -> None:
    left_out = "SKIPPED [2] tests/a.py:9: systemd-analyze is missing: install systemd"
    assert skipped_of(f"..ss\n=== short test summary info\n{left_out}\n2 passed, 2 skipped in 0.10s\n", 0) == (
        left_out,
    )
    assert skipped_of("12 passed in 3.00s\n", 0) == ()
    assert skipped_of("asking\nskipped: nobody answered\n", SKIPPED) == ("skipped: nobody answered",)
    (result,) = run_all([replace(pytest("x"), argv=("echo", left_out), results=None)], os.environ)
    assert result.skipped == (left_out,)


def test_each_tests_seconds_are_kept(tmp_path: Path) -> None:
    kept = replace(pytest("kept"), results=tmp_path / "kept.xml")
    never_ran = replace(kept, results=tmp_path / "other.xml")
    (tmp_path / "kept.xml").write_text(
        '<testsuites><testsuite><testcase classname="tests.a" name="test_b[1]" time="2.5"/></testsuite></testsuites>'
    )
    assert seconds_of([kept, never_ran]) == {"tests.a::test_b[1]": 2.5}
    assert any(word.startswith("--junitxml=") for step in steps("test", []) for word in step.argv)


def test_lanes_run_beside_one_another_and_all_steps_are_counted() -> None:
    """Each waits until the others have begun: one after the other they would wait for ever."""
    with tempfile.TemporaryDirectory() as folder:
        meet = (
            "import pathlib, sys, time\n"
            "here, *there = map(pathlib.Path, sys.argv[1:])\n"
            "here.touch()\n"
            "end = time.monotonic() + 60\n"
            "while not all(each.exists() for each in there):\n"
            "    assert time.monotonic() < end\n"
            "    time.sleep(0.01)\n"
            "print('2 passed in 0.01s')\n"
        )
        one, two, three = (f"{folder}/{name}" for name in ("one", "two", "three"))
        beside = giving_way(
            Step(name="beside", argv=(sys.executable, "-c", meet, one, two, three)), nice=5, lane="beside"
        )
        besides = Step(name="besides", argv=(sys.executable, "-c", meet, two, three, one), lane="another")
        in_turn = Step(name="in turn", argv=(sys.executable, "-c", meet, three, one, two))
        results = run_all([beside, besides, in_turn], os.environ)
    assert [(each.name, each.code, each.passed) for each in results] == [
        ("in turn", 0, 2),
        ("beside", 0, 2),
        ("besides", 0, 2),
    ]


def test_every_file_of_tests_is_part_of_exactly_one_step_of_make_test() -> None:
    """What gives way must not run again with the others, and nothing may fall between them."""
    by_name = {each.name: [word for word in each.argv if word.startswith("tests/")] for each in steps("test", [])}
    shared = [words for name, words in by_name.items() if name.removeprefix("tests ").isdigit()]
    assert len(shared) == WORKERS + len(LATER)
    assert all(words == shared[0] for words in shared), "who takes a file first has it, so all know the same ones"
    folders = [word for name in OF_ONE_PROCESS for word in by_name[name]]
    folders += [SPARK, TERRAFORM, BROWSER, CLUSTERS]
    all_files = {str(file.relative_to(ROOT)) for file in (ROOT / "tests").rglob("test_*.py")}
    elsewhere = {file for file in all_files if any(file.startswith(f"{folder}/") for folder in folders)}
    assert set(shared[0]) == all_files - elsewhere
    assert len(shared[0]) == len(set(shared[0]))
    seen: list[str] = []
    for name, its_folders in OF_ONE_PROCESS.items():
        assert by_name[name] == list(its_folders)
        (argv,) = (each.argv for each in steps("test", []) if each.name == name)
        assert {f"--ignore={folder}" for folder in seen} <= set(argv)
        seen += its_folders


def test_tests_that_have_to_be_alone_run_once() -> None:
    """They are looked for where their mark is named, and left out where all others of their folder run."""
    found = set(files_with(ALONE))
    by_name = {each.name: each.argv for each in steps("test", [])}
    assert {word for word in by_name["tests that are alone"] if word.startswith("tests/")} == found != set()
    for name, argv in by_name.items():
        folders = [word for word in argv if word.startswith("tests/")]
        if name != "tests that are alone" and any(file.startswith(f"{each}/") for each in folders for file in found):
            assert any(word.startswith("not alone and ") for word in argv), name


def test_each_file_that_processes_share_runs_in_one_of_them(tmp_path: Path) -> None:
    for name in ("test_a.py", "test_b.py", "test_c.py"):
        (tmp_path / name).write_text("def test_one(): pass\ndef test_two(): pass\n")
    taken = tmp_path / "taken"
    taken.mkdir()
    shares = [*(str(tmp_path / name) for name in ("test_a.py", "test_b.py", "test_c.py")), f"--shared-in={taken}"]
    plain = ("-p", "tests.shared_files", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-c", os.devnull)
    command = [sys.executable, "-m", "pytest", "-q", *plain, *shares]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    results = run_all([Step(name=f"{n}", argv=tuple(command), lane=f"{n}") for n in range(2)], environment)
    assert [each.code for each in results] == [0, 0]
    assert sum(each.passed for each in results) == 6
    (late,) = run_all([Step(name="late", argv=tuple(command))], environment)
    assert (late.code, late.passed) == (0, 0), "others have taken all"
    for each in taken.iterdir():
        each.unlink()
    (chosen,) = run_all([Step(name="chosen", argv=(*command, "-k", "test_two"))], environment)
    assert (chosen.code, chosen.passed) == (0, 3), "by the names of tests, not of files"
