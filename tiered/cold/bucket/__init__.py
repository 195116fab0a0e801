"""What is in the bucket, read and checked against what was committed."""
