"""A real broker inside a test: `with cluster() as c: …`, or the pytest fixture `tiered_broker`.

Must stay cheap to import: pytest loads the plugin beside it in every run of everybody who has Tiered installed.
Nothing of the broker is imported before a cluster starts.
"""

from tiered.testing.cluster_options import QUICK_SETTINGS
from tiered.testing.local_cluster import LocalCluster, cluster

__all__ = ["QUICK_SETTINGS", "LocalCluster", "cluster"]
