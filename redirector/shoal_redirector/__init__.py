"""Maps keys to the slices that own them: the redirector. See ../DESIGN.md."""
