"""Checks what the frame alone can decide, before the frame is journaled or done."""
