"""Replication between the brokers of a cluster: leaders, followers, and the in-sync replicas."""
