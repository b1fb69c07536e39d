"""What a leader finds to do by itself: trims, reclaims, producers that are idle."""
