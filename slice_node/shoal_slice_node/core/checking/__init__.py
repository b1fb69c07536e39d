"""Checks frames that are not journaled, and columns that verbs share. Changes are checked in core/verbs/changes."""
