"""`tiered restore`: a cluster from its bucket alone, into an empty database. First the plan, then the deed.

Owns the order: look at the database, read the bucket, plan, take the bucket over, fill the database. The last step is
one transaction, so that whoever is interrupted begins again. Decides nothing: `rules.segments.restore_plan` does.
"""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tiered.cli.failure import EXIT_FAILED, EXIT_OK, CommandFailed, UsageError
from tiered.cli.output import print_json, say
from tiered.cli.progress import bar
from tiered.cli.store import restore_words
from tiered.cold.bucket import restore_claims
from tiered.cold.bucket.contents import read_bucket
from tiered.cold.object_store import ObjectStore
from tiered.cold.opening import open_store
from tiered.cold.store_identity import store_identity
from tiered.meta import restore as stored
from tiered.meta.engine import Database
from tiered.meta.restore import Target
from tiered.rules.segments.restore_plan import FoundBucket, RestorePlan, plan_restore
from tiered.runtime import SystemClock, crash_point

WRITE_DEADLINE_MS = 3_600_000


def run(arguments: argparse.Namespace) -> int:
    """Prints the plan, and what was done. EXIT_FAILED when it cannot be done as things are."""
    if arguments.apply and arguments.meta is None:
        raise UsageError("--apply needs --meta URL: the empty database to restore into")
    store = open_store(arguments.store)
    try:
        target = stored.EMPTY if arguments.meta is None else stored.look_at(arguments.meta)
        with _progress("reading checkpoints") as show:
            found = read_bucket(store, parallel=arguments.parallel, report=show)
        if arguments.apply and target.cluster_id == found.cluster.cluster_id:
            return _already_there(target, json=arguments.json)
        plan = plan_restore(found, arguments.brokers, arguments.leave_out)
        if arguments.apply:
            _apply(arguments, store, found, plan, target)
        else:
            _print(plan, target, json=arguments.json, applied=False)
    finally:
        store.close()
    return EXIT_FAILED if plan.problems or target.holds is not None else EXIT_OK


def _apply(
    arguments: argparse.Namespace, store: ObjectStore, found: FoundBucket, plan: RestorePlan, target: Target
) -> None:
    if target.holds is not None:
        raise CommandFailed(f"the database holds {target.holds}: give --meta an empty one")
    if plan.problems:
        raise CommandFailed(
            "nothing was changed, for not everything can be restored: " + "; ".join(restore_words.problems(plan))
        )
    database = Database.open(arguments.meta)
    try:
        database.migrate()
        with _progress("taking checkpoints over") as show:
            restore_claims.claim(store, plan, found, parallel=arguments.parallel, report=show)
        rows = stored.row_count(plan)
        with _progress("writing the catalogue") as show:
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
    _print(plan, stored.EMPTY, json=arguments.json, applied=True)


def _already_there(target: Target, *, json: bool) -> int:
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


def _print(plan: RestorePlan, target: Target, *, json: bool, applied: bool) -> None:
    if json:
        print_json(restore_words.as_json(plan, target_holds=target.holds, applied=applied))
    elif applied:
        say(restore_words.done(plan))
    else:
        say("\n".join(restore_words.lines(plan, target_holds=target.holds)))


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None]]:
    with bar(None, what, counts="items") as show:
        yield lambda done, total: show(done, what, total)
