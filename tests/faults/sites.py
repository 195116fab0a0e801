"""What coordinates a group under test: one broker that comes back after each blow, or three that stand in for it.

Owns the blow to the coordinator, and which process a group's state is asked of. Must never judge: `churn` does.
"""

import time
from collections.abc import Mapping
from typing import Protocol

from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.cluster.processes import ClusterProcesses
from tiered.wire import messages

FIND_COORDINATOR = 10


class Site(Protocol):
    """One broker, or a cluster."""

    @property
    def bootstrap(self) -> str: ...

    def create_topic(self, name: str, partitions: int) -> None: ...

    def coordinator_of(self, group_id: str) -> BrokerProcess:
        """The process that can be asked about the group. Raises OSError while there is none."""

    def kill_coordinator(self, group_id: str) -> float:
        """kill -9. Since when members can have another one, by the monotonic clock."""

    def make_good(self) -> None:
        """Everybody who was killed is back, and the records have all their replicas."""

    def last_words(self) -> str: ...


def create_topic(bootstrap: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, partitions)])[name].result(30)


class OneBroker:
    """It coordinates everything, and its members wait until it is there again."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    def create_topic(self, name: str, partitions: int) -> None:
        create_topic(self.bootstrap, name, partitions)

    def coordinator_of(self, group_id: str) -> BrokerProcess:
        return self._broker

    def kill_coordinator(self, group_id: str) -> float:
        self._broker.kill()
        self._broker.start()
        return time.monotonic()

    def make_good(self) -> None:
        pass

    def last_words(self) -> str:
        return self._broker.log()[-2000:]


class Cluster:
    """Whoever is killed stays away until `make_good`: another one takes its groups."""

    def __init__(self, cluster: ClusterProcesses) -> None:
        self._cluster = cluster
        self._topics: list[str] = []

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    @property
    def _running(self) -> Mapping[int, BrokerProcess]:
        return {each: broker for each, broker in self._cluster.brokers.items() if self._cluster.runs(each)}

    def create_topic(self, name: str, partitions: int) -> None:
        create_topic(self.bootstrap, name, partitions)
        self._topics.append(name)
        self.make_good()

    def coordinator_of(self, group_id: str) -> BrokerProcess:
        return self._cluster.brokers[self._coordinator_id(group_id)]

    def _coordinator_id(self, group_id: str) -> int:
        for broker in self._running.values():
            with RawConnection(broker) as connection:
                request = messages.request(FIND_COORDINATOR, 3).FindCoordinatorRequest(key=group_id, key_type=0)
                answer = connection.ask(FIND_COORDINATOR, 3, request)
            if answer.error_code == 0 and answer.node_id in self._running:
                return int(answer.node_id)
        raise ConnectionError("no broker knows a coordinator that runs")

    def kill_coordinator(self, group_id: str) -> float:
        killed = self._coordinator_id(group_id)
        began = time.monotonic()
        self._cluster.kill(killed)
        return began

    def make_good(self) -> None:
        for broker_id in self._cluster.ids:
            if not self._cluster.runs(broker_id):
                self._cluster.start(broker_id)
        self._cluster.wait_until(lambda: self._cluster.is_in_sync(*self._topics), "all replicas are in sync")

    def last_words(self) -> str:
        return self._cluster.last_words()
