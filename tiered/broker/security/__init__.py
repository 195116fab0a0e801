"""Rights and quotas of principals."""
