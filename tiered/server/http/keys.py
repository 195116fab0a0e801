"""What the application carries for its handlers."""

from typing import Protocol

from aiohttp import web

from tiered.broker.broker import Broker
from tiered.broker.read_only.replica import ReadReplica
from tiered.config import BrokerSettings, ServeOptions
from tiered.metrics import CountersState
from tiered.runtime import Clock


class Service(Protocol):
    """What guards a door needs to know: of a broker as of a read replica."""

    options: ServeOptions
    settings: BrokerSettings
    clock: Clock
    counters: CountersState


SERVICE: web.AppKey[Service] = web.AppKey("service", Service)
BROKER: web.AppKey[Broker] = web.AppKey("broker", Broker)
REPLICA: web.AppKey[ReadReplica] = web.AppKey("replica", ReadReplica)
