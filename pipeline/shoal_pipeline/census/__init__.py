"""The census: computes from an archive what the load was, interval by interval."""
