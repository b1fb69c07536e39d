"""Runs one job: `python -m shoal_pipeline JOB ...`; or, unchanged, `spark-submit .../shoal_pipeline/__main__.py JOB
...`."""

import shoal_runtime.without_forks  # noqa: F401 - before gRPC is imported

if __name__ == "__main__":
    from shoal_pipeline.main import main
    from shoal_runtime.standard_streams import ended_with_its_reader

    with ended_with_its_reader():
        raise SystemExit(main())
