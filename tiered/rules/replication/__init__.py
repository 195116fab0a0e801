"""The replicas, followers and leader of a partition: elections, the in-sync replicas, placement, reassignment."""
