"""The one exception of the benchmarks: a run whose figures would mean nothing."""


class BenchFailed(Exception):
    """A process or a session ended, an answer was missing, or a result was wrong. Says which."""
