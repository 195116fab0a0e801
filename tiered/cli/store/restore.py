"""`tiered restore`: a cluster from its bucket and disks, into an empty database. First the plan, then the deed.

Owns the order: look at the database, read the bucket, plan, take the bucket over, fill the database. The last step is
one transaction, so that whoever is interrupted begins again. Decides nothing: `rules.segments.restore_plan` does.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from tiered.cli.failure import EXIT_FAILED, EXIT_OK, CommandFailed, UsageError
from tiered.cli.output import Cell, counted, in_bytes, in_utc, on_one_line, plain_lines, print_json, say
from tiered.cli.progress import bar
from tiered.cli.store.arguments import DEFAULT_BROKERS
from tiered.cli.store.disk_report import read_disk
from tiered.cold.bucket import restore_claims
from tiered.cold.bucket.contents import read_bucket
from tiered.cold.bucket.signs_of_life import ALIVE_MS, live_brokers
from tiered.cold.object_store import ObjectStore
from tiered.cold.opening import open_store, store_identity
from tiered.config.broker import broker_setting
from tiered.config.topic import TOPIC_SETTINGS
from tiered.formats.acl_entries import AclEntry
from tiered.meta import restore as stored
from tiered.meta.engine import Database
from tiered.meta.former import read_former
from tiered.meta.restore import TargetDatabase
from tiered.meta.security import NOBODY
from tiered.rules.segments.restore_plan import (
    FoundBucket,
    MovedOffset,
    RestoredPartition,
    RestoredTopic,
    RestorePlan,
    plan_restore,
)
from tiered.runtime import SystemClock, crash_point

WRITE_DEADLINE_MS = 3_600_000
MAX_SHOWN = 50
MAX_PROBLEMS = 20
_ANYONE = "whoever can write to the bucket could have put them there"


def run(arguments: argparse.Namespace) -> int:
    """Prints the plan, and what was done. EXIT_FAILED when it cannot be done as things are."""
    if arguments.apply and arguments.meta is None:
        raise UsageError("--apply needs --meta URL: the empty database to restore into")
    disks = [read_disk(path) for path in arguments.disks]
    former = None if arguments.former_meta is None else read_former(arguments.former_meta)
    store = open_store(arguments.store)
    try:
        target = stored.EMPTY if arguments.meta is None else stored.look_at(arguments.meta)
        with _progress("reading checkpoints") as show:
            found = read_bucket(store, parallel=arguments.parallel, report=show)
        if arguments.apply and target.cluster_id == found.cluster.cluster_id:
            return _already_there(target, json=arguments.json)
        plan = plan_restore(
            found,
            arguments.brokers or tuple(sorted(disk.broker_id for disk in disks)) or DEFAULT_BROKERS,
            arguments.leave_out,
            accept_rights=arguments.accept_rights,
            disks=disks,
            former=former,
        )
        live = live_brokers(store, plan.former_cluster_id)
        if arguments.apply:
            if live and not arguments.take_from_live_brokers:
                raise CommandFailed(f"nothing was changed: {_alive(live)}")
            _apply(arguments, store, found, plan, target)
        else:
            _print(plan, target, json=arguments.json, live=live)
    finally:
        store.close()
    is_refused = bool(live) and not arguments.take_from_live_brokers
    return EXIT_FAILED if plan.problems or target.holds is not None or is_refused else EXIT_OK


def _apply(
    arguments: argparse.Namespace, store: ObjectStore, found: FoundBucket, plan: RestorePlan, target: TargetDatabase
) -> None:
    if target.holds is not None:
        raise CommandFailed(f"the database holds {target.holds}: give --meta an empty one")
    if plan.problems:
        refusal = "nothing was changed, for not everything can be restored: " + "; ".join(_problems(plan))
        rights = _left_out_rights(plan) if arguments.accept_rights is not None else ()
        raise CommandFailed("\n".join(map(on_one_line, (refusal, *rights))))
    database = Database.open(arguments.meta)
    try:
        database.migrate()
        with _progress("taking checkpoints over") as show:
            restore_claims.claim(store, plan, found, parallel=arguments.parallel, report=show)
        rows = stored.row_count(plan)
        with _progress("writing the metadata store") as show:
            now_ms, identity = SystemClock().now_ms(), store_identity(store.url)
            database.run_sync(
                lambda conn: stored.write(
                    conn, plan, now_ms=now_ms, store=identity, report=lambda written: show(written, rows)
                ),
                deadline_ms=WRITE_DEADLINE_MS,
            )
        crash_point("restore.committed")
    finally:
        database.close_sync()
    _print(plan, stored.EMPTY, json=arguments.json)


def _already_there(target: TargetDatabase, *, json: bool) -> int:
    """The transaction was committed: a run that was interrupted after it, or whose answer was lost."""
    if target.brokers:
        raise CommandFailed(
            "the database holds this cluster already, and brokers serve it: there is nothing to restore"
        )
    if json:
        print_json({"applied": True, "cluster_id": target.cluster_id})
    else:
        say(f"cluster {target.cluster_id} is restored already: start its brokers")
    return EXIT_OK


def _print(plan: RestorePlan, target: TargetDatabase, *, json: bool, live: Sequence[int] | None = None) -> None:
    """The plan; without `live`, the brokers that use the store still, that it was carried out."""
    if json:
        print_json(
            {**_as_json(plan, target_holds=target.holds, applied=live is None), "live_brokers": list(live or ())}
        )
    elif live is None:
        say(_done(plan))
        _say_lines(_settings_and_rules(plan))
    else:
        _say_lines(_lines(plan, target_holds=target.holds))
        if live:
            _say_lines(["", f"the cluster is alive: {_alive(live)}"])


def _alive(live: Sequence[int]) -> str:
    noun = "broker" if len(live) == 1 else "brokers"
    return (
        f"{noun} {', '.join(map(str, live))} of the cluster wrote to the store within the last {ALIVE_MS / 60_000:g} "
        "minutes. Stop every broker first; where one was killed, wait so long. To take the store from brokers that "
        "cannot be stopped add --take-from-live-brokers: what producers still send them is lost"
    )


def _say_lines(lines: Iterable[str]) -> None:
    """A name from the bucket ends no line, and so cannot add one of its own."""
    say("\n".join(map(on_one_line, lines)))


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None]]:
    with bar(None, what, counts="items") as show:
        yield lambda done, total: show(done, what, total)


# Words and JSON: they hold nothing that is not in the plan, so that the same bucket gives the same words. Only live
# brokers are told of besides


def _lines(plan: RestorePlan, *, target_holds: str | None) -> Iterator[str]:
    """The plan in words."""
    yield f"cluster {plan.former_cluster_id} comes back as {plan.cluster_id}, on {_brokers(plan)}"
    sizes = [each.size_bytes for topic in plan.topics for its in topic.partitions for each in its.segments]
    yield (
        f"{counted(len(plan.topics), 'topic')}, {counted(plan.segment_count, 'segment')}, {in_bytes(sum(sizes))}; "
        f"{counted(len(plan.groups), 'consumer group')}, {counted(_snapshots(plan), 'snapshot')}, "
        f"{counted(len(plan.acls), 'access rule')}; {_users_and_quotas(plan)}"
    )
    taken_back = [its.taken_back for topic in plan.topics for its in topic.partitions if its.taken_back]
    if taken_back:
        uploads, partitions = counted(sum(taken_back), "upload"), counted(len(taken_back), "partition")
        yield f"taken back: {uploads} that no checkpoint names, in {partitions}"
    yield f"leader epochs and producer ids (from {plan.next_producer_id:,} on) are ones that the old cluster never used"
    if plan.unended:
        commits = sum(transaction.is_committed for transaction in plan.unended)
        decided = f", but for {commits:,} that the former database had decided to commit" if commits else ""
        yield f"{counted(len(plan.unended), 'transaction')} without an end on the disks will be aborted{decided}"
    else:
        yield "no transaction is open: all transactions that come back were committed or aborted"
    yield "transactional ids begin anew"
    if plan.topics:
        rows = [_row(topic, its) for topic in plan.topics for its in topic.partitions]
        yield ""
        yield from plain_lines("PARTITION OFFSETS >SEGMENTS >SIZE LATEST-UPLOAD DISK BROKERS LOST", rows)
    yield from _settings_and_rules(plan)
    yield ""
    yield from _lost(plan)
    for title, found in (("warnings", plan.warnings), ("problems, with which nothing is restored", _problems(plan))):
        if found:
            yield ""
            yield f"{title}:"
            yield from (f"  {each}" for each in found)
    if target_holds is not None:
        yield ""
        yield f"the database holds {target_holds}: only an empty one can be restored into"


def _users_and_quotas(plan: RestorePlan) -> str:
    if not plan.has_former_database:
        return "users and their passwords are not kept"
    users, quotas = counted(len(_users(plan)), "user"), counted(len(plan.quotas), "quota")
    return f"{users} and {quotas} from the former database"


def _users(plan: RestorePlan) -> list[str]:
    return sorted({user_name for user_name, _ in plan.credentials if user_name != NOBODY})


def _problems(plan: RestorePlan) -> list[str]:
    """The first of them."""
    more = len(plan.problems) - MAX_PROBLEMS
    return [*plan.problems[:MAX_PROBLEMS], *([f"and {more} more"] if more > 0 else [])]


def _done(plan: RestorePlan) -> str:
    """The lines to print afterwards."""
    return (
        f"cluster {plan.cluster_id} is restored: {counted(len(plan.topics), 'topic')}, "
        f"{counted(plan.segment_count, 'segment')}, {counted(len(plan.groups), 'consumer group')}. "
        f"Start {_brokers(plan)} with this --meta and --store, and {_folders(plan)}"
    )


def _folders(plan: RestorePlan) -> str:
    kept = [disk.broker_id for disk in plan.kept_disks]
    others = [broker_id for broker_id in plan.brokers if broker_id not in kept]
    if not kept:
        return "with empty data folders"
    if not others:
        return "with the data folders that were given"
    return f"{_named_brokers(kept)} with the data folder that was given, {_named_brokers(others)} with an empty one"


def _as_json(plan: RestorePlan, *, target_holds: str | None, applied: bool) -> dict[str, Any]:
    """The plan for programs; `applied` says whether it was carried out."""
    return {
        "applied": applied,
        "former_cluster_id": plan.former_cluster_id,
        "cluster_id": plan.cluster_id,
        "change_number": plan.change_number,
        "next_producer_id": plan.next_producer_id,
        "brokers": list(plan.brokers),
        "kept_disks": [disk.broker_id for disk in plan.kept_disks],
        "unended_transactions": [
            {
                "producer_id": transaction.producer_id,
                "is_committed": transaction.is_committed,
                "partitions": [
                    {"topic_id": str(where.topic_id), "partition": where.partition} for where in transaction.partitions
                ],
            }
            for transaction in plan.unended
        ],
        "settings": {scope: dict(values) for scope, values in sorted(plan.settings.items())},
        "ignored_settings": {scope: list(names) for scope, names in plan.ignored_settings.items()},
        "contradictory_settings": {scope: dict(values) for scope, values in plan.contradictory_settings.items()},
        "left_out_settings": {scope: dict(values) for scope, values in plan.left_out_settings.items()},
        "resource_configs": {each: dict(values) for each, values in sorted(plan.resource_configs.items())},
        "topics": [_topic_json(topic) for topic in plan.topics],
        "groups": [
            {
                "group_id": group.group_id,
                "offsets": [
                    {"topic_id": str(each.topic_id), "partition": each.partition, "offset": each.offset}
                    for each in group.offsets
                ],
            }
            for group in plan.groups
        ],
        "moved_offsets": [asdict(each) for each in plan.moved_offsets],
        "snapshots": [each.name for each in plan.pins if each.name is not None],
        "pins": len(plan.pins) - _snapshots(plan),
        "has_former_database": plan.has_former_database,
        "users": _users(plan),
        "quotas": len(plan.quotas),
        "access_rules": [asdict(each) for each in plan.acls],
        "left_out_access_rules": [asdict(acl) for acl in plan.left_out_acls],
        "rights_digest": plan.rights_digest,
        "warnings": list(plan.warnings),
        "problems": list(plan.problems),
        "database_holds": target_holds,
    }


def _topic_json(topic: RestoredTopic) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": str(topic.topic_id),
        "configs": dict(sorted(topic.configs.items())),
        "replication_factor": topic.replication_factor,
        "former_replication_factor": topic.former_replication_factor,
        "partitions": [
            {
                "partition": each.partition,
                "log_start_offset": each.log_start_offset,
                "end_offset": each.end_offset,
                "cold_end_offset": each.cold_end_offset,
                "from_disk_of": each.replicas[0] if each.has_log else None,
                "segments": len(each.segments),
                "taken_back": each.taken_back,
                "size_bytes": sum(segment.size_bytes for segment in each.segments),
                "latest_upload_ms": _latest_upload_ms(each),
                "leader_epoch": each.leader_epoch,
                "replicas": list(each.replicas),
                "lost_from": each.end_offset,
                "lost_before": each.lost_before,
                "is_loss_unknown": each.is_loss_unknown,
            }
            for each in topic.partitions
        ],
    }


def _latest_upload_ms(its: RestoredPartition) -> int | None:
    return its.segments[-1].committed_at_ms if its.segments else None


def _row(topic: RestoredTopic, its: RestoredPartition) -> list[Cell]:
    start, end = its.log_start_offset, its.end_offset
    return [
        f"{topic.name}-{its.partition}",
        f"{start}..{end - 1}" if end > start else f"none, the next is {end}",
        len(its.segments),
        in_bytes(sum(each.size_bytes for each in its.segments)),
        in_utc(_latest_upload_ms(its)),
        f"{its.cold_end_offset}..{end - 1} of broker {its.replicas[0]}" if end > its.cold_end_offset else None,
        ",".join(map(str, its.replicas)),
        _lost_offsets(its),
    ]


def _lost_offsets(its: RestoredPartition) -> str | None:
    if its.is_loss_unknown:
        return "not known"
    return None if its.lost_before is None else f"{its.end_offset}..{its.lost_before - 1}"


def _lost(plan: RestorePlan) -> Iterator[str]:
    lost = [its for topic in plan.topics for its in topic.partitions if its.lost_before is not None]
    records = sum((its.lost_before or 0) - its.end_offset for its in lost)
    if lost:
        yield (
            f"known to be lost, for it was never uploaded: {counted(records, 'offset')} in "
            f"{counted(len(lost), 'partition')}; and whatever was written later than its partition's last checkpoint, "
            "and not uploaded"
        )
    elif plan.kept_disks:
        yield "lost is what was on no disk that is given, and not uploaded; none of it is known"
    else:
        yield (
            "lost is whatever was written later than its partition's last checkpoint, and not uploaded; none of it is "
            "known"
        )
    if plan.moved_offsets:
        yield f"{counted(len(plan.moved_offsets), 'offset')} of groups lay beyond that and go back to the restored end:"
        yield from (f"  {_moved(each)}" for each in plan.moved_offsets[:MAX_SHOWN])
        if len(plan.moved_offsets) > MAX_SHOWN:
            yield f"  and {len(plan.moved_offsets) - MAX_SHOWN} more; --json has all of them"


def _settings_and_rules(plan: RestorePlan) -> Iterator[str]:
    of_topics = [
        f"{name}={text} (topic {topic.name})"
        for topic in plan.topics
        for name, text in sorted(topic.configs.items())
        if name in TOPIC_SETTINGS and TOPIC_SETTINGS[name].has_effect
    ]
    of_resources = [
        f"{name}={text}{_of(resource)}"
        for resource, texts in plan.resource_configs.items()
        for name, text in texts.items()
    ]
    ignored = [f"{name}{_of(scope)}" for scope, names in plan.ignored_settings.items() for name in names]
    yield from _list("settings that were altered at run time come back", _named(plan.settings))
    yield from _list("configs of topics come back", of_topics)
    yield from _list("configs of groups and of subscriptions come back", of_resources)
    from_where = ", from the former database" if plan.has_former_database else ""
    yield from _list(f"access rules come back{from_where}", [_rule(acl) for acl in plan.acls])
    yield from _list(f"users come back with their passwords{from_where}", _users(plan))
    yield from _list("ignored, for no broker takes them at run time", ignored)
    yield from _list(
        "left out, for a broker would not start with them beside the others", _named(plan.contradictory_settings)
    )
    yield from _left_out_rights(plan)


def _left_out_rights(plan: RestorePlan) -> Iterator[str]:
    settings, rules = _named(plan.left_out_settings), [_rule(acl) for acl in plan.left_out_acls]
    yield from _list(f"settings that give rights are left out, for {_ANYONE}", settings)
    yield from _list(f"access rules are left out, for {_ANYONE}", rules)
    if settings or rules:
        yield f"--accept-rights {plan.rights_digest}"
        yield "brings these back, and no others. Without rules super.users alone may do anything; but where"
        yield "allow.everyone.if.no.acl.found=true everybody may: create the rules anew then, before clients connect"


def _list(title: str, lines: Sequence[str]) -> Iterator[str]:
    """The first of them."""
    if lines:
        yield ""
        yield f"{title} ({len(lines):,}):"
        yield from (f"  {line}" for line in lines[:MAX_SHOWN])
    if len(lines) > MAX_SHOWN:
        yield f"  and {len(lines) - MAX_SHOWN} more; --json has all of them"


def _named(settings: Mapping[str, Mapping[str, str]]) -> list[str]:
    return [
        f"{name}={'(not shown)' if broker_setting(name).is_sensitive else text}{_of(scope)}"
        for scope, values in settings.items()
        for name, text in values.items()
    ]


def _of(scope: str) -> str:
    if ":" in scope:
        kind, _, name = scope.partition(":")
        return f" ({kind.lower().replace('_', ' ')} {name})"
    return f" (broker {scope})" if scope else ""


def _rule(acl: AclEntry) -> str:
    return (
        f"{acl.permission} {acl.principal} from {acl.host}: {acl.operation} on {acl.resource_type} "
        f"{acl.resource_name} ({acl.pattern_type})"
    )


def _moved(each: MovedOffset) -> str:
    return f"{each.group_id}: {each.topic}-{each.partition} from {each.committed_offset} to {each.restored_offset}"


def _snapshots(plan: RestorePlan) -> int:
    return sum(each.name is not None for each in plan.pins)


def _brokers(plan: RestorePlan) -> str:
    return _named_brokers(plan.brokers)


def _named_brokers(brokers: Sequence[int]) -> str:
    noun = "broker" if len(brokers) == 1 else "brokers"
    return f"{noun} {', '.join(map(str, brokers))}"
