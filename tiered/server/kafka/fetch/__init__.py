"""What Fetch is answered with: to consumers, and to followers."""
