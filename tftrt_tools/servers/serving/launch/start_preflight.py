"""Finds what would keep a server from starting, before it starts: the real one waits for ever for a missing model."""

import pathlib
from collections.abc import Iterable

from tftrt_tools.base import errors
from tftrt_tools.base.logs import load_failure
from tftrt_tools.models.savedmodel import engine_assets
from tftrt_tools.servers.serving import version_directories
from tftrt_tools.servers.serving.launch import config_files, serve_plan
from tftrt_tools.servers.serving.launch.serve_plan import Model, Plan

_MODEL_FILES = ("saved_model.pb", "saved_model.pbtxt", "model.tflite")


def check_files(wanted: Plan) -> None:
    """Check paths and configuration files of `wanted`. Raises: TftrtError for the first error."""
    values = wanted.values
    for flag in serve_plan.FILE_FLAGS:
        path = values[flag]
        if path and "://" not in path and not pathlib.Path(path).is_file():
            raise errors.UsageError(f"--{flag}: no file {path}", "check the path")
    if values["batching_parameters_file"] and not values["enable_batching"]:
        raise errors.UsageError("--batching_parameters_file needs --enable_batching", "add --enable_batching")
    if values["monitoring_config_file"] and not values["rest_api_port"]:
        raise errors.UsageError(
            "--monitoring_config_file needs --rest_api_port: the metrics are on the REST port",
            "add --rest_api_port=8501",
        )
    for flag in ("batching_parameters_file", "monitoring_config_file", "ssl_config_file"):
        if values[flag] and "://" not in values[flag]:
            config_files.read(flag, values[flag])
    if values["rest_api_port"] and values["rest_api_port"] == values["port"]:
        raise errors.UsageError("--rest_api_port is the same as --port", "choose another, such as --rest_api_port=8501")
    _check_names(wanted)
    _check_labels(wanted)
    for model in wanted.models:
        _check_base_path(model, named_in=values["model_config_file"])


def _check_names(plan: Plan) -> None:
    names = plan.names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise errors.TftrtError(
            f"{plan.values['model_config_file']} lists model {twice} twice", "give each model a name of its own"
        )


def _check_labels(plan: Plan) -> None:
    """Refuse labels that no server could give: at its start no version is loaded."""
    labelled = next((model for model in plan.models if model.labels), None)
    if labelled and not plan.values[load_failure.LABELS_FLAG]:
        raise errors.UsageError(
            f"{plan.values['model_config_file']}: {labelled.name} has the label {labelled.labels[0]!r}, and a "
            "server that starts reads labels before it loads anything: it would end",
            load_failure.LABELS_MEND,
        )


def to_load(model: Model) -> list[pathlib.Path]:
    """The version directories that a server would load at its start; [] if this machine cannot see them."""
    base = model.local_path
    if base is None or not base.is_dir():
        return []
    versions = version_directories.listing(base)
    return (
        [version.path for version in versions if version.number in model.specific]
        if model.specific
        else [version.path for version in versions[-1:]]
    )


def with_engines(models: Iterable[Model]) -> tuple[str, ...]:
    """Names of the models whose versions to load carry TensorRT engines."""
    return tuple(
        model.name
        for model in models
        if any(next((path / "assets").glob(engine_assets.PREFIX + "*"), None) for path in to_load(model))
    )


def _check_base_path(model: Model, named_in: str) -> None:
    base = model.local_path
    if base is None:
        return
    flag = f"base_path of {model.name} in {named_in}" if named_in else "--model_base_path"
    if not base.is_absolute():
        raise errors.TftrtError(f"{flag} is relative: {base}", "the server wants an absolute path there")
    if not base.is_dir():
        raise errors.UsageError(
            f"{flag}: no directory {base}", "check the path; it is the directory above the numbered versions"
        )
    if _holds_model(base):
        if version_directories.parse(base.name) is not None:
            raise errors.UsageError(f"{flag} is a version directory: {base}", f"name the one above it: {base.parent}")
        raise errors.UsageError(
            f"{flag} is a SavedModel, not a directory of versions: {base}",
            f"publish it first: `tftrt publish {base} --model_name=NAME --base_path=DIR`, then serve DIR/NAME",
        )
    numbers = [version.number for version in version_directories.listing(base)]
    if not numbers:
        raise errors.UsageError(f"{flag} has no version directory: {base}", _other_mend(base))
    missing = sorted(set(model.specific) - set(numbers))
    if missing:
        raise errors.TftrtError(f"{flag} has no version {missing[0]}", f"it has {', '.join(map(str, numbers))}")
    for path in to_load(model):
        if not _holds_model(path):
            raise errors.TftrtError(
                f"version directory {path} has no saved_model.pb",
                "publish the model again: half a copy is loaded as a whole one",
            )


def _holds_model(path: pathlib.Path) -> bool:
    return any((path / name).is_file() for name in _MODEL_FILES)


def _other_mend(base: pathlib.Path) -> str:
    below = sorted(child for child in base.iterdir() if child.is_dir())
    near = next((child for child in below if version_directories.listing(child)), None)
    if near:
        return f"{near} has version directories: name that one, or several models in --model_config_file"
    models = [child for child in below if _holds_model(child)]
    if models:
        publish = f"tftrt publish {models[0]} --model_name={base.name} --base_path={base.parent}"
        return f"{models[0]} is a SavedModel without a number for a name: `{publish}` makes it a version"
    return f"publish a model there: `tftrt publish MODEL --model_name={base.name} --base_path={base.parent}`"
