"""What an older database of the cluster adds to a restore: what only SQL has, and what the bucket does not have yet.

Owns the values, and how they are merged with those of the bucket. Pure: reading the database is `meta.former`'s. Must
never trust a database of another cluster.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tiered.formats.acl_entries import AclEntry
from tiered.formats.group_checkpoint import GroupEntry
from tiered.rules.security.quotas import QuotaEntity
from tiered.rules.security.sasl.mechanism import ScramMechanism
from tiered.rules.security.sasl.scram import ScramCredential
from tiered.rules.segments.restored_logs import UnendedTransaction
from tiered.rules.transactions.transaction_state import RAISES_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedCommit:
    """A transaction that was decided to be committed, with the epoch of its marker."""

    producer_id: int
    marker_epoch: int
    protocol: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerDatabase:
    """The part of an older database that a restore takes."""

    cluster_id: str
    credentials: Mapping[tuple[str, ScramMechanism], ScramCredential] = field(default_factory=dict)
    """By user, `meta.security.NOBODY` included."""
    quotas: Mapping[tuple[QuotaEntity, str], float] = field(default_factory=dict)
    """By entity and quota."""
    acls: tuple[AclEntry, ...] = ()
    groups: tuple[GroupEntry, ...] = ()
    commits: tuple[DecidedCommit, ...] = ()


def problems(former: FormerDatabase | None, lineage: Collection[str]) -> list[str]:
    """Why the database must not be used."""
    if former is None or former.cluster_id in lineage:
        return []
    return [f"the former database belongs to cluster {former.cluster_id}, which is not the store's"]


def warnings(
    former: FormerDatabase | None, acls: Sequence[AclEntry], unended: Sequence[UnendedTransaction]
) -> list[str]:
    """What people should know of the former database, beside the bucket's `acls` and the transactions on disks."""
    if former is None:
        return []
    in_bucket, in_database = len({*acls} - {*former.acls}), len({*former.acls} - {*acls})
    differ = (
        f"the access rules of the former database come back, and the bucket has others: {in_bucket} only the bucket "
        f"has, {in_database} only the database; a plan without --former-meta lists the bucket's"
    )
    by_producer = {commit.producer_id: commit for commit in former.commits if commit.protocol != RAISES_EPOCH}
    return [
        *([differ] if in_bucket or in_database else []),
        *(
            f"the transaction of producer {its.producer_id} will be aborted: the former database had decided to commit "
            "one under the same epoch, but an earlier one may be meant"
            for its in unended
            if (commit := by_producer.get(its.producer_id)) is not None and commit.marker_epoch == its.producer_epoch
        ),
    ]


def merged_groups(groups: Sequence[GroupEntry], former: FormerDatabase | None) -> tuple[GroupEntry, ...]:
    """The groups of the bucket and of the former database by id, with the later commit for each partition."""
    by_id = {group.group_id: group for group in groups}
    for group in () if former is None else former.groups:
        in_bucket = by_id.get(group.group_id)
        by_id[group.group_id] = group if in_bucket is None else _merged(in_bucket, group)
    return tuple(by_id[group_id] for group_id in sorted(by_id))


def _merged(in_bucket: GroupEntry, former: GroupEntry) -> GroupEntry:
    commits = {(commit.topic_id, commit.partition): commit for commit in former.offsets}
    for commit in in_bucket.offsets:
        key = (commit.topic_id, commit.partition)
        if key not in commits or commit.committed_at_ms >= commits[key].committed_at_ms:
            commits[key] = commit
    newest = max(in_bucket, former, key=lambda group: group.generation)
    return replace(newest, offsets=tuple(commits[key] for key in sorted(commits)))


def with_decisions(
    unended: Sequence[UnendedTransaction], former: FormerDatabase | None
) -> tuple[UnendedTransaction, ...]:
    """The transactions, committed where the former database had decided so.

    Only where the protocol raises the epoch with each end: the decision is then about this transaction. Otherwise the
    producer's next transaction has the same epoch, and the older database may mean one that ended long ago; what nobody
    decided must not become visible.
    """
    if former is None:
        return tuple(unended)
    decided = {(its.producer_id, its.marker_epoch) for its in former.commits if its.protocol == RAISES_EPOCH}
    return tuple(
        replace(its, is_committed=True) if (its.producer_id, its.producer_epoch + 1) in decided else its
        for its in unended
    )
