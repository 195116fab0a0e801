"""The HTTP door: health, metrics and the catalogue."""
