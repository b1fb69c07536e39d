"""The redirector: maps keys to the slices that own them. See ../DESIGN.md."""
