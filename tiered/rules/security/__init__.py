"""Identity, rights and quotas of principals."""
