"""What holds in every store, checked row by row."""
