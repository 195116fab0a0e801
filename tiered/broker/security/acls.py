"""Access control lists as people ask for them: which there are, new ones, and none of some any more.

Owns the checks of a new rule. Answers from memory; changes go through SQL and the feed, and count on this broker when
the call returns. Must never decide what a rule allows: `access` does.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tiered.broker.context import BrokerContext
from tiered.broker.security.access import Access, Rights
from tiered.broker.view.changes import Changes
from tiered.broker.view.feed import ChangeFeed
from tiered.config.addresses import address_or_word
from tiered.errors import InvalidConfig, InvalidRequest, SecurityDisabled
from tiered.meta.security import AclRow, create_acls, remove_acls, remove_exactly
from tiered.meta.security_tables import HOST_CHARACTERS, NAME_CHARACTERS
from tiered.rules.security.acl import (
    CLUSTER_NAME,
    WILDCARD,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    code,
)
from tiered.rules.security.principal import parse_principal
from tiered.runtime import in_turns


class Acls:
    """The rules of the cluster, through one broker. All of it raises SecurityDisabled where no rule is looked at."""

    def __init__(self, *, context: BrokerContext, access: Access, changes: Changes, feed: ChangeFeed) -> None:
        self._context = context
        self._access = access
        self._changes = changes
        self._feed = feed

    async def describe(self, wanted: AclFilter) -> list[AclRow]:
        """The rules that are meant, as of the call, in the order of their resources."""
        self._require_authorizer()
        return [rule async for rule in in_turns(self._context.state.security.acls) if wanted.matches(rule)]

    def check(
        self,
        *,
        resource_type: int,
        resource_name: str,
        pattern_type: int,
        principal: str,
        host: str,
        operation: int,
        permission: int,
    ) -> AclRow:
        """The rule of these words and Kafka's codes. Raises InvalidRequest for one that could not mean anything."""
        self._require_authorizer()
        kind, pattern = code(ResourceType, resource_type), code(PatternType, pattern_type)
        what, which = code(Operation, operation), code(Permission, permission)
        if kind is ResourceType.ANY:
            raise InvalidRequest("a rule is about one kind of resource")
        if pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
            raise InvalidRequest(f"a rule names its resources LITERAL or PREFIXED, not {pattern.name}")
        if what is Operation.ANY or which is Permission.ANY:
            raise InvalidRequest("a rule is about one operation, or ALL, and allows or denies it")
        if not resource_name:
            raise InvalidRequest(f"a rule names its resources; {WILDCARD} is all of them")
        if kind is ResourceType.CLUSTER and resource_name not in (CLUSTER_NAME, WILDCARD):
            raise InvalidRequest(f"the cluster has one name: {CLUSTER_NAME}")
        for text in (resource_name, principal):
            if len(text) > NAME_CHARACTERS or "\0" in text:
                raise InvalidRequest(f"a name has at most {NAME_CHARACTERS} characters, and no zero among them")
        try:
            parse_principal(principal)
        except InvalidConfig as error:
            raise InvalidRequest(str(error)) from None
        return AclRow(
            resource_type=kind.name,
            resource_name=resource_name,
            pattern_type=pattern.name,
            principal=principal,
            host=_host(host),
            operation=what.name,
            permission=which.name,
        )

    async def create(self, rules: Sequence[AclRow]) -> None:
        """Adds rules that `check` has given. Raises PolicyViolation above the bound, MetadataUnavailable."""
        now_ms = self._context.clock.now_ms()
        await self._changes.run(lambda: self._feed.commit(lambda conn: create_acls(conn, rules, now_ms=now_ms)))

    async def delete(self, filters: Sequence[AclFilter]) -> list[list[AclRow]]:
        """The rules that each filter found and that are deleted now. Raises MetadataUnavailable."""
        self._require_authorizer()
        return await self._changes.run(lambda: self._feed.commit(lambda conn: remove_acls(conn, filters)))

    def stored_as(self, words: Mapping[str, str]) -> AclRow:
        """The rule of exactly these words, whether or not `check` would take it today; where there is none, the rule
        that `check` makes of them, whose host is written as connections show it."""
        self._require_authorizer()
        exact = AclRow(**words)
        checked_host = _host(exact.host)
        if checked_host == exact.host or exact in self._context.state.security.acls:
            return exact
        return replace(exact, host=checked_host)

    async def remove(self, rules: Sequence[AclRow]) -> list[AclRow]:
        """Those of exactly these rules that were there and are deleted now. Raises MetadataUnavailable."""
        self._require_authorizer()
        return await self._changes.run(lambda: self._feed.commit(lambda conn: remove_exactly(conn, rules)))

    async def cluster_operations_lost(
        self, rights: Rights, *, added: Sequence[AclRow] = (), removed: Sequence[AclRow] = ()
    ) -> list[Operation]:
        """What the principal may do to the cluster now and could not do with these rules more, and these fewer."""
        return await asyncio.to_thread(self._access.cluster_operations_lost, rights, added, removed)

    def _require_authorizer(self) -> None:
        if not self._access.is_on:
            raise SecurityDisabled("no authorizer is on: start the brokers with tiered.authorizer=acl and super.users")


def _host(text: str) -> str:
    """An address as connections show it. Any other text is kept, as in Kafka, and meets nobody."""
    if len(text) > HOST_CHARACTERS or "\0" in text:
        raise InvalidRequest(f"a host has at most {HOST_CHARACTERS} characters, and no zero among them")
    return address_or_word(text)
