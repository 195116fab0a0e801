"""Who holds, leads and follows a partition: elections, the in-sync replicas, placement, reassignment."""
