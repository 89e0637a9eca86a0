"""The steps of publishing that need TensorFlow, in one child process; the child's side of `publish`."""

from tftrt_tools import progress


def job(request):
    """One step. Args: request: {"step": name, …}. Returns: what that step returns. Raises: TftrtError and its kinds."""
    return _STEPS[request["step"]](request)


def _read_model(request):
    """{"model"} -> Facts.to_dict()."""
    from tftrt_tools.serving import model_facts

    progress.say("reading the model")
    return model_facts.read(request["model"]).to_dict()


def _write_warmup(request):
    """{"path", "model_name", "calls": [(signature, .npz)]} -> bytes written."""
    from tftrt_tools.serving import warmup_file

    progress.say("writing the warm-up")
    return warmup_file.write(request["path"], request["model_name"], request["calls"])


def _read_warmup(request):
    """{"path", "model", "folder"} -> [(signature, .npz)]."""
    from tftrt_tools.serving import warmup_file

    progress.say("reading the warm-up back")
    return warmup_file.read(request["path"], request["model"], request["folder"])


def _covered(request):
    """{"model"} -> batching_parameters_sizes.Covered.to_dict()."""
    from tftrt_tools.serving import batching_parameters_sizes

    return batching_parameters_sizes.job({"models": [request["model"]]})[0]


_STEPS = {"read_model": _read_model, "covered": _covered, "write_warmup": _write_warmup, "read_warmup": _read_warmup}
