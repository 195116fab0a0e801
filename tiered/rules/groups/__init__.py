"""Consumer groups: their members, states and assignments, and which broker coordinates them."""
