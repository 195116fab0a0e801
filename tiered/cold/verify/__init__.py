"""Whether the bucket still holds what was committed: what `tiered verify`, its Spark job and the scrub do."""
