"""`tftrt publish` of what `tftrt build --on` made: a model for each kind of GPU. Each kind gets a base path of its own, for the servers on
nodes with such GPUs, and all get one version number."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from typing import Any, ClassVar

from tftrt_tools.base import errors, results
from tftrt_tools.models.savedmodel import files, passport
from tftrt_tools.servers.serving import version_directories
from tftrt_tools.servers.serving.publishing import base_path as base_paths
from tftrt_tools.servers.serving.publishing import nodes, publish


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfKind:
    """The publication of a kind. gpu: as the driver of the build's machine calls it, "" where the model does not say."""

    gpu_type: str
    gpu: str
    publication: publish.Publication

    @property
    def node(self) -> str:
        """The label of nodes that can serve it, "" where it is not known."""
        return ": ".join(nodes.selector(self.gpu).popitem()) if self.gpu else ""

    # Not a Record: a Publication is none.
    def to_dict(self) -> dict[str, Any]:
        return {
            "gpu_type": self.gpu_type,
            "gpu": self.gpu,
            "node_selector": nodes.selector(self.gpu),
            "publication": self.publication.to_dict(),
        }


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Publications(results.Result):
    """One version for several kinds of GPU. base_path: it has a folder for each kind."""

    model: str
    model_name: str
    version: int
    base_path: str
    kinds: tuple[OfKind, ...]
    # Versions, date and machine.
    stamp: dict[str, Any] = dataclasses.field(default_factory=passport.stamp)

    document: ClassVar[str] = "publications"

    def summary(self) -> str:
        """As Result.summary."""
        return f"{self.model_name}, version {self.version}, for {', '.join(one.gpu_type for one in self.kinds)}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.document,
            **self.stamp,
            "model": self.model,
            "model_name": self.model_name,
            "version": self.version,
            "base_path": self.base_path,
            "kinds": [one.to_dict() for one in self.kinds],
        }


def kinds(model: str) -> dict[str, str]:
    """{kind: path of its model} in a directory of nothing but SavedModels, or of nothing but plan directories; {} for one model, and for
    a path without any. A version that `publish` made of such a directory is one, too. Raises: UsageError where something else is beside
    them."""
    folder = pathlib.Path(model)
    if not folder.is_dir() or files.is_saved_model(folder) or files.is_plan(folder):
        return {}
    children = {one.name: _form(one) for one in sorted(folder.iterdir()) if not one.name.startswith(".")}
    form_of = {name: form for name, form in children.items() if form or name not in _OF_VERSION}
    forms = {form for form in form_of.values() if form}
    # Of one SavedModel in a repository of Triton: its version.
    if not forms or list(form_of) == ["model.savedmodel"]:
        return {}
    first = next(name for name, form in form_of.items() if form)
    if other := next((name for name, form in form_of.items() if form != form_of[first]), ""):
        what = f"is {form_of[other]}" if form_of[other] else "is no model"
        raise errors.UsageError(
            f"{model} has {form_of[first]} {first}, as for a kind of GPU, and {other} there {what}",
            f"move {other} elsewhere, or give one model, such as {folder / first}",
        )
    return {name: str(folder / name) for name in form_of}


# What a version of kinds in a repository of Triton has beside their folders.
_OF_VERSION = (files.EXTRAS, "model.py", "__pycache__")


def _form(path: pathlib.Path) -> str:
    """What a child of a directory is, "" for no model."""
    with contextlib.suppress(PermissionError):  # lost+found
        return "the SavedModel" if files.is_saved_model(path) else "the plan directory" if files.is_plan(path) else ""
    return ""


def publish_all(model: str, model_name: str, base_path: str, options: publish.Options) -> Publications:
    """Publish the model of each kind as base_path/KIND/model_name/VERSION.

    Args: model: a directory that `kinds` knows. options: a version and a compute capability are those of all; by default the next number
      that no kind has, and what each was built for. Returns: Publications. Raises: as publish.publish. Kinds before the one that failed
      are published then, and the message says so.
    """
    paths = kinds(model)
    bases = {kind: pathlib.Path(base_path, kind) for kind in paths}
    for base in bases.values():
        base_paths.of(model, model_name, str(base), "the base path")
    version = options.version or max(version_directories.following(base / model_name) for base in bases.values())
    for base in bases.values():
        version_directories.check(base / model_name, version, options.allow_older_version)
    done: list[OfKind] = []
    for kind, path in paths.items():
        gpu = (passport.read(path, passport.MANIFEST) or {}).get("gpu") or {}
        capability = options.compute_capability or gpu.get("compute_capability", "")
        changed = dataclasses.replace(options, version=version, compute_capability=capability)
        try:
            published = publish.publish(path, model_name, str(bases[kind]), changed)
        except OSError as refused:
            raise of_kind(errors.from_os_error(refused), kind, _there(done)) from refused
        except errors.TftrtError as error:
            raise of_kind(error, kind, _there(done)) from error
        done.append(OfKind(gpu_type=kind, gpu=gpu.get("name", ""), publication=published))
    return Publications(
        model=str(pathlib.Path(model).absolute()),
        model_name=model_name,
        version=version,
        base_path=str(pathlib.Path(base_path).absolute()),
        kinds=tuple(done),
    )


def _there(done: list[OfKind]) -> str:
    return f"; published already: {', '.join(one.gpu_type for one in done)}" if done else ""


def of_kind(error: errors.TftrtError, kind: str, more: str = "") -> errors.TftrtError:
    """An error of the same exit code that names the kind. What says more than cause and mend, as of a process that died, becomes a plain
    one. Args: more: text for its cause, such as what was published before."""
    same = next(one for one in (errors.CheckFailed, errors.UsageError, errors.TftrtError) if isinstance(error, one))
    return same(f"{kind}: {error.cause}{more}", error.mend)
