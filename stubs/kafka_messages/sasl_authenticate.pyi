from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class SaslAuthenticateRequest:
    auth_bytes: bytes

class Replies:
    @final
    @dataclass(kw_only=True)
    class SaslAuthenticateResponse:
        error_code: int
        error_message: str | None
        auth_bytes: bytes
        session_lifetime: int = ...

Request = SaslAuthenticateRequest
Reply = type[Replies]
Response = Replies.SaslAuthenticateResponse
