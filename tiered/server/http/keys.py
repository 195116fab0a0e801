"""What the application carries for its handlers."""

from aiohttp import web

from tiered.broker.broker import Broker

BROKER: web.AppKey[Broker] = web.AppKey("broker", Broker)
