"""SaslHandshake (key 17), versions 0 to 1, and SaslAuthenticate (key 36), versions 0 to 2 (KIP-43, KIP-152, KIP-368).

Version 0 of the handshake, after which tokens follow without headers, is advertised because librdkafka takes its
absence for a broker without SASL, and answered with UNSUPPORTED_VERSION: clients since 2017 can use version 1. A login
that fails is told so after a moment, and its connection is closed, as is one that asks for a mechanism that is not
enabled. A connection that has logged in may do so again at any time, by the same mechanism and as the same principal;
the answer says for how long that is good.
"""

import asyncio
from typing import TYPE_CHECKING

from tiered.broker.security.authentication import Guarded
from tiered.errors import TieredError, UnsupportedVersion
from tiered.rules.security.sasl.failures import AuthenticationFailed, IllegalSaslState, UnsupportedSaslMechanism
from tiered.server.kafka.dispatch import Api, Context
from tiered.server.kafka.error_mapping import NONE, error_code
from tiered.server.kafka.transport.sasl_session import SaslSession

if TYPE_CHECKING:
    from kafka_messages import sasl_authenticate, sasl_handshake

MAX_MECHANISM = 255


async def handshake(
    context: Context, request: "sasl_handshake.Request", reply: "sasl_handshake.Reply"
) -> "sasl_handshake.Response":
    broker: Guarded = context.broker
    connection = context.connection
    mechanisms = broker.settings.authentication.mechanisms_of(connection.listener)
    session = connection.sasl
    code = NONE
    try:
        if session is None:
            raise IllegalSaslState("this listener asks nobody who they are by SASL")
        if context.api_version == 0:
            raise UnsupportedVersion("its client speaks version 0 of SaslHandshake; let it use 1, as since Kafka 1.0")
        if request.mechanism not in mechanisms:
            raise UnsupportedSaslMechanism(f"{request.mechanism[:MAX_MECHANISM]} is not enabled here")
        session.begin(request.mechanism, broker.authentication.begin(request.mechanism))
    except TieredError as error:
        code = error_code(error)
        if session is not None:
            session.fail(error)
    return reply.SaslHandshakeResponse(error_code=code, mechanisms=list(mechanisms))


async def authenticate(
    context: Context, request: "sasl_authenticate.Request", reply: "sasl_authenticate.Reply"
) -> "sasl_authenticate.Response":
    broker: Guarded = context.broker
    session = context.connection.sasl
    try:
        if session is None:
            raise IllegalSaslState("this listener asks nobody who they are by SASL")
        answer, lifetime_ms = await _said(broker, session, request.auth_bytes)
    except TieredError as error:
        if session is not None:
            broker.counters.logins["failed"] += 1
            await asyncio.sleep(broker.settings.authentication.connection_failed_authentication_delay_ms / 1000.0)
            session.fail(error)
        known = isinstance(error, AuthenticationFailed | IllegalSaslState)
        code = error_code(error if known else AuthenticationFailed())
        return reply.SaslAuthenticateResponse(error_code=code, error_message=str(error), auth_bytes=b"")
    return reply.SaslAuthenticateResponse(
        error_code=NONE, error_message=None, auth_bytes=answer, session_lifetime=lifetime_ms
    )


async def _said(broker: Guarded, session: SaslSession, message: bytes) -> tuple[bytes, int]:
    said = await session.conversation.hear(message)
    if said.login is None:
        return said.answer, 0
    lifetime_ms = session.open(said.login, now_ms=broker.clock.now_ms())
    broker.counters.logins["succeeded"] += 1
    return said.answer, lifetime_ms


HANDSHAKE_API = Api(17, "SaslHandshake", (0, 1), rights="none", handle=handshake, on_replica=handshake)
AUTHENTICATE_API = Api(36, "SaslAuthenticate", (0, 2), rights="none", handle=authenticate, on_replica=authenticate)
