"""Groups where several brokers coordinate them: all are asked, and one that has moved is found again.

The brokers are scripted, for one of ours coordinates everything there is.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.support.scripted_peer import Answer, serving
from tiered import peer
from tiered.cli.client.wrong_port import what_listens
from tiered.errors import Retriable
from tiered.peer.coordinator import Coordinator
from tiered.peer.group_admin import delete_group, list_groups
from tiered.wire import messages

METADATA, FIND_COORDINATOR, LIST_GROUPS, API_VERSIONS, DELETE_GROUPS = 3, 10, 16, 18, 42
OFFERED = {METADATA: 9, FIND_COORDINATOR: 4, LIST_GROUPS: 5, API_VERSIONS: 3, DELETE_GROUPS: 2}
NOT_COORDINATOR = 16


class Site:
    """Brokers 1 and 2. `coordinator` is who they say it is; who else is asked refuses."""

    def __init__(self, groups: Mapping[int, list[str]]) -> None:
        self.groups = groups
        self.ports: dict[int, int] = {}
        self.coordinator = 1
        self.truly = 1
        self.asked: list[tuple[int, int]] = []

    def answer_of(self, broker_id: int) -> Answer:
        def answer(key: int, version: int, _body: bytes) -> bytes:
            self.asked.append((broker_id, key))
            return messages.encode(self._reply(broker_id, key, messages.reply(key, version)))

        return answer

    def _reply(self, broker_id: int, key: int, make: Any) -> Any:
        match key:
            case 18:
                keys = [
                    make.ApiVersion(api_key=each, min_version=0, max_version=last) for each, last in OFFERED.items()
                ]
                return make.ApiVersionsResponse(error_code=0, api_keys=keys)
            case 3:
                brokers = [
                    make.MetadataResponseBroker(node_id=each, host="127.0.0.1", port=port)
                    for each, port in self.ports.items()
                ]
                return make.MetadataResponse(brokers=brokers, controller_id=1, topics=[])
            case 16:
                listed = [
                    make.ListedGroup(group_id=each, protocol_type="consumer", group_state="Empty", group_type="classic")
                    for each in self.groups[broker_id]
                ]
                return make.ListGroupsResponse(throttle_time=0, error_code=0, groups=listed)
            case 10:
                found = make.Coordinator(
                    key="g", node_id=self.coordinator, host="127.0.0.1", port=self.ports[self.coordinator],
                    error_code=0, error_message=None,
                )  # fmt: skip
                self.coordinator = self.truly  # Who asks again is told the truth.
                return make.FindCoordinatorResponse(throttle_time=0, coordinators=[found])
            case _:
                code = 0 if broker_id == self.truly else NOT_COORDINATOR
                result = make.DeletableGroupResult(group_id="g", error_code=code)
                return make.DeleteGroupsResponse(throttle_time=0, results=[result])

    async def start(self, stack: AsyncExitStack) -> str:
        for broker_id in self.groups:
            self.ports[broker_id], _ = await stack.enter_async_context(serving(self.answer_of(broker_id)))
        return f"127.0.0.1:{self.ports[1]}"


async def test_all_brokers_are_asked_for_their_groups() -> None:
    site = Site({1: ["b", "d"], 2: ["a", "c"]})
    async with AsyncExitStack() as stack, peer.Cluster(await site.start(stack), timeout_ms=5_000) as cluster:
        found = await list_groups(cluster)
    assert [each.group_id for each in found] == ["a", "b", "c", "d"]
    assert {(each.kind, each.state) for each in found} == {("classic", "Empty")}


async def test_a_coordinator_that_has_moved_is_found_again() -> None:
    site = Site({1: [], 2: []})
    site.truly = 2
    async with AsyncExitStack() as stack, peer.Cluster(await site.start(stack), timeout_ms=5_000) as cluster:
        assert await delete_group(cluster, "g") == 0
    assert [broker_id for broker_id, key in site.asked if key == DELETE_GROUPS] == [1, 2]


async def test_a_coordinator_that_is_never_found_is_an_error_in_time() -> None:
    site = Site({1: [], 2: []})
    site.truly = 3
    async with AsyncExitStack() as stack, peer.Cluster(await site.start(stack)) as cluster:
        site.ports[3] = site.ports[1]
        coordinator = Coordinator(cluster, "g", timeout_ms=300)
        with pytest.raises(Retriable, match="the coordinator of group g is not ready"):
            await coordinator.ask(
                DELETE_GROUPS,
                lambda make: make.DeleteGroupsRequest(groups_names=("g",)),
                lambda answer: [each.error_code for each in answer.results],
            )


@pytest.mark.parametrize(
    ("sent", "said"),
    [(b"\x15\x03\x03\x00\x02\x02\x46", "TLS is spoken"), (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP is spoken")],
)
async def test_what_is_no_kafka_port_is_recognised(sent: bytes, said: str) -> None:
    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        found = await what_listens([("127.0.0.1", 1), ("127.0.0.1", port)])
    assert found is not None
    assert said in found
