"""Sockets that speak Kafka's frames: listeners, TLS, connections, and what leaves them in which order."""
