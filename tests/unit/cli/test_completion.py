"""Completion: the scripts say what argparse knows, and real shells read them."""

import argparse
import shutil
import subprocess
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path

import pytest

from tiered.cli import build_parser, main
from tiered.cli.completion import FILES, FOLDERS, GROUPS, SNAPSHOTS, TOPICS, TRANSACTIONS, State, states_of

SHELL_S = 30


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    def make(shell: str) -> Path:
        path = tmp_path / f"completion.{shell}"
        path.write_text(printed(shell))
        return path

    return make


@cache
def printed(shell: str) -> str:
    with redirect_stdout(StringIO()) as words:
        assert main(["completion", shell]) == 0
    return words.getvalue()


@cache
def parser() -> argparse.ArgumentParser:
    return build_parser()


def output_of(*argv: str, cwd: Path) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=SHELL_S, cwd=cwd)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def test_every_command_and_option_of_argparse_is_in_the_table() -> None:
    states = {each.path: each for each in states_of(parser())}

    def walk(command: argparse.ArgumentParser, path: tuple[str, ...]) -> None:
        state = states[path]
        known = {name for option in state.options for name in option.names}
        assert known == set(command._option_string_actions)
        for action in command._actions:
            if isinstance(action, argparse._SubParsersAction):
                assert [name for name, _ in state.commands] == list(action.choices)
                for name, each in action.choices.items():
                    walk(each, (*path, name))

    walk(parser(), ())
    assert ("groups", "reset") in states


@pytest.mark.parametrize(
    ("path", "option", "values"),
    [
        (("produce",), "-z", ("none", "gzip", "snappy", "lz4", "zstd")),
        (("serve",), "--data", (FOLDERS,)),
        (("doctor",), "--config", (FILES,)),
        (("consume",), "--group", (GROUPS,)),
        (("groups", "reset"), "--topic", (TOPICS,)),
        (("consume",), "--follow", None),
    ],
)
def test_an_options_value_is_known_from_its_choices_or_its_kind(
    path: tuple[str, ...], option: str, values: tuple[str, ...] | None
) -> None:
    (state,) = [each for each in states_of(parser()) if each.path == path]
    (found,) = [each for each in state.options if option in each.names]
    assert found.value == values


def test_a_bare_word_is_what_the_command_is_about() -> None:
    words = {each.path: each.words for each in states_of(parser())}
    assert words["consume",] == (TOPICS,)
    assert words["produce",] == (TOPICS, FILES)
    assert words["groups", "describe"] == (GROUPS,)
    assert words["transactions", "abort"] == (TRANSACTIONS,)
    assert words["snapshot", "delete"] == (SNAPSHOTS,)
    assert words["explain-retention",] == (TOPICS,)
    assert words["completion",] == ("bash", "zsh", "fish")


# Shells


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["tiered", "t"], ["topics", "transactions"]),
        (["tiered", "topics", "de"], ["describe", "delete", "delete-records"]),
        (["tiered", "produce", "x", "-z", "z"], ["zstd"]),
        (["tiered", "produce", "x", "--compression", "=", "l"], ["lz4"]),
        (["tiered", "produce", "x", "--compression", "="], ["none", "gzip", "snappy", "lz4", "zstd"]),
        (["tiered", "consume", "-b", "topics", "x", "--fo"], ["--follow", "--format"]),
        (["tiered", "consume", "-b", "127.0.0.1", ":", "1", "x", "--fol"], ["--follow"]),
        (["tiered", "doctor", "--only", "s"], ["sql", "store"]),
        (["tiered", "serve", "--data", "fold"], ["folder with space"]),
        (["tiered", "serve", "--config", "fi"], ["file.toml"]),
        (["tiered", "serve", "--broker-id", ""], []),
        (["tiered", "produce", "x", "-k", ":", "fi"], ["file.toml"]),
        (["tiered", "groups", "reset", "g", "--to-e"], ["--to-earliest"]),
        (["tiered", "topics", "create", "t", "-c", "retention.m"], ["retention.ms="]),
        (["tiered", "topics", "alter", "t", "--delete-config", "local.retention."],
         ["local.retention.bytes", "local.retention.ms"]),
        (["tiered", "serve", "--set", "log.retention.h"], ["log.retention.hours="]),
    ],
)  # fmt: skip
def test_bash_completes_commands_options_choices_and_files(
    script: Callable[[str], Path], tmp_path: Path, line: list[str], expected: list[str]
) -> None:
    (tmp_path / "folder with space").mkdir()
    (tmp_path / "file.toml").touch()
    code = (
        'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); _tiered_complete; '
        'if [ ${#COMPREPLY[@]} -gt 0 ]; then printf "%s\\n" "${COMPREPLY[@]}"; fi'
    )
    found = output_of("bash", "--norc", "-c", code, "bash", str(script("bash")), *line, cwd=tmp_path)
    assert found.splitlines() == expected


def test_names_come_from_the_broker_that_the_line_names(script: Callable[[str], Path], tmp_path: Path) -> None:
    tiered = tmp_path / "tiered"
    tiered.write_text('#!/bin/sh\nif [ "$1" = topics ]; then echo "asked-$5"; else exit 1; fi\n')
    tiered.chmod(0o755)
    code = (
        'source "$1"; program="$2"; ask() { COMP_WORDS=("$program" "$@"); COMP_CWORD=$#; COMPREPLY=(); '
        '_tiered_complete; echo "${COMPREPLY[*]}"; }; '
        "ask consume -b 127.0.0.1 : 7 ''; ask consume -g ''"
    )
    found = output_of("bash", "--norc", "-c", code, "bash", str(script("bash")), str(tiered), cwd=tmp_path)
    # The second one's question fails: nothing is completed, and nothing is said.
    assert found == "asked-127.0.0.1:7\n\n"


def test_snapshots_come_from_the_http_address_that_the_line_names(
    script: Callable[[str], Path], tmp_path: Path
) -> None:
    tiered = tmp_path / "tiered"
    tiered.write_text('#!/bin/sh\nif [ "$1" = snapshot ]; then echo "asked-$5"; else exit 1; fi\n')
    tiered.chmod(0o755)
    code = (
        'source "$1"; COMP_WORDS=("$2" snapshot delete --http 127.0.0.1 : 8 ""); COMP_CWORD=7; COMPREPLY=(); '
        '_tiered_complete; echo "${COMPREPLY[*]}"'
    )
    found = output_of("bash", "--norc", "-c", code, "bash", str(script("bash")), str(tiered), cwd=tmp_path)
    assert found == "asked-127.0.0.1:8\n"


def test_bash_reads_the_script_for_every_state_without_a_word(script: Callable[[str], Path], tmp_path: Path) -> None:
    states: list[State] = list(states_of(parser()))
    code = 'source "$1"; shift; for state in "$@"; do [ -n "$(_tiered_table "$state|options")" ] || echo "$state"; done'
    paths = [" ".join(each.path) for each in states]
    assert output_of("bash", "--norc", "-c", code, "bash", str(script("bash")), *paths, cwd=tmp_path) == ""


@pytest.mark.interop
def test_zsh_and_fish_complete_too(script: Callable[[str], Path], tmp_path: Path) -> None:
    for shell in ("zsh", "fish"):
        assert shutil.which(shell), f"{shell} is not on PATH: install it (Debian, Ubuntu: apt-get install {shell})"
    loaded = (
        f"autoload -Uz compinit && compinit -u -d {tmp_path}/dump && source {script('zsh')} && print $_comps[tiered]"
    )
    assert output_of("zsh", "-f", "-c", loaded, cwd=tmp_path) == "_tiered_complete\n"
    state = f"compdef() {{}}; source {script('zsh')}; _tiered_state topics create -p 3 --config"
    assert output_of("zsh", "-f", "-c", state, cwd=tmp_path) == "topics create|--config"
    fish = script("fish")
    for line, expected in (
        ("tiered t", ["topics", "transactions"]),
        ("tiered topics de", ["delete", "delete-records", "describe"]),
        ("tiered produce x -z z", ["zstd"]),
        ("tiered groups reset g --to-e", ["--to-earliest"]),
        ("tiered topics create t -c retention.m", ["retention.ms="]),
    ):
        found = output_of("fish", "-N", "-c", f"source {fish}; complete -C '{line}'", cwd=tmp_path)
        assert sorted(each.split("\t")[0] for each in found.splitlines()) == expected
