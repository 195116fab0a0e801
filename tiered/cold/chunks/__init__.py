"""Chunks of committed segments, read for a broker's clients: loads, their cache on disk, reading ahead."""
