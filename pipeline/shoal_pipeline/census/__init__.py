"""The census: what the load was, interval by interval, from an archive."""
