"""The broker's pure core: records and now in, effects out. No clock, sockets, files or awaits."""
