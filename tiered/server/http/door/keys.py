"""What the application carries for its handlers."""

from typing import Protocol

from aiohttp import web

from tiered.broker.broker import Broker
from tiered.broker.security.authentication import Guarded
from tiered.config import ServeOptions
from tiered.read_replica.replica import ReadReplica


class Service(Guarded, Protocol):
    """What guards a door needs to know: of a broker as of a read replica."""

    options: ServeOptions


SERVICE: web.AppKey[Service] = web.AppKey("service", Service)
BROKER: web.AppKey[Broker] = web.AppKey("broker", Broker)
REPLICA: web.AppKey[ReadReplica] = web.AppKey("replica", ReadReplica)
