"""Replication between the brokers of a cluster: leaders, followers, and who of them is in sync."""
