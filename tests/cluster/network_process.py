"""The process that all links of a cluster run through: an asyncio proxy, told what to do line by line.

Owns the listening sockets and tells who is behind a connection to Kafka by the client id in its first frame: brokers
that follow say `broker-<id>-fetcher-<n>`. Reads JSON lines from stdin, answers each with one on stdout, and ends
with its stdin. Run as `python -m tests.cluster.network_process SEED`.
"""

import asyncio
import json
import random
import re
import struct
import sys
from typing import Any

from tests.cluster.links import CHUNK_BYTES, CLIENTS, Connection, Link, LinkFault, LinkState

FETCHER = re.compile(rb"broker-(\d+)-")
CLIENT_ID_POSITION = 14
"""After the frame's length, the API's key and version, the correlation id and the length of the client id."""
FIRST_FRAME_S = 60.0


class Network:
    """Every link by its two ends, and the ports that lead to them."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._links: dict[Link, LinkState] = {}
        self._targets: dict[str, Any] = {}
        self._servers: list[asyncio.Server] = []

    def link(self, link: Link) -> LinkState:
        """The state of a link, made when it is first spoken of."""
        state = self._links.get(link)
        if state is None:
            state = self._links[link] = LinkState(link, random.Random(f"{self._seed} {link.source} {link.destination}"))
        return state

    async def listen(self, destination: str, source: str | None) -> int:
        """A new port that leads to `destination`; without a `source`, each connection's first frame tells it."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve(destination, source, reader, writer)

        server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=2 * CHUNK_BYTES)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def _serve(
        self, destination: str, source: str | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        first = b""
        try:
            if source is None:
                async with asyncio.timeout(FIRST_FRAME_S):
                    first = await reader.readexactly(CLIENT_ID_POSITION)
                    length = max(struct.unpack_from(">h", first, CLIENT_ID_POSITION - 2)[0], 0)
                    client_id = await reader.readexactly(length) if length else b""
                found = FETCHER.match(client_id)
                first += client_id
                source = CLIENTS if found is None else f"broker-{int(found[1])}"
            await Connection(self.link(Link(source, destination)), reader, writer, first).run(
                lambda: self._connect(destination)
            )
        except (TimeoutError, asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            writer.transport.abort()  # Whoever it was has gone.

    async def _connect(self, destination: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        target = self._targets.get(destination)
        if target is None:
            raise ConnectionRefusedError
        if isinstance(target, str):
            return await asyncio.open_unix_connection(target, limit=2 * CHUNK_BYTES)
        host, port = target
        return await asyncio.open_connection(host, port, limit=2 * CHUNK_BYTES)

    async def carry_out(self, order: dict[str, Any]) -> Any:
        """One order, one answer."""
        match order.pop("do"):
            case "listen":
                return await self.listen(order["destination"], order["source"])
            case "aim":
                self._targets[order["destination"]] = order["target"]
            case "fault":
                self.link(Link(order["source"], order["destination"])).set_fault(LinkFault(**order["fault"]))
            case "heal":
                for state in self._links.values():
                    state.set_fault(LinkFault())
            case "facts":
                return {
                    f"{link.source}>{link.destination}": {
                        "carried_bytes": state.carried_bytes,
                        "connections": len(state.connections),
                        "resets": state.resets,
                        "cuts": state.cuts,
                    }
                    for link, state in self._links.items()
                }
        return None


async def main(seed: int) -> None:
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    network = Network(seed)
    while line := await orders.readline():
        print(json.dumps(await network.carry_out(json.loads(line))), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
