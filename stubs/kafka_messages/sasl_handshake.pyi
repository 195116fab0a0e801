from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class SaslHandshakeRequest:
    mechanism: str

class Replies:
    @final
    @dataclass(kw_only=True)
    class SaslHandshakeResponse:
        error_code: int
        mechanisms: Sequence[str] = ...

Request = SaslHandshakeRequest
Reply = type[Replies]
Response = Replies.SaslHandshakeResponse
