"""What is decided by looking at a frame alone, before it is journaled or done."""
