"""What `make test`, `make check` and their siblings run, one line each, with a summary at the end.

Owns the order of the steps and nothing of what they check. Every step runs, whatever the one before
found; the exit code is 0 only when all of them passed.
"""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
LONG_RUNS = "not soak and not interop and not fuzz"
# A file, and with it its fixtures, stays on one worker; tests/conftest.py decides which file begins first.
# Three workers for two cores: most tests wait for processes, disks and time-outs now and then.
WORKERS = ("-n", "3", "--no-loadscope-reorder")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    name: str
    argv: tuple[str, ...]


# Without its cache: how imports are sorted depends on other files too, and it takes no time.
LINT = Step(name="lint", argv=(str(BIN / "ruff"), "check", "--no-cache", "--quiet", "."))
STYLE = Step(name="format", argv=(str(BIN / "ruff"), "format", "--check", "--quiet", "."))
TYPES = Step(name="types", argv=(str(BIN / "mypy"),))
FLOORS = Step(name="floors", argv=(str(BIN / "lint-imports"),))


def pytest(name: str, *argv: str) -> Step:
    return Step(name=name, argv=(sys.executable, "-m", "pytest", "-q", *argv))


def steps(target: str, extra: list[str]) -> list[Step]:
    """The steps of one make target; `extra` goes to pytest."""
    match target:
        case "check":
            quick = ("tests/unit", "tests/properties", "tests/house", "tests/golden")
            present = [folder for folder in quick if (ROOT / folder).is_dir()]
            return [
                LINT,
                STYLE,
                FLOORS,
                TYPES,
                pytest("unit tests", *present, *WORKERS, "-m", f"not slow and {LONG_RUNS}", *extra),
            ]
        case "test":
            return [
                LINT,
                STYLE,
                FLOORS,
                TYPES,
                # First, so that the last count a reader sees is that of all the others.
                pytest("tests that are alone", "tests/components", "-m", f"alone and {LONG_RUNS}", *extra),
                pytest("tests", *WORKERS, "-m", f"not alone and {LONG_RUNS}", *extra),
            ]
        case "soak" | "interop" | "fuzz":
            return [pytest(target, "-m", target, "-o", "timeout=0", *extra)]
    raise SystemExit(f"steps.py: {target!r} is none of check, test, soak, interop, fuzz")


def run(step: Step, *, quick: bool) -> tuple[bool, float]:
    started = time.monotonic()
    print(f"--- {step.name}", flush=True)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "spark")])}
    # Container images like to set it. Tests start hundreds of brokers: without bytecode each compiles all of it anew.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if quick:
        environment["TIERED_HYPOTHESIS_PROFILE"] = "quick"
    code = subprocess.run(step.argv, cwd=ROOT, env=environment).returncode
    return code == 0, time.monotonic() - started


def main(argv: list[str]) -> int:
    target = argv[0] if argv else ""
    results = [(step, *run(step, quick=target == "check")) for step in steps(target, argv[1:])]
    print("\n--- summary")
    for step, passed, seconds in results:
        print(f"{'passed' if passed else 'FAILED':8}{step.name:24}{seconds:7.1f} s")
    return 0 if all(passed for _, passed, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
