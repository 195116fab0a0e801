"""Long lists in answers: made in turns with everybody else.

Owns how many items a turn has. A list of thousands would hold up the event loop, and every producer with it.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any

from aiohttp import web

from tiered.server.http.messages.route import JSON

ITEMS_A_TURN = 100


async def json_with_list(fields: Mapping[str, Any], name: str, items: Iterable[Mapping[str, Any]]) -> web.Response:
    """An object of `fields`, and behind them the list `name`, whose items are made one by one."""
    made = []
    for number, item in enumerate(items):
        if number % ITEMS_A_TURN == ITEMS_A_TURN - 1:
            await asyncio.sleep(0)
        made.append(json.dumps(item))
    head = json.dumps(fields)[:-1]
    comma = ", " if fields else ""
    return web.Response(text=f"{head}{comma}{json.dumps(name)}: [{', '.join(made)}]}}", content_type=JSON)
