"""By what the password of somebody unknown is checked: as that of most users, so that it takes as long."""

from types import SimpleNamespace
from typing import Any

import pytest

from tiered.broker.security.credentials import Credentials
from tiered.meta.security import ScramCredentialRow
from tiered.rules.security.sasl import scram
from tiered.rules.security.sasl.mechanism import ScramMechanism

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512


def row(user_name: str, mechanism: ScramMechanism) -> ScramCredentialRow:
    size = mechanism.digest_bytes
    return ScramCredentialRow(
        user_name=user_name,
        mechanism=str(mechanism),
        salt=b"salt",
        stored_key=bytes(size),
        server_key=bytes(size),
        iterations=4096,
    )


@pytest.mark.parametrize("usual", [SHA_256, SHA_512])
async def test_somebody_unknown_costs_what_most_users_cost(
    usual: ScramMechanism, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[ScramMechanism] = []

    def is_password(mechanism: ScramMechanism, *_: object) -> bool:
        asked.append(mechanism)
        return False

    monkeypatch.setattr(scram, "is_password", is_password)
    rows = tuple(row(name, usual) for name in ("alice", "bob"))
    state: Any = SimpleNamespace(security=SimpleNamespace(credentials=rows))
    nothing: Any = None
    credentials = Credentials(state=state, feed=nothing, changes=nothing)
    for name in ("alice", "nobody"):
        assert await credentials.by_password(name, "x") is None
    credentials.close()
    assert asked == [usual, usual]
