"""What tests of SavedModels run in a child process, with child.run."""

import gc


def held(request):
    """Load a model as `build --repeat` and `diagnose --try` do. Args: request: of repeats_job.job. Returns: {"loaded": models that are still there
    afterwards, "milliseconds": of two calls, by the process that is asked later}."""
    from tftrt_tools.models.kinds.savedmodel import runner_job
    from tftrt_tools.studies.tuning import repeats_job

    repeats_job.job({"do": "load", **request})
    gc.collect()
    loaded = sum(isinstance(one, runner_job.Loaded) for one in gc.get_objects())
    return {"loaded": loaded, "milliseconds": repeats_job.job({"do": "time", "counts": [2]})}
