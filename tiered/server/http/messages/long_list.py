"""Long lists in answers: made in turns with everybody else.

Must never make a list of thousands at once: that would hold up the event loop, and every producer with it.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from aiohttp import web

from tiered.runtime import in_turns
from tiered.server.http.messages.route import JSON


async def json_with_list(fields: Mapping[str, Any], name: str, items: Iterable[Mapping[str, Any]]) -> web.Response:
    """An object of `fields`, and behind them the list `name`, whose items are made one by one."""
    made = [json.dumps(item) async for item in in_turns(items)]
    head = json.dumps(fields)[:-1]
    comma = ", " if fields else ""
    return web.Response(text=f"{head}{comma}{json.dumps(name)}: [{', '.join(made)}]}}", content_type=JSON)
