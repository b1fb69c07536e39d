"""Holds the fuzzer of lifetimes and its tests."""
