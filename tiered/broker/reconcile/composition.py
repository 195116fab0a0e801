"""Reconcile and scrub of one broker, put together.

Owns the one thread that all comparisons share. Must never decide anything.
"""

from tiered.broker.context import BrokerContext
from tiered.broker.partitions.topics import Topics
from tiered.broker.reconcile.bucket import BucketComparison
from tiered.broker.reconcile.disk import DiskComparison
from tiered.broker.reconcile.findings import Findings
from tiered.broker.reconcile.orphans import Strangers
from tiered.broker.reconcile.rounds import Reconciler
from tiered.broker.reconcile.scrub import Scrub
from tiered.broker.view.image import ClusterImage
from tiered.runtime import BlockingPool


def reconciler(*, context: BrokerContext, topics: Topics, image: ClusterImage, findings: Findings) -> Reconciler:
    """Not started yet; it closes the thread's pool when it stops."""
    pool = BlockingPool("reconcile", threads=1, max_waiting=10)
    return Reconciler(
        context=context,
        topics=topics,
        pool=pool,
        findings=findings,
        bucket=BucketComparison(context=context, topics=topics, image=image, pool=pool, findings=findings),
        strangers=Strangers(context=context, topics=topics, pool=pool, findings=findings),
        disk=DiskComparison(context=context, topics=topics, findings=findings),
        scrub=Scrub(context=context, topics=topics, pool=pool, findings=findings),
    )
