"""Command line, local cluster, replay and checks. See ../DESIGN.md."""
