"""Commands for quotas."""
