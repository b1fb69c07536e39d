"""`python -m shoal_pipeline JOB ...`; unchanged: `spark-submit .../shoal_pipeline/__main__.py JOB ...`."""

if __name__ == "__main__":
    from shoal_pipeline.main import main

    raise SystemExit(main())
