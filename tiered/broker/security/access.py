"""Authorization on this broker: the access list of the metadata store, and remembered decisions.

Owns the prepared list, the remembered decisions, within a bound, and the count of refusals. Must never allow anything
while it does not know the rules: a client that has not logged in has no rights. Where authorization is off there are no
rights to ask: `rights` gives None, and the caller goes on.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from tiered.broker.context import BrokerState
from tiered.config.addresses import client_address
from tiered.meta.security import AclRow
from tiered.rules.security.acl import CLUSTER_NAME, SUPPORTED, Operation, ResourceType
from tiered.rules.security.authorization import (
    EVERYBODY,
    NOTHING,
    AccessList,
    NameScope,
    bits_of,
    parse_super_users,
)
from tiered.rules.security.principal import Principal
from tiered.runtime import BlockingPool

MAX_DECISIONS = 50_000
"""That are remembered; then all are forgotten at once, which is rare and cheap."""
MAX_REMEMBERED_NAME = 255
"""Characters. A longer name, which a request may have, is decided anew each time: names are the clients' choice."""
MAX_DENIED = 1_000
"""Kinds of denied requests that are counted apart between two summaries."""

Denied = tuple[str, str, Operation, ResourceType]
"""(principal, host, operation, kind of resource)"""


class Decisions(dict[str, bool]):
    """The resources that one principal from one address may use for one operation, decided at the first question.

    Must not know its `Rights`: forgotten, they would wait for the garbage collector with 50,000 names."""

    __slots__ = ("_access", "_allows")

    def __init__(self, access: "Access", allows: Callable[[str], bool] | None) -> None:
        """`allows` goes by the rules; None for who is nobody, and has no rights."""
        super().__init__()
        self._access = access
        self._allows = allows

    def __missing__(self, name: str) -> bool:
        if self._allows is None:
            return False
        self._access.count_decision()
        is_allowed = self._allows(name)
        if len(name) <= MAX_REMEMBERED_NAME:
            self[name] = is_allowed
        return is_allowed


class Rights:
    """The rights of one principal from one address, by one version of the rules."""

    __slots__ = ("_access", "_decisions", "_list", "host", "principal")

    def __init__(self, access: "Access", access_list: AccessList, principal: str, host: str) -> None:
        self._access = access
        self._list = access_list
        self._decisions: dict[tuple[Operation, ResourceType], Decisions] = {}
        self.principal = principal
        self.host = host

    def by_name(self, operation: Operation, resource_type: ResourceType) -> Decisions:
        """For many names of one request: one look-up in a dictionary for each. `may` counts what is denied, this does
        not: `denied` is for who asks."""
        found = self._decisions.get((operation, resource_type))
        if found is None:
            allows = partial(self._list.allows, self.principal, self.host, operation, resource_type)
            found = self._decisions[operation, resource_type] = Decisions(
                self._access, allows if self.principal else None
            )
        return found

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        is_allowed = self.by_name(operation, resource_type)[name]
        if not is_allowed:
            self.denied(operation, resource_type)
        return is_allowed

    def may_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether there is, or could be, a resource of the kind to which it may be done."""
        if not self.principal:
            return False
        return self._list.allows_any(self.principal, self.host, operation, resource_type)

    def scope(self, operation: Operation, resource_type: ResourceType) -> NameScope:
        """Where to look for resources of the kind to which it may be done: for a list, before it is read."""
        if not self.principal:
            return NOTHING
        return self._list.scope(self.principal, self.host, operation, resource_type)

    def bits(self, resource_type: ResourceType, name: str) -> int:
        """authorized_operations of the resource."""
        if not self.principal:
            return 0
        return self._list.authorized_operations(self.principal, self.host, resource_type, name)

    @property
    def is_super_user(self) -> bool:
        return self._list.is_super_user(self.principal)

    def denied(self, operation: Operation, resource_type: ResourceType) -> None:
        """Counts a request that was refused."""
        self._access.count_denied((self.principal, self.host, operation, resource_type))


class Access:
    """The rights on one broker, or on a service that has settings and a view of the metadata store's rules."""

    def __init__(self, *, state: BrokerState) -> None:
        """Raises InvalidConfig for super users that are none. These settings do not change while a broker runs."""
        self._state, settings = state, state.settings
        self.is_on = settings.authorization.is_on
        self._super_users = parse_super_users(settings.authorization.super_users)
        self._allow_unnamed = settings.authorization.allow_everyone_if_no_acl_found
        self._rules: tuple[AclRow, ...] | None = None
        self._list = AccessList()
        self._rights: dict[tuple[Principal | None, str], Rights] = {}
        self._pool = BlockingPool("rules", threads=1)
        """Its own: what clients have others compute would keep the feed's changes waiting."""
        self._decision_count = 0
        self.denied: Counter[Denied] = Counter()
        """Since the last summary; see `take_denied`."""
        self.denied_total = 0
        self.version = 0
        """Another one when the rules are others, as of the last call of `rights`."""

    def rights(self, principal: Principal | None, host: str) -> Rights | None:
        """The rights of `principal` from `host`; None if authorization is off. None as a principal, of a connection
        that has not authenticated, has no rights at all."""
        if not self.is_on:
            return None
        rules = self._state.security.acls
        if rules is not self._rules:
            self._put(rules, self._list_of(rules, self._rules, self._list))
        found = self._rights.get((principal, host))
        if found is None:
            found = Rights(self, self._list, "" if principal is None else str(principal), client_address(host))
            self.count_decision()
            self._rights[principal, host] = found
        return found

    def cluster_operations_lost(
        self, rights: Rights, added: Sequence[AclRow], removed: Sequence[AclRow]
    ) -> list[Operation]:
        """The operations on the cluster that `rights` allows and would not allow with these rules more, and these
        fewer. Takes milliseconds where there are thousands of rules: not for the event loop."""
        gone = set(removed)
        # Rules about other principals decide only whether any rule names the cluster.
        principals = (rights.principal, EVERYBODY)
        relevant = [
            rule
            for rule in (*self._state.security.acls, *added)
            if rule.resource_type == ResourceType.CLUSTER.name
            and (self._allow_unnamed or rule.principal in principals)
            and rule not in gone
        ]
        others = AccessList(relevant, super_users=self._super_users, allow_unnamed=self._allow_unnamed)
        cluster = (rights.principal, rights.host, ResourceType.CLUSTER, CLUSTER_NAME)
        lost_bits = rights.bits(ResourceType.CLUSTER, CLUSTER_NAME) & ~others.authorized_operations(*cluster)
        return [operation for operation in SUPPORTED[ResourceType.CLUSTER] if lost_bits & bits_of([operation])]

    async def take(self, rules: tuple[AclRow, ...]) -> None:
        """Prepares `rules`, which are the state's when the caller goes on. Until then the older ones decide.

        A thread makes the list: of thousands of rules it takes many milliseconds."""
        if self.is_on:
            self._put(rules, await self._pool.run(self._list_of, rules, self._rules, self._list))

    def close(self) -> None:
        """No other rules come after this."""
        self._pool.close(wait=False)

    def _list_of(
        self, rules: tuple[AclRow, ...], known_rules: tuple[AclRow, ...] | None, known_list: AccessList
    ) -> AccessList:
        """The list of `rules`, which is `known_list` where they are the known ones: the feed brings the rules as a
        whole, also when only a user or a quota has changed. From any thread."""
        if rules == known_rules:
            return known_list
        return AccessList(rules, super_users=self._super_users, allow_unnamed=self._allow_unnamed)

    def _put(self, rules: tuple[AclRow, ...], access_list: AccessList) -> None:
        """Once for each change."""
        self._rules = rules
        if access_list is not self._list:
            self.version += 1
            self._list = access_list
            self.forget()

    def count_decision(self) -> None:
        """One more is remembered; when there are too many, none is."""
        self._decision_count += 1
        if self._decision_count > MAX_DECISIONS:
            self.forget()

    def count_denied(self, denied: Denied) -> None:
        self.denied_total += 1
        if denied in self.denied or len(self.denied) < MAX_DENIED:
            self.denied[denied] += 1

    def take_denied(self) -> Counter[Denied]:
        """The refusals since the last call."""
        taken, self.denied = self.denied, Counter()
        return taken

    def forget(self) -> None:
        """Nothing is remembered: what is asked next is decided by the rules."""
        self._rights = {}
        self._decision_count = 0
