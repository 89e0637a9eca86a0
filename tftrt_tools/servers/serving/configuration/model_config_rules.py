"""Finds parts of a ModelServerConfig that TensorFlow Serving refuses, or accepts but treats in another way than meant."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tftrt_tools.servers.serving import version_directories
from tftrt_tools.servers.serving.configuration.config_problem import ERROR, WARNING, Problem
from tftrt_tools.servers.serving.configuration.model_config import (
    LATEST,
    PLATFORM,
    SPECIFIC,
    Model,
    is_absolute,
    is_uri,
)
from tftrt_tools.servers.serving.configuration.text_places import Field

if TYPE_CHECKING:
    from tftrt_tools.base.wire import config_types


def problems(config: config_types.ModelServerConfig, root: Field, on_disk: bool = True) -> Iterator[Problem]:
    """Problems of a ModelServerConfig. Args: config: the message. root: its text as a Field. on_disk: look into base
    paths that are on this machine, too."""
    if config.WhichOneof("config") != "model_config_list" or not config.model_config_list.config:
        yield Problem(
            root.fields[0].line if root.fields else 1,
            ERROR,
            "no model is listed",
            "write model_config_list { config { … } }",
        )
        return
    configs = [field for outer in root.all("model_config_list") for field in outer.all("config")]
    lines: dict[str, int] = {}
    for proto, field in zip(config.model_config_list.config, configs, strict=True):
        if proto.name in lines:
            yield Problem(
                field.line_of("name"),
                ERROR,
                f"model {proto.name!r} is listed twice, first in line {lines[proto.name]}",
                "give every model one config { … }",
            )
        lines.setdefault(proto.name, field.line_of("name"))
        yield from _of_model(proto, field, on_disk)


def _of_model(proto: config_types.ModelConfig, field: Field, on_disk: bool) -> Iterator[Problem]:
    if not proto.name:
        yield Problem(field.line, ERROR, "a model without a name", 'add name: "…"')
    if not is_absolute(proto.base_path):
        what = f"the base path {proto.base_path!r} is relative" if proto.base_path else "a model without a base path"
        yield Problem(
            field.line_of("base_path"), ERROR, what, "give an absolute path or a URI, as the server's machine sees it"
        )
    yield from _of_platform(proto, field)
    model, there = Model.of(proto), _there(proto.base_path) if on_disk else None
    yield from _of_policy(model, field, there)
    yield from _of_labels(model, field, there)


def _of_platform(proto: config_types.ModelConfig, field: Field) -> Iterator[Problem]:
    if proto.model_type:
        line = field.line_of("model_type")
        if proto.model_platform:
            yield Problem(
                line, ERROR, "model_type and model_platform are both set", "leave model_type out: it is deprecated"
            )
        else:
            yield Problem(line, WARNING, "model_type is deprecated", f'write model_platform: "{PLATFORM}"')
    elif not proto.model_platform:
        yield Problem(
            field.line, ERROR, f"model {proto.name!r} has no model_platform", f'add model_platform: "{PLATFORM}"'
        )
    elif proto.model_platform != PLATFORM:
        yield Problem(
            field.line_of("model_platform"),
            ERROR,
            f"the server has no platform {proto.model_platform!r}",
            f'write model_platform: "{PLATFORM}"',
        )


def _of_policy(model: Model, field: Field, there: set[int] | None) -> Iterator[Problem]:
    line = field.line_of("model_version_policy")
    if model.policy == SPECIFIC and not model.versions:
        yield Problem(line, ERROR, "the version policy lists no version: nothing would be served", "add versions: N")
    if model.policy == SPECIFIC and there is not None:
        for version in sorted(set(model.versions) - there):
            yield Problem(
                line,
                WARNING,
                f"{model.base_path} holds no version {version}: the server would wait for it",
                "publish it, or leave it out",
            )


def _of_labels(model: Model, field: Field, there: set[int] | None) -> Iterator[Problem]:
    met: set[str] = set()
    for entry in field.all("version_labels"):
        key = entry.first("key")
        label = (key.value if key else None) or ""
        if label in met:
            yield Problem(
                entry.line, ERROR, f"the label {label!r} is given twice: the last one counts", "give each label once"
            )
        met.add(label)
        version = model.labels.get(label)
        if model.policy == SPECIFIC and version not in model.versions:
            yield Problem(
                entry.line,
                ERROR,
                f"the label {label!r} is on version {version}, which the version policy does not list",
                f"add versions: {version} to specific {{ … }}, or move the label",
            )
        elif model.policy == LATEST and there is not None and version not in model.served(there):
            yield Problem(
                entry.line,
                ERROR,
                f"the label {label!r} is on version {version}, which is not among the latest {model.latest} "
                f"in {model.base_path}",
                "serve specific { versions: … }: what is latest changes",
            )
        elif model.policy == LATEST:
            yield Problem(
                entry.line,
                WARNING,
                f'the label {label!r} is on a version of a "latest" policy: the next ones push it out',
                "serve specific { versions: … } where labels are used",
            )


def _there(base_path: str) -> set[int] | None:
    """Version numbers in a base path of this machine, None if there is no such path here: it may exist only on the server."""
    if is_uri(base_path) or not pathlib.Path(base_path).is_absolute() or not pathlib.Path(base_path).is_dir():
        return None
    return {one.number for one in version_directories.listing(base_path)}
