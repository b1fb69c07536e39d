"""`python -m shoal_ops` runs the same command line as `shoal`."""

from shoal_ops.entry import main

main()
