"""The arguments of what moves or elects in `tiered topics`, and of every move: argparse and nothing else."""

import argparse

from tiered.cli.arguments import Commands, Parser, broker_options, command, number, positive


def add_moves_of_topics(actions: "Commands[Parser]") -> None:
    """Adds `reassign`, `reassignments` and `elect` to the actions of `topics`."""
    reassign = command(
        actions,
        "reassign",
        "moves.reassign:run_reassign",
        "move partitions to other brokers, or give them more or fewer replicas",
        "New replicas catch up first, then they take over. Ctrl-C ends the wait, not the moves.",
    )
    reassign.add_argument("topics", metavar="TOPIC[:P,...]", nargs="*", help="topics, or some of their partitions")
    where = reassign.add_mutually_exclusive_group(required=True)
    where.add_argument("--to", metavar="N,...", type=broker_ids, help="spread over these brokers")
    where.add_argument(
        "--replicas", metavar="N,...", type=broker_ids, help="exactly these for each, the preferred leader first"
    )
    where.add_argument("--file", metavar="FILE", help="a plan as kafka-reassign-partitions takes it; - is stdin")
    where.add_argument("--cancel", action="store_true", help="back to where they were before a move that is under way")
    reassign.add_argument(
        "--replication-factor", metavar="N", type=positive, help="replicas of each, with --to (as many as it has)"
    )
    move_options(reassign)

    reassignments = command(
        actions, "reassignments", "moves.reassign:run_reassignments", "show the partitions that are being moved"
    )

    elect = command(
        actions,
        "elect",
        "moves.reassign:run_elect",
        "give partitions back to their preferred leaders",
        "That is the first replica of each. Brokers do it by themselves every five minutes.",
    )
    elect.add_argument("topics", metavar="TOPIC[:P,...]", nargs="*", help="topics, or some of their partitions")
    elect.add_argument("--all", action="store_true", help="of every topic")
    elect.add_argument(
        "--unclean",
        action="store_true",
        help="elect a replica that lags where none in sync is left: what it has not got is lost. The topic must allow "
        "it (unclean.leader.election.enable)",
    )

    for parser in (reassign, reassignments, elect):
        broker_options(parser)


def move_options(parser: argparse.ArgumentParser) -> None:
    """The arguments of every command that moves replicas."""
    parser.add_argument("--plan", action="store_true", help="show what would move, and move nothing")
    parser.add_argument("--no-wait", action="store_true", help="return once the moves have begun")
    parser.add_argument("--timeout", metavar="S", type=positive, help="fail after so many seconds; the moves go on")
    parser.add_argument(
        "--throttle",
        metavar="BYTES",
        type=positive,
        help="each broker copies at most so many bytes a second (no bound); it is lifted in the end",
    )


def broker_ids(text: str) -> list[int]:
    """The brokers of `N,...`, in order. Raises argparse's error."""
    found = [number(each.strip()) for each in text.split(",")]
    if len(set(found)) != len(found):
        raise argparse.ArgumentTypeError(f"{text} names a broker twice")
    return found
