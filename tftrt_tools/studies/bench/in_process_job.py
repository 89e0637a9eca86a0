"""The model without a server: loaded as the development server loads it, through the runtime that TensorFlow Serving uses. Runs in a child
process, for load.function_load."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

from tftrt_tools.models.execution.run import Indexed, LoadRequest

if TYPE_CHECKING:
    from tftrt_tools.models.savedmodel.inspection import Finding
    from tftrt_tools.servers.serving.local.failure import Failure


def make(asked: LoadRequest) -> Indexed:
    """Load the model and answer every call once. Raises: TftrtError where the model cannot be loaded or run."""
    from tftrt_tools.base import errors
    from tftrt_tools.base.process import progress
    from tftrt_tools.models.execution import run_job
    from tftrt_tools.servers.serving.local import failure, loader, metrics_page

    settings = loader.LoadSettings(warmup=False)
    try:
        servable = loader.Loader(settings, None, None, metrics_page.Metrics())("model", 1, asked.model)
        signature = servable.signatures[asked.calls[0].signature]
        aliases = sorted(signature.outputs)
        fetches = [signature.outputs[alias].name for alias in aliases]
        feeds = [
            {signature.inputs[alias].name: array for alias, array in run_job.read_inputs(call).items()}
            for call in asked.calls
        ]
        for number, (call, one) in enumerate(zip(asked.calls, feeds, strict=True)):
            progress.say("calling the model", number, len(feeds))
            found = servable.run(one, fetches)
            if asked.answers:
                run_job.keep_answers(
                    call, dict(zip(aliases, found, strict=True)), pathlib.Path(asked.answers) / f"{number}.npz"
                )
    except failure.Failure as error:
        lost = _lost(asked.model) if error.code.name == "FAILED_PRECONDITION" else None
        if lost:
            raise errors.TftrtError(f"{asked.model}: {lost.about}: {lost.text}", lost.mend) from None
        raise errors.TftrtError(f"{asked.model}: {error.to_text().splitlines()[0]}", _mend(error)) from None

    def infer(index: int) -> None:
        servable.run(feeds[index], fetches)

    return infer, len(feeds)


def _lost(model: str) -> Finding | None:
    """The Finding on variables of which this runtime finds no value, as of a Keras 3 model that tf.saved_model.save wrote."""
    from tftrt_tools.models.savedmodel import tensor_kinds
    from tftrt_tools.models.savedmodel.job import protos, session_load

    variables = session_load.lost(protos.meta_graph(protos.read(model)))
    return tensor_kinds.lost(variables) if variables else None


def _mend(error: Failure) -> str:
    if "Op type not registered" in error.to_text():
        return "name the library that has the op with --op_library=FILE.so"
    return "`tftrt inspect` shows what the model takes"
