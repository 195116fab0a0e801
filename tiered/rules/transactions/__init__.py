"""Transactions: what a transactional producer may do next, and what its coordinator then does."""
