"""Apache Kafka and ours in turn, on one machine under one load. `make bench-kafka` runs it.

Owns no claim: bench-results/ says what was measured, and docs/performance.md what was expected of it.
"""
