"""One partition's log: which appends are allowed, which tier answers a read, when a segment ends."""
