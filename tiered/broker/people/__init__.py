"""What people ask for over HTTP and the console: records, positions, lag, cost, reports."""
