"""Parts that concern this process and its disk alone."""
