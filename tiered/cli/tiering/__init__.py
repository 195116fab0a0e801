"""Commands for where records are and what retention takes: segments, snapshots, reconciliation."""
