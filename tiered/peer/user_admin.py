"""Users from outside (KIP-554): who they are, and new passwords for them.

Owns how each request is put. A password is salted before it is sent, so that no broker sees it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tiered.peer.answers import require_success
from tiered.peer.cluster import Cluster
from tiered.rules.security.sasl.mechanism import ScramMechanism

DESCRIBE_USERS, ALTER_USERS = 50, 51

Users = Mapping[str, Mapping[ScramMechanism, int]]
"""The iterations of each mechanism by which a user may log in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPassword:
    """Of a user for one mechanism."""

    mechanism: ScramMechanism
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)
    iterations: int


async def describe_users(cluster: Cluster) -> Users:
    """All users. Raises BrokerError."""
    answer = await cluster.request(DESCRIBE_USERS, lambda make: make.DescribeUserScramCredentialsRequest(users=None))
    require_success(answer, "the users were not described")
    by_code = {each.code: each for each in ScramMechanism}
    return {
        each.user: {
            by_code[info.mechanism]: info.iterations for info in each.credential_infos if info.mechanism in by_code
        }
        for each in answer.results
    }


async def alter_user(
    cluster: Cluster, name: str, *, new: Iterable[NewPassword] = (), deleted: Iterable[ScramMechanism] = ()
) -> None:
    """All of it, or nothing. Raises BrokerError with the broker's reason."""
    answer = await cluster.request(
        ALTER_USERS,
        lambda make: make.AlterUserScramCredentialsRequest(
            deletions=[make.ScramCredentialDeletion(name=name, mechanism=each.code) for each in deleted],
            upsertions=[
                make.ScramCredentialUpsertion(
                    name=name,
                    mechanism=each.mechanism.code,
                    iterations=each.iterations,
                    salt=each.salt,
                    salted_password=each.salted_password,
                )
                for each in new
            ],
        ),
    )
    for found in answer.results:
        require_success(found, "the user was not changed")
