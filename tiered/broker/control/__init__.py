"""A broker among brokers: its registration and heartbeats, and what the controller decides."""
