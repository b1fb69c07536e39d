"""Encodes rows: one module for each table, with its layout drawn on top. All integers are big-endian, so keys sort."""
