"""A broker that has a bucket and nothing else: it serves what other brokers have uploaded, and changes nothing."""
