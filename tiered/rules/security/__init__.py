"""Who somebody is, what they may do, and how much of it."""
