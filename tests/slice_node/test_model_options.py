"""Queues with options side by side with the reference model, driven by hypothesis. The steps: options_machine.py."""

from __future__ import annotations

import pytest
from hypothesis import settings

from .options_machine import OptionsMachine
from .slice_machine import RUNS

TestOptions = pytest.mark.timeout(600)(OptionsMachine.TestCase)
TestOptions.settings = settings(RUNS, max_examples=150)
