"""Runs a warm-up file through the published files, as a server does while it loads them. No TensorFlow in this process."""

import dataclasses

from tftrt_tools import child, errors, scratch
from tftrt_tools.execution import coverage, npz, run
from tftrt_tools.savedmodel import shapes as shape_grammar


@dataclasses.dataclass(frozen=True)
class Record:
    """One request that ran. shapes: {input: shape}; seconds: of the call, with what it built; built: engines built inside it; native:
    engines that ran in TensorFlow instead; None where no GPU watched."""

    signature: str
    shapes: dict
    seconds: float
    built: int | None
    native: int | None

    def to_dict(self):
        plain = dataclasses.asdict(self)
        return plain | {"shapes": {name: list(shape) for name, shape in self.shapes.items()}, "seconds": round(self.seconds, 4)}

    def text(self):
        """For people: serving_default(x 1x8)."""
        return f"{self.signature}({shape_grammar.call_text(self.shapes)})"


@dataclasses.dataclass(frozen=True)
class Replay:
    """mode, gpu: as in execution.run.Run; misses: engines that did not run as built, a line each."""

    records: tuple
    mode: str
    gpu: dict | None
    misses: tuple

    @property
    def seconds(self):
        """Of all calls."""
        return sum(one.seconds for one in self.records)

    def to_dict(self):
        return {"mode": self.mode, "gpu": self.gpu, "seconds": round(self.seconds, 4), "misses": list(self.misses),
                "records": [one.to_dict() for one in self.records]}


def replay(model, calls, hide_gpu=False, log_file=None):
    """Run the requests of a warm-up file, in their order.

    Args: model: SavedModel directory. calls: [(signature, .npz)], as warmup_file.read gives them. hide_gpu: run the engine ops through
      their native segments: for engines that this machine cannot load. log_file: where to keep TensorFlow's log.
    Returns: Replay. Raises: CheckFailed where a request fails or ends the process; a server would fail to load the version.
    """
    env = {"CUDA_VISIBLE_DEVICES": "-1"} if hide_gpu else None
    mend = "give real inputs (--warmup_data), warm other signatures (--signature_keys), or none: --nowarmup"
    with scratch.folder("warmup") as folder:
        try:
            done = run.run(model, calls, folder, "the warm-up", trace=True, env=env, log_file=log_file)
        except child.ChildDied as death:
            raise errors.CheckFailed(f"the warm-up ends the process: {death.cause}", death.mend) from None
        except errors.TftrtError as error:
            raise errors.CheckFailed(f"the warm-up fails, and with it the load: {error.cause}", mend) from None
    records, misses = [], []
    for (signature, path), seconds, trace in zip(calls, done.seconds, done.traces, strict=True):
        inputs = npz.load(path)
        built, native = (sum(trace.build.values()), sum(trace.fallback.values())) if trace else (None, None)
        records.append(Record(signature, {name: tuple(value.shape) for name, value in inputs.items()}, seconds, built, native))
        # Engines built while it warms up are what a warm-up is for.
        misses += coverage.misses(run.Call(signature, inputs), dataclasses.replace(trace, build={})) if trace else []
    return Replay(tuple(records), done.mode, done.gpu, tuple(misses))

