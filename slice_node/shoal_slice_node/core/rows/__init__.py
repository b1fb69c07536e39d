"""Row layouts: one module a table, its layout drawn on top. All integers big-endian, so that keys sort."""
