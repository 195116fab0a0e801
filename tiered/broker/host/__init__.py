"""What is of this process and its disk alone."""
