"""The commands of `shoal`, one module for each kind. Imported when they are called, so that `shoal --help` is quick."""
