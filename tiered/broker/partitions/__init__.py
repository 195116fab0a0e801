"""The replicas on this broker: their logs, roles and waits."""
