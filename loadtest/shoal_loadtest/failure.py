"""The only exception of the benchmarks: the figures of a failed run would mean nothing."""


class BenchFailed(Exception):
    """Says that a process or a session ended, an answer was missing, or a result was wrong."""
