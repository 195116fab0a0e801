"""The room that composes the stores: partitions and their owners, the life of a segment, topics."""
