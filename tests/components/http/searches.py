"""Searches through a topic's records over HTTP."""

from typing import Any

from tests.clients.listener import Event, Listener
from tests.components.http.http_brokers import value_of


class SearchResult:
    """All events of a search."""

    def __init__(self, broker: Any, topic: str, *, last_id: str = "", **query: Any) -> None:
        with Listener(broker, topic, last_id=last_id, route="search", **query) as listener:
            self.status = listener.status
            self.events = list(listener.events()) if self.status == 200 else []
            self.last_id = listener.last_id

    @property
    def values(self) -> list[bytes]:
        return sorted(value_of(event.data) for event in self.events if event.name == "match")

    @property
    def end(self) -> Any:
        assert self.events[-1].name == "end"
        return self.events[-1].data

    @property
    def troubles(self) -> list[Event]:
        return [event for event in self.events if event.name == "trouble"]
