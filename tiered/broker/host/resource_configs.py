"""Configs of consumer groups and of subscriptions to clients' metrics, as the feed brought them.

Owns the stored texts in memory, and the parsed configs of groups. Must never be changed but by `feed`.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum

from tiered.config import BrokerSettings, GroupConfig
from tiered.errors import InvalidConfig
from tiered.meta.settings import StoredConfigs


class Kind(StrEnum):
    """Of a resource whose configs are all that the metadata store knows of it."""

    GROUP = "GROUP"
    CLIENT_METRICS = "CLIENT_METRICS"


class ResourceConfigs:
    """By kind and name. Of a group that nothing was set for, the broker's settings say what is."""

    def __init__(self, settings: Callable[[], BrokerSettings]) -> None:
        self._settings = settings
        self._made_for: BrokerSettings | None = None
        self._default = GroupConfig()
        self._groups: dict[str, GroupConfig] = {}
        self.stored: StoredConfigs = {}

    def take(self, stored: StoredConfigs) -> None:
        self.stored = stored
        self._made_for = None

    def overrides(self, kind: Kind, name: str) -> Mapping[str, str]:
        return self.stored.get((kind, name), {})

    def names(self, kind: Kind) -> list[str]:
        """Of all resources that something is set for."""
        return [name for found, name in self.stored if found == kind]

    def group(self, group_id: str) -> GroupConfig:
        """The effective configs. Cheap: every heartbeat asks."""
        settings = self._settings()
        if self._made_for is not settings:
            self._made_for, self._default, self._groups = settings, GroupConfig.of({}, settings), {}
        overrides = self.overrides(Kind.GROUP, group_id)
        if not overrides:
            return self._default
        found = self._groups.get(group_id)
        if found is None:
            try:
                found = GroupConfig.of(overrides, settings)
            except InvalidConfig:  # Of another version, say; DescribeConfigs shows it.
                found = self._default
            self._groups[group_id] = found
        return found
