"""A back end that the project does not have: ONNX Runtime's optimized file. All that it takes is in this file."""

import dataclasses
import importlib.metadata
import json
import pathlib
import shutil
from collections.abc import Callable

from tftrt_tools.accuracy import verify
from tftrt_tools.base import errors, records
from tftrt_tools.base.files import scratch
from tftrt_tools.base.process import jobs
from tftrt_tools.models.backends import protocol, recipe
from tftrt_tools.models.inputs import calls
from tftrt_tools.models.kinds import opening, table
from tftrt_tools.models.sources.source import Source
from tftrt_tools.tensorrt.exporting import export

LEVELS = ("basic", "extended", "all")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(recipe.Recipe):
    """The recipe, and ONNX Runtime's option."""

    optimization: str = records.field(default="all", help="onnxruntime: basic, extended or all rewrites of the graph")


@dataclasses.dataclass(frozen=True)
class Asked(records.Record):
    """A file to optimize."""

    source: str
    target: str
    level: str


@jobs.job
def optimize() -> Callable[[Asked], str]:
    """Write ONNX Runtime's optimized file. Returns: its version."""

    def job(asked):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(
            onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{asked.level.upper()}"
        )
        options.optimized_model_filepath = asked.target
        onnxruntime.InferenceSession(asked.source, options, providers=["CPUExecutionProvider"])
        return onnxruntime.__version__

    return job


@dataclasses.dataclass(frozen=True)
class Optimized(records.Record):
    """A file that was made."""

    output: str | None
    settings: Settings
    runtime: str
    complete: bool = True

    def text(self):
        """Lines for people."""
        return (
            f"optimized by ONNX Runtime {self.runtime} ({self.settings.optimization})",
            f"written: {self.output}" if self.output else "dry run: nothing was written",
        )


def beside(model):
    """The file that says what a model was made from."""
    return pathlib.Path(f"{model}.json")


class OnnxRuntime:
    """As protocol.Backend says."""

    name = "onnxruntime"
    about = "onnxruntime writes ONNX Runtime's optimized file"
    makes = "ONNX Runtime"
    title = "optimized file"
    settings = Settings
    suffix = ".onnx"
    convert_flags = build_flags = frozenset()
    keeps_high = {}
    has_segments = False
    needs_gpu = False
    always_builds = True
    resumes = False

    def versions(self):
        return {"onnxruntime": importlib.metadata.version("onnxruntime")}

    def takes(self, source):
        opening.check(source)

    def check(self, settings, given):
        settings = recipe.checked(settings)
        if settings.precision_mode != "FP32":
            raise errors.UsageError(f"--precision={settings.precision_mode}: it keeps FP32", "leave it out")
        if settings.optimization not in LEVELS:
            raise errors.UsageError(f"--optimization={settings.optimization} is unknown", "use " + ", ".join(LEVELS))
        return settings

    def make(self, work):
        if work.output and not work.output.endswith(self.suffix):
            raise errors.UsageError(f"{work.output} does not end in {self.suffix}", "name a file")
        if work.output and pathlib.Path(work.output).exists() and not work.overwrite:
            raise errors.UsageError(f"{work.output} is there", "add --overwrite")
        with scratch.folder("onnxruntime") as folder:
            source, target = pathlib.Path(work.source.path), pathlib.Path(folder) / "optimized.onnx"
            if table.kind(str(source)).name != table.ONNX.name:
                exported = pathlib.Path(folder) / "exported.onnx"
                compared = verify.Options(asked=calls.Asked(shapes=work.settings.shapes))
                done = export.export(work.source, exported, export.Options(target="onnxruntime", comparison=compared))
                if not done.passed:
                    raise errors.CheckFailed(f"the export of {source} answers otherwise", "`tftrt export` shows it")
                source = exported
            version = optimize.run(Asked(str(source), str(target), work.settings.optimization)).result
            if work.output:
                shutil.move(target, work.output)
                beside(work.output).write_text(
                    json.dumps([str(pathlib.Path(work.source.path).absolute()), work.settings.to_dict()])
                )
        return Optimized(work.output, work.settings, version)

    def made(self, model):
        return beside(model).is_file()

    def rebuild(self, model, changes, work):
        source, settings = json.loads(beside(model).read_text())
        output, overwrite = work.output or model, work.overwrite or work.output is None
        return self.make(
            protocol.Work(
                source=Source(path=source), output=output, settings=Settings.from_dict(settings), overwrite=overwrite
            )
        )

    def evidence(self, model):
        return protocol.Evidence(build_seconds=0.0, engine_bytes=0, engines=0, coverage=0.0)
