"""The commands that there are: make's and `tiered`'s."""

import argparse
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    actions = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    return dict(actions[0].choices) if actions else {}
