"""`tiered snapshot create|list|delete`: named records that retention must leave.

Speaks HTTP to a broker, which asks SQL. Holds nothing itself.
"""

import argparse
from typing import Any

from tiered.cli.client.http_api import HttpApi
from tiered.cli.failure import EXIT_FAILED, EXIT_OK, CommandFailed
from tiered.cli.output import Cell, complain, counted, in_utc, print_json, print_table, say


def run_create(arguments: argparse.Namespace) -> None:
    """Makes one of all that a topic has now. Raises CommandFailed."""
    api = HttpApi(arguments.http, arguments.command_config)
    made = api.create_snapshot(arguments.name, arguments.topic, owner=arguments.owner, ttl_ms=arguments.ttl)
    if arguments.json:
        print_json(made)
    else:
        ends = made["expires_at_ms"]
        until = "until it is deleted" if ends is None else f"until {in_utc(ends)}"
        offsets = counted(_offsets(made), "offset")
        say(f"snapshot {made['name']} holds {offsets} of {made['topic']} {until}")


def run_list(arguments: argparse.Namespace) -> None:
    """Shows them all, or those of one topic. Raises CommandFailed."""
    found = HttpApi(arguments.http, arguments.command_config).snapshots(arguments.topic)
    if arguments.quiet:
        say("\n".join(each["name"] for each in found), end="\n" if found else "")
    elif arguments.json:
        print_json(found)
    elif found:
        print_table("SNAPSHOT TOPIC >PARTITIONS >OFFSETS CREATED ENDS OWNER", map(_row, found))
    else:
        say("no snapshots; `tiered snapshot create NAME TOPIC` makes one")


def run_delete(arguments: argparse.Namespace) -> int:
    """Tries each one; fails when any could not be deleted."""
    api = HttpApi(arguments.http, arguments.command_config)
    done: list[dict[str, Any]] = []
    for name in arguments.names:
        error = None
        try:
            api.delete_snapshot(name)
        except CommandFailed as failure:
            error = str(failure)
        done.append({"snapshot": name, "deleted": error is None, "error": error})
    if arguments.json:
        print_json(done)
    else:
        for each in done:
            if each["error"] is None:
                say(f"deleted snapshot {each['snapshot']}")
            else:
                complain(arguments, f"{each['snapshot']}: {each['error']}")
    return EXIT_OK if all(each["error"] is None for each in done) else EXIT_FAILED


def _offsets(snapshot: dict[str, Any]) -> int:
    return sum(each["end_offset"] - each["start_offset"] for each in snapshot["partitions"])


def _row(snapshot: dict[str, Any]) -> list[Cell]:
    return [
        snapshot["name"],
        snapshot["topic"],
        len(snapshot["partitions"]),
        f"{_offsets(snapshot):,}",
        in_utc(snapshot["created_at_ms"]),
        in_utc(snapshot["expires_at_ms"]),
        snapshot["owner"],
    ]
