"""Consumer groups: membership in memory, offsets and generations in SQL."""
