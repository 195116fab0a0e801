"""`tiered cost`: what each topic holds in both tiers, and what that and its uploads cost, by the brokers' prices.

Reads over HTTP. Owns the look of the sums; the broker has done the arithmetic.
"""

import argparse
from collections.abc import Mapping
from typing import Any

from tiered.cli.client.http_api import HttpApi
from tiered.cli.output import Cell, counted, in_bytes, print_json, print_table, say


def run(arguments: argparse.Namespace) -> None:
    """Prints the costs, the dearest topic first. Raises CommandFailed and UsageError."""
    answer = HttpApi(arguments.http, arguments.command_config).cost()
    if arguments.json:
        print_json(answer)
        return
    topics = sorted(answer["topics"], key=lambda topic: (-topic["total_usd_per_month"], topic["topic"]))
    if topics:
        print_table(
            "TOPIC >COLD >OBJECTS >RETIRED >LOCAL >STORE-USD >DISK-USD >MONTH-USD >UPLOADS-USD", map(_row, topics)
        )
        say()
    uploads_usd = sum(topic["upload_usd"] for topic in topics)
    objects = counted(sum(topic["cold_objects"] + topic["retired_objects"] for topic in topics), "object")
    say(f"{_usd(answer['total_usd_per_month'])} USD a month for what is held now in {counted(len(topics), 'topic')}")
    say(f"{_usd(uploads_usd)} USD were spent once, on the requests that uploaded these {objects}")
    say(f"prices: {', '.join(f'{name} {price:g}' for name, price in answer['prices'].items())}")


def _row(topic: Mapping[str, Any]) -> list[Cell]:
    return [
        f"{topic['topic']} (deleted)" if topic["deleted"] else topic["topic"],
        in_bytes(topic["cold_bytes"]),
        topic["cold_objects"],
        in_bytes(topic["retired_bytes"]),
        in_bytes(topic["local_bytes"]),
        _usd(topic["storage_usd_per_month"]),
        _usd(topic["local_usd_per_month"]),
        _usd(topic["total_usd_per_month"]),
        _usd(topic["upload_usd"]),
    ]


def _usd(amount: float) -> str:
    """Cents, and a hundredth of a cent where it is less than a dollar."""
    return f"{amount:,.2f}" if amount >= 1 else f"{amount:.4f}"
