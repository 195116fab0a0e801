"""Whether the installed packages fit each other, and whether any, or any that brokers install, has a known weakness.

`pip check` needs nothing. Weaknesses are known to a service alone, which `pip-audit` asks (`pip install pip-audit`).
Where it is not installed, or the service does not know a single package, this says so and ends with SKIPPED: a scan
that did not happen must not look like one that found nothing.
"""

import json
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SKIPPED = 75
TIMEOUT_S = 90
BIN = Path(sys.executable).parent
LOCK = Path(__file__).resolve().parents[1] / "deploy/requirements.txt"


def verdict(dependencies: Sequence[dict[str, Any]]) -> tuple[int, str]:
    """The exit code and the words for what pip-audit says of each package."""
    audited = [each for each in dependencies if "skip_reason" not in each]
    weak = [each for each in audited if each["vulns"]]
    if weak:
        lines = []
        for each in weak:
            mended = [version for found in each["vulns"] for version in found["fix_versions"]]
            names = ", ".join(found["id"] for found in each["vulns"])
            lines.append(f"{each['name']} {each['version']}: {names}; mended in {', '.join(mended) or 'nothing yet'}")
        return 1, "\n".join(lines)
    if not audited:
        return SKIPPED, f"skipped: the service knows none of {len(dependencies)} packages; is it reachable from here?"
    return 0, f"{len(audited)} of {len(dependencies)} packages have no known weakness"


def audit(*packages: str) -> tuple[int, str]:
    """The verdict on the packages that these arguments of pip-audit name."""
    tool = shutil.which("pip-audit", path=str(BIN)) or shutil.which("pip-audit")
    if tool is None:
        return SKIPPED, "skipped: pip-audit is not installed; `pip install pip-audit` to look for known weaknesses"
    argv = [
        tool,
        *packages,
        "--format",
        "json",
        "--progress-spinner",
        "off",
        "--timeout",
        "10",
    ]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return SKIPPED, f"skipped: pip-audit's service did not answer within {TIMEOUT_S} s"
    try:
        found = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        return SKIPPED, f"skipped: pip-audit gave no result: {done.stderr.strip()[-500:]}"
    return verdict(found)


def main() -> int:
    fits = subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", "check"])
    installed, words = audit("--path", sysconfig.get_path("purelib"))
    print(words)
    locked, words = audit("--requirement", str(LOCK), "--disable-pip")
    print(f"{LOCK.name}: {words}")
    # A weakness in one counts for more than that the other could not be looked at.
    return fits.returncode or min(installed, locked, key=(1, SKIPPED, 0).index)


if __name__ == "__main__":
    sys.exit(main())
