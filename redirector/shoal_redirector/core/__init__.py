"""Makes the redirector's decisions: which slice owns a key, what changed. Pure: no clock, no sockets, no awaits."""
