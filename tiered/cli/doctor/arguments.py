"""The arguments of `tiered doctor`: argparse and nothing else."""

import os

from tiered.cli.arguments import Commands, Parser, command, command_config_option, json_option
from tiered.config import add_serve_arguments

AREAS = ("program", "limits", "clock", "disk", "sql", "store", "broker")
"""What `doctor` looks at, in this order."""


def add_doctor(commands: "Commands[Parser]") -> None:
    """Adds `doctor`."""
    parser = command(
        commands,
        "doctor",
        "doctor.examination:run",
        "check whether this machine, the disk, SQL and the object store can carry a broker",
        "It takes the options of `tiered serve`, from the same places, and says what is wrong and what to do about it.",
        "What it writes it removes again. Exit code 1 when something would fail; a warning is none.",
    )
    add_serve_arguments(parser)
    parser.add_argument(
        "-b",
        "--bootstrap",
        metavar="HOST:PORT",
        default=os.environ.get("TIERED_BOOTSTRAP") or None,
        help="a broker that must be running (TIERED_BOOTSTRAP, else that of --kafka, which need not be)",
    )
    command_config_option(parser)
    parser.add_argument(
        "--write", action="store_true", help="produce to the running broker and read back, in a topic made for it"
    )
    parser.add_argument("--only", metavar="AREA", action="append", choices=AREAS, help=f"one of {', '.join(AREAS)}")
    json_option(parser)
