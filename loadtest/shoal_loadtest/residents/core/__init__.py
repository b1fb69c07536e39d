"""The population, the checker, shapes and service levels: they decide without a clock, randomness of their own, or
I/O."""
