"""The arguments that all commands share: the parser's manners, how to reach a broker, and numbers.

Owns no command. Must import next to nothing, for every start pays for it.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_HTTP = "http://127.0.0.1:8080"
MAX_INT32 = 2**31 - 1
CONNECTION_OPTIONS = {("-b", "--bootstrap"): "HOST:PORT", ("--http",): "URL", ("--command-config",): "FILE"}
"""The options of commands that may also stand before the command, with what their value is."""
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_MAX_COUNT = 100_000


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that names its help, lets options stand between words, and takes no abbreviations.

    Abbreviations break when options are added.
    """

    def __init__(self, **settings: object) -> None:
        settings.setdefault("allow_abbrev", False)
        super().__init__(**settings)  # type: ignore[arg-type]
        self._takes_turns = False

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Options and words in any order: argparse takes the TOPIC of `TOPIC -k : FILE` for all the words there are.

        Words after `--` stand together, for argparse's way of taking turns loses the `--`.
        """
        args = self._behind_the_command(sys.argv[1:] if args is None else args)
        takes_several = any(each.nargs in {"?", "*", "+"} for each in self._get_positional_actions())
        if self._takes_turns or not takes_several or "--" in (args or ()):
            return super().parse_known_args(args, namespace)
        self._takes_turns = True  # argparse comes back here, for the options and then for the words.
        try:
            return super().parse_known_intermixed_args(args, namespace)
        finally:
            self._takes_turns = False

    def _behind_the_command(self, args: Sequence[str]) -> Sequence[str]:
        """The same words, with connection options that stand before a command where the command's own may stand."""
        commands = next((action for action in self._get_positional_actions() if isinstance(action, Commands)), None)
        names: list[str] = []
        end = 0
        while end < len(args) and (name := _connection_option(args[end])) is not None:
            names.append(name)
            end += 2 if args[end] == name else 1
        if commands is None or not names or end > len(args):
            return args
        if end == len(args) or args[end] in {"-h", "--help"}:
            return args[end:]  # What is missing, or the help, is the same with and without them.
        if args[end].startswith("-"):
            before = ", ".join(names[0] for names in CONNECTION_OPTIONS)
            self.error(f"{args[end]} belongs behind the command; of options only {before} may stand before it")
        chosen: argparse.ArgumentParser | None = commands.choices.get(args[end])
        if chosen is not None and chosen.get_default("run") is not None:
            # The command would take the value of an option that it does not know for one of its words.
            for name in names:
                if name not in chosen._option_string_actions:  # noqa: SLF001 - argparse has no other way to ask.
                    chosen.error(f"unrecognized arguments: {name}")
        return [args[end], *args[:end], *args[end + 1 :]]

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            from tiered.cli.names import nearest_names  # difflib is for those who mistype.

            error.message += nearest_names(str(value), map(str, action.choices or ()))
            raise

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> Any:
        arguments, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.refuse(unknown)
        return arguments

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """Ends with the words that no argument takes, and options that are like the first one of them."""
        from tiered.cli.names import nearest_names  # difflib is for those who mistype.

        option = next((word.partition("=")[0] for word in unknown if word.startswith("--")), None)
        names = [name for name in self._option_string_actions if name.startswith("--")]
        meant = "" if option is None else nearest_names(option, names, prefix="--")
        self.error(f"unrecognized arguments: {' '.join(unknown)}{meant}")

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see `{self.prog} --help`\n")


Commands = argparse._SubParsersAction  # noqa: SLF001 - argparse gives the type of its own result no public name.


def _connection_option(word: str) -> str | None:
    """The connection option that a word is, or that it carries with its value; None for any other word."""
    name = word.partition("=")[0] if word.startswith("--") else word[:2]
    return name if any(name in names for names in CONNECTION_OPTIONS) else None


def connection_options(parser: argparse.ArgumentParser) -> None:
    """Has the help of all commands show what may stand before a command: the command itself reads it."""
    group = parser.add_argument_group("options of commands that may stand before the command too")
    for names, metavar in CONNECTION_OPTIONS.items():
        group.add_argument(*names, metavar=metavar, default=argparse.SUPPRESS, help="see the help of the command")


def command(commands: "Commands[Parser]", name: str, run: str | None, what: str, *more: str) -> Parser:
    """A command whose help begins with `what` and goes on with `more`.

    `run` is `module:function` below `tiered.cli`. `main` loads the module of the chosen command alone, since a command
    may need what takes a second to import.
    """
    parser = commands.add_parser(name, help=what, description=" ".join([f"{what[0].upper()}{what[1:]}.", *more]))
    parser.set_defaults(run=run, parser=parser)
    return parser


def broker_options(parser: argparse.ArgumentParser, json_means: str = "print JSON") -> None:
    """Which broker to ask, and whether to answer in JSON."""
    parser.add_argument(
        "-b",
        "--bootstrap",
        metavar="HOST:PORT",
        default=os.environ.get("TIERED_BOOTSTRAP") or DEFAULT_BOOTSTRAP,
        help=f"a broker; several with commas (TIERED_BOOTSTRAP, else {DEFAULT_BOOTSTRAP})",
    )
    command_config_option(parser)
    json_option(parser, json_means)


def command_config_option(parser: argparse.ArgumentParser) -> None:
    """How to enter a listener that is not plaintext."""
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        default=os.environ.get("TIERED_COMMAND_CONFIG") or None,
        help="Kafka's client properties for TLS and SASL, as its own tools take them (TIERED_COMMAND_CONFIG)",
    )


def json_option(parser: argparse.ArgumentParser, means: str = "print JSON") -> None:
    """`--json`, for programs."""
    parser.add_argument("--json", action="store_true", help=means)


class Unnamed(str):
    """An address that nobody has named: anybody may listen there, so no password is sent to it unasked."""

    __slots__ = ()


def http_options(parser: argparse.ArgumentParser) -> None:
    """Which broker's HTTP door to ask, and whether to answer in JSON."""
    http_address_option(parser)
    command_config_option(parser)
    json_option(parser)


def http_address_option(parser: argparse.ArgumentParser) -> None:
    """Which broker's HTTP door to ask."""
    parser.add_argument(
        "--http",
        metavar="URL",
        default=os.environ.get("TIERED_HTTP_URL") or os.environ.get("TIERED_HTTP") or Unnamed(DEFAULT_HTTP),
        help=f"a broker's HTTP address, or several with commas between them, of which the first that answers is asked "
        f"(TIERED_HTTP_URL, else TIERED_HTTP, else {DEFAULT_HTTP})",
    )


def number(text: str) -> int:
    """The whole number that an option's text means. Raises argparse's error."""
    if not (text.isascii() and text.isdigit()) or int(text[:11]) > MAX_INT32:
        raise argparse.ArgumentTypeError(f"{text} is no whole number from 0 to {MAX_INT32}")
    return int(text)


def duration_ms(text: str) -> int:
    """Milliseconds of a time such as `90s`, `12h` or `30d`. Raises argparse's error."""
    count, unit = text[:-1], text[-1:]
    if unit not in _UNITS_MS or not (count.isascii() and count.isdigit()) or not 0 < int(count[:8]) <= _MAX_COUNT:
        raise argparse.ArgumentTypeError(f"{text} is no time: write a number and s, m, h, d or w, such as 30d")
    return int(count[:8]) * _UNITS_MS[unit]


def positive(text: str) -> int:
    """As `number`, and 0 is too few."""
    if (found := number(text)) == 0:
        raise argparse.ArgumentTypeError("0 is too few")
    return found
