"""`/`: the console, one page for people, and the files that it is made of.

Owns which files are served, their types and how browsers keep them. They are read once, when this module is
imported, which the door does on a thread. Must never put data into a page: the page asks for it.
"""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from aiohttp import web

from tiered.server.http.messages import schema
from tiered.server.http.messages.parameters import CONSOLE_FILE, CONSOLE_FOLDER
from tiered.server.http.messages.route import Answer, route, tagged

FOLDER = Path(__file__).parents[1] / "console"
INDEX = "index.html"
_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
# Asked for every time and sent only when it has changed: after an upgrade nobody sees half of the old page.
CACHE_CONTROL = "no-cache"
TAG = "console"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFile:
    """A file as it is sent. The tag changes with the content."""

    content: bytes
    content_type: str
    etag: str


def read_files(folder: Path) -> dict[str, PageFile]:
    """Every file that a browser may ask for, by its path within `folder`."""
    found = {}
    for path in sorted(folder.rglob("*")):
        content_type = _TYPES.get(path.suffix)
        if content_type is not None and path.is_file():
            content = path.read_bytes()
            found[path.relative_to(folder).as_posix()] = PageFile(
                content=content, content_type=content_type, etag=sha256(content).hexdigest()[:32]
            )
    return found


_FILES = read_files(FOLDER)


async def page(request: web.Request) -> web.Response:
    """The console."""
    return _answer(request, INDEX)


async def file(request: web.Request) -> web.Response:
    """The console's files: styles, scripts, images."""
    return _answer(request, f"{CONSOLE_FOLDER.of(request)}/{CONSOLE_FILE.of(request)}")


def _answer(request: web.Request, name: str) -> web.Response:
    """The file, or 304 when the browser has it already. Only names that were read at the start are found."""
    found = _FILES.get(name)
    if found is None:
        raise web.HTTPNotFound
    headers = {"Cache-Control": CACHE_CONTROL}
    # Looked for, not parsed: thousands of tags may stand there.
    known = request.headers.get("If-None-Match", "")
    if known == "*" or f'"{found.etag}"' in known:
        response = web.Response(status=304, headers=headers)
    else:
        response = web.Response(body=found.content, content_type=found.content_type, charset="utf-8", headers=headers)
    response.etag = found.etag
    return response


ROUTES = tagged(
    TAG,
    route(
        "GET",
        "/",
        page,
        {
            200: Answer(description="The page.", content_type="text/html", schema=schema.text()),
            304: Answer(description="As the browser has it."),
        },
    ),
    route(
        "GET",
        "/console/{folder}/{file}",
        file,
        {
            200: Answer(description="The file.", content_type="text/javascript", schema=schema.text()),
            304: Answer(description="As the browser has it."),
        },
    ),
)
