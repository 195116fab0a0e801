"""The routes of our own API."""
