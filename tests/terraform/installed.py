"""Terraform and a mirror of its providers, where this machine has them, and working copies that tests may change.

Owns what counts as missing. Nothing is ever downloaded: a provider comes from the mirror or not at all.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MIRRORS = ("/tf-plugins", *(f"/{folder}/tf-plugins" for folder in ("opt", "usr", "srv", "home", "var", "root", "work")))
RUN_S = 600


def mirror() -> Path | None:
    """Where providers are: `TIERED_TF_MIRROR`, or a folder `tf-plugins` that a prepared machine carries."""
    named = os.environ.get("TIERED_TF_MIRROR")
    candidates = [Path(named)] if named else [Path(folder) for folder in MIRRORS]
    for folder in candidates:
        try:
            if any((folder / "registry.terraform.io/hashicorp/aws").iterdir()):
                return folder
        except OSError:
            continue
    return None


@cache
def missing() -> str:
    """Why nothing of Terraform can be checked here; empty where it can."""
    if shutil.which("terraform") is None:
        return "terraform is not installed"
    if mirror() is None:
        return "there is no mirror of hashicorp/aws: TIERED_TF_MIRROR names one"
    return ""


class WorkingCopy:
    """terraform/ and deploy/ in a folder of their own, so that no run leaves anything in the repository."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._settings = folder / "terraform.rc"
        for name in ("terraform", "deploy"):
            leave = shutil.ignore_patterns(".terraform*", "*.tfstate*")
            shutil.copytree(ROOT / name, folder / name, ignore=leave)
        self._settings.write_text(
            f'disable_checkpoint = true\nprovider_installation {{\n  filesystem_mirror {{ path = "{mirror()}" }}\n}}\n'
        )

    def run(
        self, where: str, *words: str, environ: Mapping[str, str] | None = None, is_expected: int = 0
    ) -> subprocess.CompletedProcess[str]:
        """What `terraform WORDS` said in a folder of ours. Raises AssertionError with it for another exit code."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "TF_"))}
        environ = {
            **inherited,
            "TF_CLI_CONFIG_FILE": str(self._settings),
            "TF_IN_AUTOMATION": "1",
            "AWS_EC2_METADATA_DISABLED": "true",
            # A provider reads its schemas once and keeps them: collecting less often takes a quarter of the processor.
            "GOGC": "400",
            **(environ or {}),
        }
        folder = self.folder / where
        done = subprocess.run(
            ["terraform", *words], cwd=folder, env=environ, capture_output=True, text=True, timeout=RUN_S
        )
        said = f"terraform {' '.join(words)} in {where} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        assert done.returncode == is_expected, said[-12_000:]
        return done

    def init(self, where: str) -> None:
        self.run(where, "init", "-input=false", "-no-color", "-backend=false")
