"""Tiered: a Kafka-compatible log with a hot tail on local disk and a cold past in S3.

Owns the version and nothing else. Must import nothing: every command pays for what stands here.
"""

__version__ = "0.1.0"
