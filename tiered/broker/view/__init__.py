"""This broker's view of the metadata store: the image, the feed of changes, and the controller's lease."""
