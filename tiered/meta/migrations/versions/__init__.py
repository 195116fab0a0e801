"""One file per revision, in order. Each is complete in itself: it imports no table from the code of today."""
