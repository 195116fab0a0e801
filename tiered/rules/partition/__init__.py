"""One partition's log: who may append what, which tier answers a read, when a segment ends."""
