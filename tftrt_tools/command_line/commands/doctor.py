"""usage: tftrt doctor [--flags]

Says what this machine can do with TF-TRT. For each "no" it prints the line that fixes it:
  convert  rewrite a SavedModel (no GPU needed)
  build    build TensorRT engines
  run      run them

TensorFlow and the libraries are loaded in separate processes, so a broken one cannot end this command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from absl import flags

from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.command_line.commands import _output

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import Console
    from rich.text import Text

    from tftrt_tools.base.stack.diagnosis import Capability, Diagnosis
    from tftrt_tools.base.stack.libraries import Library

_CAPABILITIES = ("convert", "build", "run")


def define(flag_values: flags.FlagValues) -> None:
    flags.DEFINE_list(
        "require", [], "exit with 3 unless all of these can be done here: convert, build, run", flag_values=flag_values
    )
    flags.DEFINE_integer(
        "timeout_seconds",
        30,
        "seconds that importing TensorFlow, and loading the libraries, may take",
        lower_bound=1,
        flag_values=flag_values,
    )


def run(values: flags.FlagValues, positional: list[str]) -> int:
    if positional:
        raise errors.UsageError(
            f"tftrt doctor takes no argument: {positional[0]}", "`tftrt doctor --help` lists the flags"
        )
    required = [name.strip() for name in values.require]
    unknown = [name for name in required if name not in _CAPABILITIES]
    if unknown:
        raise errors.UsageError(f"--require={unknown[0]}: no such capability", "choose from convert, build, run")
    from tftrt_tools.base import stack

    with progress.on_terminal():
        diagnosis = stack.diagnose(values.timeout_seconds)
    _print(diagnosis, _output.console(values.json))
    _output.write_json(diagnosis, values.json)
    return errors.EXIT_DONE if all(diagnosis.can(name).can for name in required) else errors.EXIT_CHECK


def _print(diagnosis: Diagnosis, console: Console) -> None:
    for name, text in _summary(diagnosis):
        _line(console, (f"{name:<12}", "bold"), (text, ""))
    folders = _Folders(diagnosis)
    rows = [[library.name, library.needed_for, library.version, folders.of(library)] for library in diagnosis.libraries]
    if rows:
        console.print(_output.table(None, ["library", "needed to", "version", "found in"], rows))
    for note in diagnosis.notes:
        _line(console, ("note  ", "bold yellow"), (note, ""))
    if diagnosis.notes:
        console.print()
    groups = _grouped(diagnosis.capabilities)
    width = max(len(names) for names, _ in groups) + 2
    for names, capability in groups:
        answer = ("yes", "bold green") if capability.can else ("no ", "bold red")
        _line(console, (names.ljust(width), "bold"), answer, (f"  {capability.cause}" if capability.cause else "", ""))
        if capability.mend:
            _line(console, (" " * width + "fix: ", "dim"), (capability.mend, "cyan"))


def _line(console: Console, *parts: tuple[str, str]) -> None:
    from rich.text import Text

    # Never wrapped: a mend is a command to copy.
    console.print(Text.assemble(*parts), soft_wrap=True)


def _summary(diagnosis: Diagnosis) -> Iterator[tuple[str, str]]:
    yield "Python", diagnosis.python
    if diagnosis.folder:
        yield "packages", f"{_site(diagnosis)} (… below)"
    built = [f"{name} {version}" for name, version in (("CUDA", diagnosis.cuda), ("cuDNN", diagnosis.cudnn)) if version]
    tensorflow = diagnosis.tensorflow or "not installed"
    if diagnosis.distribution not in (None, "tensorflow"):
        tensorflow += f" ({diagnosis.distribution})"
    yield "TensorFlow", tensorflow + (f", built for {' and '.join(built)}" if built else "")
    if diagnosis.tensorrt_linked or diagnosis.tensorrt_loaded:
        yield (
            "TensorRT",
            f"{diagnosis.tensorrt_linked or 'unknown'} linked, {diagnosis.tensorrt_loaded or 'none'} loaded",
        )
    if diagnosis.driver:
        yield "driver", f"{diagnosis.driver}, runs CUDA {diagnosis.driver_cuda} and older"
    elif any(library.name == "libcuda.so.1" and library.path for library in diagnosis.libraries):
        yield "driver", f"not known ({diagnosis.driver_error})"
    for gpu in diagnosis.gpus:
        yield (
            f"GPU {gpu.index}",
            f"{gpu.name}, {gpu.memory_mib / 1024:.0f} GiB, compute capability {gpu.compute_capability}",
        )
    if not diagnosis.gpus:
        yield "GPU", "none"


class _Folders:
    """Shortens the directories that libraries were found in."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        self._site = f"{_site(diagnosis)}/"

    def of(self, library: Library) -> str | Text:
        from rich.text import Text

        if library.path is None:
            return Text(_reason(library.name, library.error), "red")
        folder = library.path.rpartition("/")[0]
        return "…/" + folder.removeprefix(self._site) if folder.startswith(self._site) else folder


def _site(diagnosis: Diagnosis) -> str | None:
    """The directory that holds TensorFlow and the wheels of the CUDA libraries."""
    return diagnosis.folder.rpartition("/")[0] if diagnosis.folder else None


def _reason(name: str, error: str) -> str:
    """The loader's words without the parts that the row shows already."""
    import re

    absent = re.search(r"([\w.+-]+): cannot open shared object file", error)
    if error.startswith("loading it ends the process"):
        return error.partition(": ")[0] + (f": {absent[1]} not found" if absent else "")
    return (
        error if absent is None else "not found" if absent[1] == name else f"it needs {absent[1]}, which is not found"
    )


def _grouped(capabilities: Iterable[Capability]) -> list[tuple[str, Capability]]:
    """Capabilities that share an answer, a cause and a mend, together."""
    groups: dict[tuple[bool, str, str], list[Capability]] = {}
    for capability in capabilities:
        groups.setdefault((capability.can, capability.cause, capability.mend), []).append(capability)
    return [(", ".join(capability.name for capability in group), group[0]) for group in groups.values()]
