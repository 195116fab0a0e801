"""What a broker looks at again and again."""
