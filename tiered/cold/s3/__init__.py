"""The S3 API as an object store: requests, uploads, what failures mean."""
