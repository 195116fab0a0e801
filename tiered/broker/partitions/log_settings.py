"""What a topic's settings mean for the local logs of its partitions.

Owns that translation alone.
"""

from tiered.config import TopicConfig
from tiered.hot.log import LogConfig


def log_config(config: TopicConfig) -> LogConfig:
    """The part of a topic's settings that its local logs need."""
    return LogConfig(
        segment_bytes=config.segment_bytes,
        # A record in an active segment is not compacted, so it must not stay there for too long.
        segment_ms=min(config.segment_ms, config.max_compaction_lag_ms) if config.is_compacted else config.segment_ms,
        index_interval_bytes=config.index_interval_bytes,
        max_index_bytes=config.segment_index_bytes,
        flush_messages=config.flush_messages,
        flush_ms=config.flush_ms,
    )
