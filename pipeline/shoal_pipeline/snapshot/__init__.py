"""A stopped node's store, or a copy of one, as tables. Formats are slice_node's; nothing here writes."""
