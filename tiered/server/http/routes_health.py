"""`/healthz`: the process is alive. `/readyz`: it serves, and its disk, SQL and object store do too.

`/readyz` answers 200 while produce and fetch work, and names what does not in its body: losing SQL or the
object store stops neither.
"""

from aiohttp import web

from tiered.server.http.keys import BROKER


def add(app: web.Application) -> None:
    app.router.add_get("/healthz", _healthz)
    app.router.add_get("/readyz", _readyz)


async def _healthz(_request: web.Request) -> web.Response:
    return web.json_response({"status": "alive"})


async def _readyz(request: web.Request) -> web.Response:
    health = request.app[BROKER].health()
    status = 200 if health["serving"] else 503
    return web.json_response(health, status=status)
