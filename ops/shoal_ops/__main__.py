"""`python -m shoal_ops`: as `shoal`."""

from shoal_ops.entry import main

main()
