"""Reads a stopped node's store, or a copy of one, as tables. The slice node defines formats; nothing here writes."""
