"""`python -m shoal_ops`: as `shoal`."""

from shoal_ops.cli import main

main()
