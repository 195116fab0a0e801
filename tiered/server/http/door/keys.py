"""The values that the application carries for its handlers."""

from typing import Protocol

from aiohttp import web

from tiered.broker.broker import Broker
from tiered.broker.security.authentication import Guarded
from tiered.config import ServeOptions
from tiered.read_replica.replica import ReadReplica


class Service(Guarded, Protocol):
    """What the guards of a door need from a broker or a read replica."""

    options: ServeOptions


SERVICE: web.AppKey[Service] = web.AppKey("service", Service)
BROKER: web.AppKey[Broker] = web.AppKey("broker", Broker)
REPLICA: web.AppKey[ReadReplica] = web.AppKey("replica", ReadReplica)
