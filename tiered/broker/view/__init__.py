"""What this broker sees of the metadata store: the image, the feed of its changes, and who controls."""
