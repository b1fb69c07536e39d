"""Holds the fuzzer and its tests."""
