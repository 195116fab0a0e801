"""Transactions in one broker: their coordinator, the markers that end them, and what a leader asks about them."""
