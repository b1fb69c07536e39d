"""Files of a slice: journal, store, archive; and what is done with them while no node runs."""
