"""Core and dispatch side by side with the reference model, driven by hypothesis: thousands of steps.

A failing run prints its steps and the blob that repeats them. The steps: slice_machine.py.
"""

from __future__ import annotations

from hypothesis import settings

from .slice_machine import RUNS, DeltaMachine, SliceMachine

TestMemory = SliceMachine.TestCase
TestMemory.settings = RUNS
TestDelta = DeltaMachine.TestCase
TestDelta.settings = settings(RUNS, max_examples=100)
