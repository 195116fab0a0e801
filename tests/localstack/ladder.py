"""The step `localstack` of `make terraform`: ends with SKIPPED where LocalStack cannot be had.

Its tests skip themselves there, and pytest calls that a success; the summary must not.
"""

import subprocess
import sys

from tests.localstack.server import ROOT, install
from tests.steps import SKIPPED


def main(argv: list[str]) -> int:
    """The exit code of pytest, or SKIPPED; `argv` goes to pytest."""
    if reason := install():
        print(f"nothing was tried on LocalStack: {reason}", flush=True)
        return SKIPPED
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "timeout=0", "tests/localstack"]
    return subprocess.run([*words, *argv], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
