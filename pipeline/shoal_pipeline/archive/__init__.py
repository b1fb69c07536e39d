"""Journal archives as rows: folders, records, columns. Bytes and kinds are slice_node's; nothing here writes."""
