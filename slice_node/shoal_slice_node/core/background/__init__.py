"""Finds the work that a leader does by itself: trims, reclaims, idle producers."""
