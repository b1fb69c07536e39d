"""The slice node: the broker. See ../DESIGN.md."""
