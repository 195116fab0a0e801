"""Which commands there are and what each is told: argparse and nothing else.

Owns the order of commands; what each is told stands beside it. Must never import what a command needs: `main` loads
the module of the chosen command.
"""

import tiered
from tiered.cli.acls.arguments import add_acls
from tiered.cli.arguments import Commands, Parser, command, connection_options
from tiered.cli.brokers.arguments import add_brokers
from tiered.cli.doctor.arguments import add_doctor
from tiered.cli.groups.arguments import add_groups
from tiered.cli.local_cluster.arguments import add_cluster
from tiered.cli.quotas.arguments import add_quotas
from tiered.cli.records.arguments import add_consume, add_produce
from tiered.cli.store.arguments import add_store_commands
from tiered.cli.tiering.arguments import add_cost, add_reconcile, add_retention, add_segments
from tiered.cli.topics.arguments import add_topics
from tiered.cli.transactions.arguments import add_transactions
from tiered.cli.users.arguments import add_users
from tiered.config import add_serve_arguments

SHELLS = ("bash", "zsh", "fish")


def build_parser() -> Parser:
    """The whole command line. `run` names the chosen command's function; None when none was chosen."""
    parser = Parser(
        prog="tiered",
        description="A Kafka-compatible log: hot tail on local disk, cold past in an object store.",
        epilog="Exit codes: 0 done, 1 failed, 2 usage. `tiered COMMAND --help` tells more.",
    )
    parser.add_argument("--version", action="version", version=f"tiered {tiered.__version__}")
    connection_options(parser)
    parser.set_defaults(run=None, parser=None)
    commands: Commands[Parser] = parser.add_subparsers(metavar="COMMAND", title="commands")
    for add in _COMMANDS:
        add(commands)
    return parser


def _add_serve(commands: "Commands[Parser]") -> None:
    parser = command(
        commands,
        "serve",
        "serve:run",
        "run a broker",
        "It serves until SIGTERM or Ctrl-C, and prints one line that begins with `ready` once it does.",
        "Each option may also come from the environment (TIERED_KAFKA for --kafka) or from a file.",
        "Precedence: option, environment, file, default.",
    )
    add_serve_arguments(parser)


def _add_completion(commands: "Commands[Parser]") -> None:
    parser = command(
        commands,
        "completion",
        "completion:run",
        "print a script that completes commands in your shell",
        "For bash: `source <(tiered completion bash)`. For zsh: `source <(tiered completion zsh)` after compinit.",
        "For fish: `tiered completion fish | source`.",
    )
    parser.add_argument("shell", choices=SHELLS)


_COMMANDS = (
    _add_serve, add_topics, add_segments, add_retention, add_reconcile, add_cost, add_produce, add_consume, add_groups,
    add_transactions,
    add_brokers, add_cluster, add_acls, add_quotas, add_users, add_store_commands, add_doctor, _add_completion,
)  # fmt: skip
