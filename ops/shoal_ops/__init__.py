"""Holds the command line, the HTTP gateway, replay and checks. See ../DESIGN.md."""
