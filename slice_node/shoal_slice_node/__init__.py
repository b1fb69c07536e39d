"""The slice node, which is Shoal's broker. See ../DESIGN.md."""
