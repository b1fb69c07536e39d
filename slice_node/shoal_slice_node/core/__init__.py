"""Holds the broker's pure core: records and the time go in, effects come out. No clock, sockets, files or awaits."""
