"""Reads journal archives as rows: folders, records, columns. The slice node defines bytes and kinds; nothing here
writes."""
