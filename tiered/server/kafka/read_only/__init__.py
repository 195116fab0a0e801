"""Kafka's protocol as a read replica speaks it: reads of what is cold, and refusals of everything else."""
