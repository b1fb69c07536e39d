"""`python -m shoal_redirector`: see main.py."""

import sys

from shoal_redirector.main import main

if __name__ == "__main__":
    sys.exit(main())
