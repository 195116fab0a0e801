"""The Kafka protocol over TCP: listener, connections, dispatch and one file for each API."""
