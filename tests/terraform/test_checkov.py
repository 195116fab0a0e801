"""checkov finds nothing in terraform/ that has no reason beside it. It lives in an environment of its own.

It pins versions that ours has others of, so it is never installed beside the tests: `TIERED_CHECKOV` names the command,
or it is on the path.
"""

import json
import os
import shutil
import subprocess

import pytest

from tests.terraform.installed import WorkingCopy

pytestmark = [pytest.mark.terraform, pytest.mark.timeout(900)]

CHECKOV = os.environ.get("TIERED_CHECKOV") or shutil.which("checkov") or ""
INSTALL = "checkov is missing: python -m venv DIR && DIR/bin/pip install checkov, and TIERED_CHECKOV=DIR/bin/checkov"


@pytest.mark.skipif(not CHECKOV, reason=INSTALL)
def test_checkov_finds_nothing_that_is_not_explained(terraform: WorkingCopy) -> None:
    done = subprocess.run(
        [CHECKOV, "-d", str(terraform.folder / "terraform"), "--framework", "terraform", "--skip-download", "--quiet",
         "--compact", "--download-external-modules", "false", "-o", "json"],
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    report = json.loads(done.stdout)
    found = [
        f"{each['check_id']} {each['resource']}: {each['check_name']}" for each in report["results"]["failed_checks"]
    ]
    assert found == []
    assert report["summary"]["passed"] > 200
    assert report["summary"]["parsing_errors"] == 0
