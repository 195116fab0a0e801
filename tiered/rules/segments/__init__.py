"""A segment's life: tiering, retention, compaction, reconciling, and what a restore makes of them."""
