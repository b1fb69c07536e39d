"""`python -m shoal_loadtest.residents`."""

from shoal_loadtest.residents.run import main

if __name__ == "__main__":
    raise SystemExit(main())
