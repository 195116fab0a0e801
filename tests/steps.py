"""What `make test`, `make check` and their siblings run, one line each, with a summary at the end.

Owns the order of the steps, and which of them share the time, and nothing of what they check. Every step runs,
whatever the one before found; the exit code is 0 only when all of them passed.

Tests of processes wait: for brokers, sessions, time-outs. So steps share the time in lanes, each lane one step after
another, and cores are given by what a step can bear. Spark gives each Python process that it starts ten seconds: it
has the first right to a core. What only computes (types, Terraform, tests within one process) takes what all others
leave.

No test is asked a second time: one that fails once is a defect of the test or of the product.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
IN_MEMORY = Path("/dev/shm")
ROOM_BYTES = 2 << 30
BIN = Path(sys.executable).parent
PROPERTIES = "tests/properties"
OF_ONE_PROCESS = {
    "tests of the house": ("tests/house", "tests/golden", "tests/unit/cli"),
    "tests of coordinators": ("tests/unit/broker/groups", "tests/unit/broker/transactions"),
    "tests of the broker's parts": ("tests/unit/broker",),
    "tests of other parts": ("tests/unit", PROPERTIES),
}
"""A step each, with its folders; what one has is not asked again in a later one."""
LEFT_TO_TEST = (
    "tests/house/test_reports.py",
    "tests/unit/broker/groups/test_offset_commits.py",
    "tests/unit/broker/tiering/test_cold_pacing.py",
    "tests/unit/cold/s3/test_s3_answers.py",
    "tests/unit/hot/test_kill.py",
    "tests/unit/meta/test_two_uploaders.py",
)
"""Tests of one process that wait, or start processes and kill them. `make check` leaves them to `make test`."""
LONG_RUNS = "not soak and not interop and not fuzz and not terraform and not localstack"
SPARK = "tests/spark"
TERRAFORM = "tests/terraform"
BROWSER = "tests/browser"
CLUSTERS = "tests/components/cluster"
"""They wait for sessions to end and take a tenth of a core: whoever ends first has time for them."""
ALONE = "mark.alone"
SKIPPED = 75
"""The exit code of a step that could not look. The summary says so, and nobody takes it for a success."""
LAST_WORDS_BYTES = 64 << 10
RESULTS = ROOT / "build/test-results"
"""What each step of pytest said of each test, as JUnit's XML; the newest run's."""
SLOWEST_TOLD = 40
DURATIONS = ROOT / "tests/durations.txt"
"""Seconds and file, longest first; `python tests/steps.py durations` writes it from the newest run."""
LEAST_SECONDS = 2
TAKEN = ROOT / "build/test-files-taken"
"""Where processes that share files say which they have taken."""
WORKERS = 4
"""They share the tests of processes, beside the other lanes. Those tests wait, and take the cores only together."""
LATER = ("in a hurry", "browser")
"""The lanes that share them, too, once they have done their own. With five in the end a fifth of the cores idled."""
# For `tmp_path`. Tests of one process write little, and to make and delete it on a disk takes a fifth of the CPU.
HAS_ROOM_IN_MEMORY = IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free >= ROOM_BYTES
FOLDERS_IN_MEMORY = ("env", f"PYTEST_DEBUG_TEMPROOT={IN_MEMORY}") if HAS_ROOM_IN_MEMORY else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    name: str
    argv: tuple[str, ...]
    results: Path | None = None
    """Where pytest writes down how each test ended and how long it took."""
    lane: str = ""
    """Its steps run one after the other, beside those of other lanes. What the nameless one's say is read at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    name: str
    code: int
    seconds: float
    passed: int = 0
    """Tests."""
    skipped: tuple[str, ...] = ()
    """What was left out and why, in the words of pytest, or of a step that could not look."""


# Without its cache: how imports are sorted depends on other files too, and it takes no time.
LINT = Step(name="lint", argv=(str(BIN / "ruff"), "check", "--no-cache", "--quiet", "."))
STYLE = Step(name="format", argv=(str(BIN / "ruff"), "format", "--check", "--quiet", "."))
TYPES = Step(name="types", argv=(str(BIN / "mypy"),))
FLOORS = Step(name="floors", argv=(str(BIN / "lint-imports"),))
# Ends with SKIPPED where Terraform or its provider is missing.
MODULES = Step(name="terraform", argv=(sys.executable, "-m", "tests.terraform.ladder"))
# Ends with SKIPPED where LocalStack cannot be had.
EMULATOR = Step(name="localstack", argv=(sys.executable, "-m", "tests.localstack.ladder"))
# Ends with SKIPPED where nobody can be asked about weaknesses.
DEPENDENCIES = Step(name="dependencies", argv=(sys.executable, str(ROOT / "tests" / "dependency_scan.py")))


def pytest(name: str, *argv: str) -> Step:
    cache = ROOT / ".pytest_cache" / name.replace(" ", "-")
    results = RESULTS / f"{name.replace(' ', '-')}.xml"
    argv = (sys.executable, "-m", "pytest", "-q", "-o", f"cache_dir={cache}", f"--junitxml={results}", *argv)
    return Step(name=name, argv=argv, results=results)


def of_one_process(*argv: str, without: str = "") -> list[Step]:
    """Steps of about the same length. Workers of a single one would all import every file."""
    found, before = list[Step](), list[str]()
    for name, folders in OF_ONE_PROCESS.items():
        here = [folder for folder in folders if folder != without]
        step = pytest(name, *here, *(f"--ignore={folder}" for folder in before), *argv)
        found.append(replace(step, argv=(*FOLDERS_IN_MEMORY, *step.argv)))
        before += here
    return found


def shared(number: int, *argv: str) -> Step:
    """The step that takes its files from those of all tests of processes; what takes longest is taken first."""
    elsewhere = {
        SPARK,
        TERRAFORM,
        BROWSER,
        CLUSTERS,
        *(each for folders in OF_ONE_PROCESS.values() for each in folders),
    }
    files = (str(file.relative_to(ROOT)) for file in (ROOT / "tests").rglob("test_*.py"))
    here = [file for file in files if not any(file.startswith(f"{folder}/") for folder in elsewhere)]
    seconds = seconds_of_files()
    here.sort(key=lambda file: (-seconds.get(file, 0), file))
    return pytest(f"tests {number}", "-p", "tests.shared_files", f"--shared-in={TAKEN}", *here, *argv)


def seconds_of_files() -> dict[str, int]:
    """Of each file that takes LEAST_SECONDS or more, as `write_durations` has written it."""
    lines = (line.split() for line in DURATIONS.read_text().splitlines())
    return {path: int(seconds) for seconds, path in lines}


def files_with(mark: str) -> list[str]:
    """The files of tests that speak of a mark: to look for its tests by collecting all files takes nine seconds."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(file.relative_to(ROOT)) for file in files if mark in file.read_text()]


def giving_way(step: Step, *, nice: int, lane: str = "") -> Step:
    """Each five is a third of a busy core: less would slow those before it down, more would starve its tests."""
    return replace(step, argv=("nice", "-n", str(nice), *step.argv), lane=lane)


def steps(target: str, extra: list[str]) -> list[Step]:
    """The steps of one make target in their order; `extra` goes to pytest."""
    match target:
        case "check":
            # Examples that are drawn take twenty seconds, and `make test` draws them.
            later = [f"--ignore={file}" for file in LEFT_TO_TEST]
            house, *parts = of_one_process(*later, "-m", f"not slow and {LONG_RUNS}", *extra, without=PROPERTIES)
            beside = [replace(each, lane="beside") for each in (TYPES, FLOORS, DEPENDENCIES)]
            return [LINT, STYLE, *beside, *(replace(each, lane=each.name) for each in parts), house]
        case "test":
            # Alone in their process, not on the machine.
            alone = pytest("tests that are alone", *files_with(ALONE), "-m", f"alone and {LONG_RUNS}", *extra)
            *beside, of_others = of_one_process("-m", LONG_RUNS, *extra)
            spark = pytest("tests with Spark", SPARK, "-m", LONG_RUNS, *extra)
            first, *others = (
                giving_way(shared(number, "-m", f"not alone and {LONG_RUNS}", *extra), nice=5, lane=lane)
                for number, lane in enumerate(("", *(f"tests {number}" for number in range(2, WORKERS + 1)), *LATER), 1)
            )
            in_a_hurry = [replace(each, lane="in a hurry") for each in (spark, alone)]
            computing = [giving_way(each, nice=10, lane="computing") for each in (TYPES, MODULES, of_others)]
            computing += [giving_way(each, nice=10, lane="computing beside") for each in beside]
            # While Playwright runs, no event loop of another test can run in its process.
            browser = pytest("tests with a browser", BROWSER, "-m", LONG_RUNS, *extra)
            clusters = pytest("tests of clusters", CLUSTERS, "-m", f"not alone and {LONG_RUNS}", *extra)
            after_another = [giving_way(each, nice=5, lane="browser") for each in (browser, clusters)]
            return [LINT, STYLE, FLOORS, *in_a_hurry, *computing, *after_another, *others, first]
        case "soak" if not extra:
            # Whoever names tests wants those alone.
            drawn = (PROPERTIES, "tests/unit", "tests/components/http/test_http_openapi.py")
            return [pytest("soak", "-m", "soak", "-o", "timeout=0"), pytest("properties", *drawn, "-o", "timeout=0")]
        case "terraform":
            modules = replace(MODULES, argv=(*MODULES.argv, "--all", *extra))
            # Whoever names tests wants those alone.
            return [modules] if extra else [modules, EMULATOR]
        case "localstack":
            return [replace(EMULATOR, argv=(*EMULATOR.argv, *extra))]
        case "soak" | "interop" | "fuzz":
            return [pytest(target, "-m", target, "-o", "timeout=0", *extra)]
    raise SystemExit(
        f"steps.py: {target!r} is none of check, test, durations, soak, interop, fuzz, terraform, localstack"
    )


def word(code: int) -> str:
    """What the summary says of a step that ended so."""
    return {0: "passed", SKIPPED: "skipped"}.get(code, "FAILED")


def run(step: Step, environment: Mapping[str, str], *, keep: IO[bytes] | None) -> Result:
    """What became of it. What it says goes to `keep`, or at once to the reader."""
    started = time.monotonic()
    if step.results is not None:
        step.results.unlink(missing_ok=True)
    code, words = listen(step.argv, environment, keep or sys.stdout.buffer)
    seconds = time.monotonic() - started
    return Result(name=step.name, code=code, seconds=seconds, passed=passed_of(words), skipped=skipped_of(words, code))


def listen(argv: Sequence[str], environment: Mapping[str, str], output: IO[bytes]) -> tuple[int, str]:
    """The exit code of a command whose words go to `output`, and its last words."""
    end = b""
    with subprocess.Popen(
        argv, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0
    ) as process:
        assert process.stdout is not None
        while said := process.stdout.read(1 << 16):
            output.write(said)
            output.flush()
            end = (end + said)[-LAST_WORDS_BYTES:]
    return process.returncode, end.decode(errors="replace")


def passed_of(words: str) -> int:
    """What pytest's last line says, or 0 where there is none."""
    last_line = words.rstrip().rpartition("\n")[2]
    found = re.search(r"\b(\d+) passed\b", last_line)
    return int(found[1]) if found else 0


def skipped_of(words: str, code: int) -> tuple[str, ...]:
    """Pytest's lines about tests that it left out; of a step that could not look, its last line."""
    lines = words.rstrip().splitlines()
    return tuple(lines[-1:]) if code == SKIPPED else tuple(line for line in lines if line.startswith("SKIPPED ["))


def seconds_of(todo: Sequence[Step]) -> dict[str, float]:
    """Each test's seconds in the newest run of these steps; the first of a file carries what the file's tests share."""
    documents = [step.results for step in todo if step.results is not None and step.results.exists()]
    cases = [case for each in documents for case in ElementTree.parse(each).iter("testcase")]
    return {f"{case.get('classname')}::{case.get('name')}": float(case.get("time", 0)) for case in cases}


def write_durations() -> None:
    """The seconds of each file, longest first, from what the newest run of each step of `make test` left."""
    files: dict[str, float] = defaultdict(float)
    for test, seconds in seconds_of(steps("test", [])).items():
        files[test.partition("::")[0].replace(".", "/") + ".py"] += seconds
    longest_first = sorted(files.items(), key=lambda each: (-round(each[1]), each[0]))
    lines = [f"{seconds:.0f} {path}\n" for path, seconds in longest_first if seconds >= LEAST_SECONDS]
    DURATIONS.write_text("".join(lines))


def run_all(todo: Sequence[Step], environment: Mapping[str, str]) -> list[Result]:
    """Runs each step. Those of a lane with a name speak when they have ended and nobody else speaks."""
    with ExitStack() as stack:
        kept = [(step, stack.enter_context(tempfile.TemporaryFile())) for step in todo if step.lane]
        lanes = {step.lane: stack.enter_context(ThreadPoolExecutor(max_workers=1)) for step, _ in kept}
        beside = [lanes[step.lane].submit(run, step, environment, keep=output) for step, output in kept]
        results = []
        for step in todo:
            if not step.lane:
                print(f"--- {step.name}", flush=True)
                results.append(run(step, environment, keep=None))
        for (step, output), future in zip(kept, beside, strict=True):
            results.append(future.result())
            output.seek(0)
            print(f"--- {step.name}\n{output.read().decode(errors='replace')}", end="", flush=True)
    return results


def main(argv: list[str]) -> int:
    target = argv[0] if argv else ""
    if target == "durations":
        write_durations()
        return 0
    started = time.monotonic()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "spark")])}
    # Container images like to set it. Tests start hundreds of brokers: without bytecode each compiles all of it anew.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if profile := {"check": "quick", "soak": "long"}.get(target):
        environment["TIERED_HYPOTHESIS_PROFILE"] = profile
    if target == "test":  # No other target, beside a run of this one, may take from it what it has taken.
        shutil.rmtree(TAKEN, ignore_errors=True)
        TAKEN.mkdir(parents=True)
    todo = steps(target, argv[1:])
    results = run_all(todo, environment)
    if slowest := sorted(seconds_of(todo).items(), key=lambda each: -each[1])[:SLOWEST_TOLD]:
        print(f"\n--- the slowest, with what they share ({RESULTS.relative_to(ROOT)} has all)")
        for test, seconds in slowest:
            print(f"{seconds:7.1f} s  {test}")
    print("\n--- summary")
    for each in results:
        print(f"{word(each.code):8}{each.name:24}{each.seconds:7.1f} s")
        for skipped in each.skipped:
            print(f"        {skipped}")
    # A line as pytest's: the count that a reader sees at the end is that of all.
    print(f"{sum(each.passed for each in results)} passed in {time.monotonic() - started:.0f} s")
    return 1 if any(word(each.code) == "FAILED" for each in results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
