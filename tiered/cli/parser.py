"""Which commands there are and what each is told: argparse and nothing else.

Owns names, options and help. Must never import what a command needs before that command is chosen.
"""

import argparse
from typing import NoReturn

import tiered
from tiered.config import add_serve_arguments


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that takes no abbreviations, for they break when options come, and that names its help."""

    def __init__(self, **settings: object) -> None:
        settings.setdefault("allow_abbrev", False)
        super().__init__(**settings)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see `{self.prog} --help`\n")


def build_parser() -> argparse.ArgumentParser:
    """The whole command line. The chosen command's function stands in `run`; None when none was chosen."""
    parser = Parser(
        prog="tiered",
        description="A Kafka-compatible log: hot tail on local disk, cold past in an object store.",
        epilog="Exit codes: 0 done, 1 failed, 2 usage. `tiered COMMAND --help` tells more.",
    )
    parser.add_argument("--version", action="version", version=f"tiered {tiered.__version__}")
    parser.set_defaults(run=None, parser=None)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    _add_serve(commands)
    return parser


def command_name(arguments: argparse.Namespace) -> str:
    """The chosen command as typed, for messages: `tiered serve`."""
    return str(arguments.parser.prog)


def _add_serve(commands: "argparse._SubParsersAction[Parser]") -> None:
    parser = commands.add_parser(
        "serve",
        help="run a broker",
        description="Runs a broker until SIGTERM or Ctrl-C. It prints one line that begins with `ready` when it serves.",
        epilog="Each option may also come from the environment (TIERED_KAFKA for --kafka) or from the file. "
        "Precedence: option, environment, file, default.",
    )
    add_serve_arguments(parser)
    parser.set_defaults(run=_serve, parser=parser)


def _serve(arguments: argparse.Namespace) -> int:
    from tiered.cli.serve import run

    return run(arguments)
