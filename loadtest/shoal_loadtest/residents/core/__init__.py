"""The population, the checker, shapes and service levels: decided without clock, chance of its own, or I/O."""
