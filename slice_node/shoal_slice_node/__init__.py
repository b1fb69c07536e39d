"""The slice node, which is Shoal's broker. See ../DESIGN.md."""

from shoal_slice_node import core_choice

core_choice.choose()
