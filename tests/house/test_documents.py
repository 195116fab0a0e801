"""What documents name exists: commands, make targets, files. Every decision is listed, every skip has its reason."""

import ast
import re
from pathlib import Path

import pytest

from tests.house.commands import ROOT, make_targets, subcommands
from tiered.config.broker import BROKER_SETTINGS
from tiered.config.serve import OPTIONS, Option

DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("spark/**/*.md"), *ROOT.glob("localstack/*.md")]
)
ADRS = sorted(path for path in (ROOT / "docs/adr").glob("[0-9][0-9][0-9][0-9]-*.md") if path.name != "0000-template.md")
WORDS = sorted(
    path
    for path in [*DOCUMENTS, *ROOT.glob("tiered/**/*.py"), *ROOT.glob("spark/**/*.py"), *ROOT.glob("terraform/**/*.md")]
    if "pip install" in path.read_text()
)
TESTS = sorted((ROOT / "tests").rglob("*.py"))
CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
MAKE = re.compile(r"\bmake\s+(?:-\S+\s+)*([a-z][a-z-]*)")
COMMAND = re.compile(r"(?:^|[\s`/$])tiered[ \t]+([a-z][a-z-]+)(?:[ \t]+([a-z][a-z-]*))?")
NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def code_in(document: Path) -> str:
    return "\n".join(CODE.findall(document.read_text()))


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_documents_name_only_make_targets_that_exist(document: Path) -> None:
    unknown = set(MAKE.findall(code_in(document))) - make_targets()
    assert not unknown, f"{relative(document)} names make targets that are not in the Makefile: {sorted(unknown)}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_documents_name_only_commands_that_exist(document: Path) -> None:
    from tiered.cli import build_parser

    commands = subcommands(build_parser())
    for command, second in COMMAND.findall(code_in(document)):
        assert command in commands, f"{relative(document)} names `tiered {command}`, which does not exist"
        deeper = subcommands(commands[command])
        if second and deeper:
            assert second in deeper, f"{relative(document)} names `tiered {command} {second}`, which does not exist"


def shell_commands(document: Path) -> list[str]:
    """The lines of its shell blocks, those that go on after a backslash joined."""
    blocks = re.findall(r"```(?:sh|bash)\n(.*?)```", document.read_text(), re.DOTALL)
    return [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_brokers_of_the_documents_start_beside_one_that_runs_already(document: Path) -> None:
    for command in shell_commands(document):
        if command.startswith(("tiered serve", "tiered cluster up")) and "..." not in command:
            assert re.search(r"--(kafka|listener|kafka-port)\b", command), f"takes port 9092: {command}"
            assert re.search(r"--http(-port)?\b", command), f"takes port 8080: {command}"
            taken = r"--(kafka|http) 127\.0\.0\.1:(9092|8080)\b(?!.*--advertise)|-port (9092|8080)\b"
            assert not re.search(taken, command), f"takes the ports of `make run`: {command}"


@pytest.mark.parametrize("path", WORDS, ids=relative)
def test_nobody_is_sent_to_an_index_that_has_no_tiered(path: Path) -> None:
    """What is installed is a clone, or wheels in a folder; a text in Python may go on in the next literal."""
    text = re.sub(r'"\s*\n\s*f?"', "", path.read_text())
    sent = [line for line in text.splitlines() if re.search(r"pip install [^`\n]*[\s'\"]tiered\b(?![./-])", line)]
    assert not [line for line in sent if "--find-links" not in line]


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.key)
def test_every_option_of_serve_is_documented_with_its_variable(option: Option) -> None:
    text = (ROOT / "docs/cli.md").read_text()
    assert (f"`{option.flag}`" if option.is_switch else f"`{option.flag} ") in text
    assert f"`{option.variable}`" in text
    assert f"`{option.key}`" in text


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    broken = [link for link in LINK.findall(document.read_text()) if not (document.parent / link).exists()]
    assert not broken, f"{relative(document)} links to what is not there: {broken}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_documents_name_only_tests_that_exist(document: Path) -> None:
    for path, name in NAMED_TEST.findall(document.read_text()):
        assert (ROOT / path).exists(), f"{relative(document)} names {path}, which does not exist"
        found = re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE)
        assert found, f"{relative(document)} names {path}::{name}, which does not exist"


def test_every_make_target_is_phony_or_a_file_and_is_explained() -> None:
    text = (ROOT / "Makefile").read_text()
    phony = set(re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)[0].split()) | {
        "distclean",
        "kcat",
        "shells",
        "pgbouncer",
        "chromium",
    }
    explained = set(re.findall(r"^([a-z][a-z-]*):.*## ", text, re.MULTILINE)) | {
        "kcat",
        "shells",
        "pgbouncer",
        "chromium",
    }
    assert make_targets() == phony == explained


def test_every_decision_is_listed_once_under_its_own_number() -> None:
    listed = re.findall(
        r"^\| \[\d{4}\]\((\d{4}-[a-z0-9-]+\.md)\)", (ROOT / "docs/adr/README.md").read_text(), re.MULTILINE
    )
    assert sorted(listed) == [path.name for path in ADRS]
    numbers = [path.name[:4] for path in ADRS]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("adr", ADRS, ids=relative)
def test_a_decision_says_its_status_context_decision_and_consequences(adr: Path) -> None:
    text = adr.read_text()
    assert re.match(rf"# 0*{int(adr.name[:4])}[ :.—-]", text), "the title begins with the number"
    assert re.search(r"^(?:\*\*)?Status\b", text, re.MULTILINE | re.IGNORECASE) or "## Status" in text
    for heading in ("Context", "Decision", "Consequences"):
        assert re.search(rf"^## .*{heading}", text, re.MULTILINE), f"{relative(adr)} has no section {heading}"


def marks_without_reason(tree: ast.Module) -> list[int]:
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            reasoned = any(keyword.arg == "reason" for keyword in node.keywords)
            if name.endswith(("mark.skip", "mark.skipif", "mark.xfail")) and not reasoned:
                lines.append(node.lineno)
            if name in ("pytest.skip", "pytest.xfail") and not (node.args or reasoned):
                lines.append(node.lineno)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bare = [ast.unparse(each) for each in node.decorator_list if not isinstance(each, ast.Call)]
            lines.extend(node.lineno for each in bare if each.endswith(("mark.skip", "mark.xfail")))
    return lines


def test_no_test_is_skipped_without_a_reason() -> None:
    sources = {relative(path): path.read_text() for path in TESTS}
    named = {path: source for path, source in sources.items() if "skip" in source or "xfail" in source}
    found = {path: marks_without_reason(ast.parse(source)) for path, source in named.items()}
    assert not {path: lines for path, lines in found.items() if lines}


def test_a_bare_skip_is_seen() -> None:
    assert marks_without_reason(ast.parse("@pytest.mark.skip\ndef test_x(): ...")) == [2]
    assert marks_without_reason(ast.parse("@pytest.mark.xfail()\ndef test_x(): ..."))
    assert not marks_without_reason(ast.parse("@pytest.mark.skip(reason='x')\ndef test_x(): ..."))


def test_every_page_is_on_the_map() -> None:
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    mapped = set(LINK.findall((ROOT / "docs/README.md").read_text()))
    assert not pages - mapped, "pages that no reader is sent to"


ANCHOR = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)#([^)\s]+)\)")
TEXT_ABOUT_A_PAGE = re.compile(r"\bdocs/[\w-]+\.md(?:#([\w-]+))?")


def anchors_of(document: Path) -> set[str]:
    """Of its headings, as web pages of repositories make them."""
    text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_links_to_sections_lead_to_a_heading(document: Path) -> None:
    found = [(path, name) for path, name in ANCHOR.findall(document.read_text()) if not path or path.endswith(".md")]
    broken = [(p, name) for p, name in found if name not in anchors_of(document.parent / p if p else document)]
    assert not broken, f"{relative(document)} links to headings that are not there: {broken}"


def test_pages_that_messages_and_docstrings_name_exist() -> None:
    code = [*ROOT.glob("tiered/**/*.py"), *ROOT.glob("spark/**/*.py"), *ROOT.glob("tests/**/*.py")]
    named = {(path, found[0].split("#")[0]) for path in code for found in TEXT_ABOUT_A_PAGE.finditer(path.read_text())}
    assert not [(relative(path), page) for path, page in named if not (ROOT / page).is_file()]


ROOMS = {path.stem for path in (ROOT / "tiered").iterdir() if path.suffix in ("", ".py")} - {"__pycache__"}
DOTTED = re.compile(rf"`(?:tiered\.)?((?:{'|'.join(sorted(ROOMS))})(?:\.\w+)+)(?<!\.py)`")


def is_there(dotted: str) -> bool:
    """Whether it is a module in tiered/, or a name that one has: `meta.segments`, `hot.file_system.FileSystem`."""
    module, _, name = dotted.rpartition(".")
    path = ROOT / "tiered" / dotted.replace(".", "/")
    if path.is_dir() or path.with_suffix(".py").is_file():
        return True
    path = ROOT / "tiered" / module.replace(".", "/")
    source = path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"
    return (
        source.is_file() and re.search(rf"^(?:class |(?:async )?def )?{name}\b", source.read_text(), re.M) is not None
    )


def test_modules_that_docstrings_and_comments_name_exist() -> None:
    code = [*ROOT.glob("tiered/**/*.py"), *ROOT.glob("spark/**/*.py"), *ROOT.glob("tests/**/*.py")]
    named = {(name, relative(path)) for path in code for name in DOTTED.findall(path.read_text())}
    gone = sorted(
        each for each in named if not is_there(each[0]) and not {each[0], f"tiered.{each[0]}"} & BROKER_SETTINGS.keys()
    )
    assert not gone, f"moved or renamed: say where each is now: {gone}"
