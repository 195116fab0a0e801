"""The modules by themselves: how they are written, that they are valid, and what their tests claim of a mocked AWS."""

import re
import shutil
from pathlib import Path

import pytest

from tests.terraform.installed import ROOT, WorkingCopy

# Terraform starts a provider of 600 MB for each of them.
pytestmark = pytest.mark.timeout(600)

MODULES = sorted(path.name for path in (ROOT / "terraform/modules").iterdir())
VARIABLE = re.compile(r'^variable "(\w+)" \{\n(.*?)^\}', re.MULTILINE | re.DOTALL)
OUTPUT = re.compile(r'^output "(\w+)" \{\n(.*?)^\}', re.MULTILINE | re.DOTALL)
RUN = re.compile(r'^run "\w+" \{$', re.MULTILINE)
FILES = sorted((ROOT / "terraform").rglob("*.tf"))


def test_files_are_formatted(terraform: WorkingCopy) -> None:
    terraform.run("terraform", "fmt", "-check", "-recursive", "-diff", "-no-color")


@pytest.mark.parametrize("env", ["aws", "local"])
def test_environments_with_all_their_modules_are_valid(terraform: WorkingCopy, env: str) -> None:
    terraform.init(f"terraform/envs/{env}")
    terraform.run(f"terraform/envs/{env}", "validate", "-no-color")


def test_what_the_tests_of_all_modules_claim_holds(terraform: WorkingCopy) -> None:
    """From one root without anything of its own, so that Terraform reads the provider's schemas once for all."""
    root, modules = terraform.folder / "all", terraform.folder / "terraform/modules"
    (root / "tests").mkdir(parents=True)
    shutil.copy(modules / MODULES[0] / "versions.tf", root)
    claims = 0
    for module in MODULES:
        chosen = f'\n  module {{\n    source = "../terraform/modules/{module}"\n  }}'
        for path in (modules / module / "tests").iterdir():
            text = path.read_text().replace('"../../testing/aws"', '"../terraform/testing/aws"')
            text, count = RUN.subn(rf"\g<0>{chosen}", text)
            assert count > 0, path
            (root / "tests" / f"{module}-{path.name}").write_text(text)
            claims += count
    terraform.init("all")
    said = terraform.run("all", "test", "-no-color").stdout
    assert f"Success! {claims} passed, 0 failed" in said, said


@pytest.mark.terraform
@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_valid_and_what_its_tests_claim_holds(terraform: WorkingCopy, module: str) -> None:
    where = f"terraform/modules/{module}"
    terraform.init(where)
    said = terraform.run(where, "test", "-no-color").stdout
    assert re.search(r"Success! [1-9]\d* passed, 0 failed", said), said


@pytest.mark.parametrize("module", MODULES)
def test_a_readme_names_every_input_and_output_of_its_module(module: str) -> None:
    folder = ROOT / "terraform/modules" / module
    readme = (folder / "README.md").read_text()
    names = [name for kind in ("variables.tf", "outputs.tf") for name in named((folder / kind).read_text())]
    assert names
    assert [name for name in names if f"| `{name}` |" not in readme] == []
    assert "## What it costs" in readme


def named(text: str) -> list[str]:
    return re.findall(r'^(?:variable|output) "(\w+)"', text, re.MULTILINE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_inputs_and_outputs_say_what_they_are(path: Path) -> None:
    for name, body in VARIABLE.findall(path.read_text()):
        assert "description" in body, f"variable {name} has no description"
        assert re.search(r"^  type +=", body, re.MULTILINE), f"variable {name} has no type"
        assert body.count("condition") == body.count("error_message")
    for name, body in OUTPUT.findall(path.read_text()):
        assert "description" in body, f"output {name} has no description"


def test_only_the_provider_of_aws_is_used_and_only_environments_configure_it() -> None:
    for path in FILES:
        text = path.read_text()
        assert set(re.findall(r'source += "([a-z]+/[a-z]+)"', text)) <= {"hashicorp/aws"}
        assert set(re.findall(r'source += "([^"/.][^"]*)"', text)) <= {"hashicorp/aws"}, "modules are our own"
        if "modules" in path.parts:
            assert not re.search(r'^provider "', text, re.MULTILINE), path


def test_every_check_that_is_skipped_has_its_reason_beside_it() -> None:
    skips = [line for path in FILES for line in path.read_text().splitlines() if "checkov:skip" in line]
    assert skips
    assert [line for line in skips if not re.search(r"# checkov:skip=CKV2?_[A-Z]+_\d+: \w.+", line)] == []
