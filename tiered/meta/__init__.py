"""The metadata store: which topics, partitions, brokers and segments there are, in SQLite or PostgreSQL.

Owns SQL: no other room holds a table, a statement or a connection. Functions here take a connection and
run inside the one transaction that `engine.Database.run` opened. Never touches a local segment or an
object: `broker.tiering.segment_lifecycle` orders SQL and the store.
"""
