"""The redirector's decisions: who owns a key, what changed. Pure: no clock, no sockets, no awaits."""
