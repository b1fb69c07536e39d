"""What records do to the tables: total, deterministic, in bounded steps."""
