"""`tiered reconcile`: what the brokers have found to disagree between disk, metadata store and object store.

Reads over HTTP. Looks at nothing itself and changes nothing.
"""

import argparse
from typing import Any

from tiered.cli.client.http_api import HttpApi
from tiered.cli.failure import EXIT_FAILED, EXIT_OK
from tiered.cli.output import counted, in_bytes, in_utc, print_json, say


def run(arguments: argparse.Namespace) -> int:
    """1 when something was found or a broker is silent. Raises CommandFailed and UsageError."""
    answer = HttpApi(arguments.http, arguments.command_config).reconcile()
    if arguments.json:
        print_json(answer)
    else:
        say("\n".join([*map(_finding, answer["findings"]), *map(_progress, answer["brokers"]), *_summary(answer)]))
    return EXIT_FAILED if answer["findings"] or answer["silent"] else EXIT_OK


def _finding(finding: dict[str, Any]) -> str:
    where = f"{finding['topic']}-{finding['partition']}" if finding["partition"] >= 0 else finding["topic"]
    if finding["first_offset"] >= 0:
        where += f" offsets {finding['first_offset']}..{finding['last_offset']}"
    name = f" [{finding['name']}]" if finding["name"] else ""
    since = f"since {in_utc(finding['found_at_ms'])}, told by broker {finding['broker_id']}"
    return f"{where}: {finding['kind']}: {finding['message']}{name}\n  -> {finding['advice']} ({since})"


def _progress(broker: dict[str, Any]) -> str:
    name = f"broker {broker['broker_id']}"
    if not broker["enabled"]:
        return f"{name}: switched off by tiered.reconcile.interval.ms"
    ended_ms = broker["scrub_turn_ended_at_ms"]
    read = f"all contents were read by {in_utc(ended_ms)}" if ended_ms else "not all contents have been read yet"
    return (
        f"{name}: checked {counted(broker['turns'], 'time')} since its start that every object is there; "
        f"read {in_bytes(broker['scrubbed_bytes'])} of their contents, {read}"
    )


def _summary(answer: dict[str, Any]) -> list[str]:
    silent = [f"broker {each}: no answer, what it found is not here" for each in answer["silent"]]
    omitted = sum(each["omitted"] for each in answer["brokers"])
    more = ["there are more: a broker had no room for all of its findings"] if omitted else []
    found = answer["findings"]
    return [*silent, *more, f"{counted(len(found), 'finding')}" if found else "nothing is known to be wrong"]
