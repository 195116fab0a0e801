"""The contents of the bucket, read and checked against what was committed."""
