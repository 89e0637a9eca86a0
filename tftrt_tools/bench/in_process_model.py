"""The model without a server: loaded as the development server loads it, through the runtime that TensorFlow Serving uses. Runs in a child
process, for load.in_process."""

import pathlib


def make(request):
    """Load the model and answer every call once.

    Args: request: {"model": directory, "signature": name, "calls": [path of an .npz, one a call], "answers": folder for the first answers,
      an .npz for each call, or ""}.
    Returns: (function of a call's index that runs it, number of calls). Raises: TftrtError where the model cannot be loaded or run.
    """

    from tftrt_tools import errors
    from tftrt_tools.execution import npz
    from tftrt_tools.serving.local import failure, loader, metrics

    settings = loader.LoadSettings(warmup=False)
    try:
        servable = loader.Loader(settings, None, None, metrics.Metrics())("model", 1, request["model"])
        signature = servable.signatures[request["signature"]]
        aliases = sorted(signature.outputs)
        fetches = [signature.outputs[alias].name for alias in aliases]
        feeds = [{signature.inputs[alias].name: array for alias, array in npz.load(path).items()} for path in request["calls"]]
        for number, one in enumerate(feeds):
            found = servable.run(one, fetches)
            if request["answers"]:
                npz.save(pathlib.Path(request["answers"]) / f"{number}.npz", dict(zip(aliases, found, strict=True)))
    except failure.Failure as error:
        raise errors.TftrtError(f"{request['model']}: {error.to_text()}", _mend(error)) from None

    def infer(index):
        servable.run(feeds[index], fetches)

    return infer, len(feeds)


def _mend(error: Exception) -> str:
    if "Op type not registered" in error.to_text():
        return "name the library that has the op with --op_library=FILE.so"
    return "`tftrt inspect` shows what the model takes"
