"""The step `terraform` of `make test` (or all of it, for `make terraform`): ends with SKIPPED where a tool is missing.

Its tests skip themselves there, and pytest calls that a success; the summary must not.
"""

import subprocess
import sys

from tests.steps import LONG_RUNS, SKIPPED
from tests.terraform.installed import ROOT, missing


def main(argv: list[str]) -> int:
    """The exit code of pytest, or SKIPPED. `--all` runs what takes minutes as well; the rest goes to pytest."""
    if reason := missing():
        print(f"nothing of terraform/ was checked: {reason}", flush=True)
        return SKIPPED
    whole = "--all" in argv
    extra = [word for word in argv if word != "--all"]
    chosen = ["-o", "timeout=0"] if whole else ["-m", LONG_RUNS]
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/terraform", *chosen, *extra]
    return subprocess.run(words, cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
