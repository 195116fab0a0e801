"""From the words on the command line to an exit code.

Owns what every command shares: errors as one line on stderr, Ctrl-C, and a reader that closes the pipe.
"""

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Sequence

from tiered.allocator import begin_anew_with_it
from tiered.cli.failure import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, CommandFailed, UsageError
from tiered.cli.parser import build_parser
from tiered.errors import InvalidConfig, TieredError


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and gives its exit code; `argv` is without the program's name, by default sys.argv's.

    Raises SystemExit, as argparse does, for `--help`, `--version` and words that it cannot make sense of.
    """
    if argv is None and sys.argv[1:2] == ["serve"]:  # Before anything that a broker would have to do twice.
        begin_anew_with_it()
    parser = build_parser()
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        # Told by the chosen command, whose help has what was meant.
        (arguments.parser or parser).refuse(unknown)
    if arguments.run is None:
        (arguments.parser or parser).print_help(sys.stderr)
        return EXIT_USAGE
    module, _, function = arguments.run.partition(":")
    run = getattr(importlib.import_module(f"tiered.cli.{module}"), function)
    return ended(arguments.parser.prog, lambda: run(arguments))


def ended(name: str, run: Callable[[], int | None]) -> int:
    """The exit code of `run`: its own, 0 for None, or that of the error it raised, which is told on stderr."""
    try:
        code = run() or EXIT_OK
        sys.stdout.flush()
    except BrokenPipeError:
        _stop_writing()
        return EXIT_OK
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except (UsageError, InvalidConfig) as error:
        return _failed(name, error, EXIT_USAGE)
    except (CommandFailed, TieredError) as error:
        return _failed(name, error, EXIT_FAILED)
    return code


def _failed(name: str, error: Exception, code: int) -> int:
    from tiered.cli.output import say  # Only commands that fail pay for it.

    # Earlier output comes before the error when both go to one place.
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    with contextlib.suppress(BrokenPipeError):
        say(f"{name}: {error}", file=sys.stderr, flush=True)
    return code


def _stop_writing() -> None:
    """The reader of the output has enough (`| head`): that is no failure, and the interpreter must not complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
