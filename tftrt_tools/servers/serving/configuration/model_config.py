"""The models of a TensorFlow Serving: names, base paths, version policies and labels; the grammar of --model.

--model=NAME=BASE_PATH[:latest=N | :all | :versions=N,N…][:LABEL=N]…

--model=digits=/models/digits                                    the latest version, as the server does by default
--model=digits=/models/digits:latest=2                           the latest two
--model=digits=/models/digits:versions=1,2:stable=1:canary=2     these two, with labels
--model=ranker=gs://bucket/ranker:all                            every version
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import pathlib
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from tftrt_tools.base import errors
from tftrt_tools.base.wire import config_messages
from tftrt_tools.models.savedmodel import files
from tftrt_tools.servers.serving import version_directories

if TYPE_CHECKING:
    from tftrt_tools.base.wire import config_types


PLATFORM = "tensorflow"
Policy = Literal["latest", "all", "specific"]
LATEST: Policy = "latest"
ALL: Policy = "all"
SPECIFIC: Policy = "specific"
# Options of --model that choose the policy.
_POLICIES: dict[str, Policy] = {LATEST: LATEST, ALL: ALL, "versions": SPECIFIC}
_OPTION = re.compile(r"(?P<all>all)|(?P<name>[A-Za-z_][\w.-]*)=(?P<value>[^:/]*)")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_EXAMPLE = "write --model=NAME=BASE_PATH:versions=1,2:stable=1:canary=2"
# Misspellings of `versions` and `latest` that would count as labels.
_NO_LABELS = {"version": "versions", "specific": "versions", "last": "latest", "all": "all"}
_CLOSE = 0.85  # "latst" is, "test" is not


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """A model of a server."""

    name: str
    # An absolute path, or a URI.
    base_path: str
    # Which versions are served.
    policy: Policy = LATEST
    # The number of versions where the policy is LATEST.
    latest: int = 1
    # Which ones, where the policy is SPECIFIC; the smallest first.
    versions: tuple[int, ...] = ()
    # {label: version}
    labels: Mapping[str, int] = dataclasses.field(default_factory=dict)

    # Not a Record: versions are written as people read them.
    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "base_path": self.base_path,
            "policy": self.policy,
            "versions": list(self.served_text()),
            "labels": dict(self.labels),
        }

    def served_text(self) -> tuple[Any, ...]:
        """The versions of SPECIFIC, ("latest N",) or ("all",)."""
        texts: dict[Policy, tuple[Any, ...]] = {
            LATEST: (f"latest {self.latest}",),
            ALL: ("all",),
            SPECIFIC: self.versions,
        }
        return texts[self.policy]

    def served(self, there: Iterable[int]) -> list[int]:
        """The version numbers among `there` that this policy serves, the smallest first."""
        names = sorted(there)
        if self.policy == SPECIFIC:
            return [version for version in names if version in self.versions]
        return names[-self.latest :] if self.policy == LATEST else names

    def at(self, base_path: str) -> Model:
        """This model at another base path."""
        return dataclasses.replace(self, base_path=base_path)

    @classmethod
    def of(cls, proto: config_types.ModelConfig) -> Model:
        """Make it from a ModelConfig."""
        kind = proto.model_version_policy.WhichOneof("policy_choice") or LATEST
        return cls(
            name=proto.name,
            base_path=proto.base_path,
            policy=kind,
            latest=max(proto.model_version_policy.latest.num_versions, 1),
            versions=tuple(sorted(set(proto.model_version_policy.specific.versions))),
            labels=dict(sorted(proto.version_labels.items())),
        )


def is_absolute(base_path: str) -> bool:
    """Whether the server takes this base path: an absolute path, or a URI."""
    return bool(_URI.match(base_path)) or os.path.isabs(base_path)


def is_uri(base_path: str) -> bool:
    """Whether the base path is a URI and not a path of a file system."""
    return bool(_URI.match(base_path))


def version_paths(model: Model) -> list[pathlib.Path]:
    """The version directories that a server would serve; [] where this machine cannot see them."""
    listed = (
        []
        if is_uri(model.base_path) or not os.path.isdir(model.base_path)
        else version_directories.listing(model.base_path)
    )
    there = {version.number: version.path for version in listed}
    return [there[number] for number in model.served(there) if files.is_saved_model(there[number])]


def parse(flag: str) -> Model:
    """The Model that one --model names; its base path absolute. Raises: UsageError."""
    name, equals, rest = flag.partition("=")
    if not equals or not name or not rest:
        raise errors.UsageError(f"--model={flag} gives no name and base path", _EXAMPLE)
    path, options = _split(flag, rest)
    policy: Policy | None = None
    latest = 1
    versions: tuple[int, ...] = ()
    labels: dict[str, int] = {}
    for option, value in options:
        if chosen := _POLICIES.get(option):
            if policy:
                raise errors.UsageError(
                    f"--model={flag} gives two version policies", "give one of latest=N, all and versions=N,N"
                )
            policy = chosen
            latest = _number(flag, option, value) if option == LATEST else 1
            versions = (
                tuple(_number(flag, option, number) for number in value.split(",")) if option == "versions" else ()
            )
        elif near := _NO_LABELS.get(option) or next(
            iter(difflib.get_close_matches(option, (LATEST, "versions"), 1, _CLOSE)), ""
        ):
            raise errors.UsageError(f"--model={flag}: {option!r} is no option", f"did you mean {near}?")
        elif option in labels:
            raise errors.UsageError(f"--model={flag} gives the label {option!r} twice", _EXAMPLE)
        else:
            labels[option] = _number(flag, option, value)
    if policy == LATEST and latest < 1:
        raise errors.UsageError(f"--model={flag}: latest={latest}", "give a number of versions, 1 or more")
    path = path if is_uri(path) else os.path.abspath(os.path.expanduser(path))
    model = Model(
        name=name,
        base_path=path,
        policy=policy or LATEST,
        latest=latest,
        versions=tuple(sorted(set(versions))),
        labels=labels,
    )
    outside = sorted(set(labels.values()) - set(versions)) if policy == SPECIFIC else []
    if outside:
        listed = ",".join(map(str, versions))
        raise errors.UsageError(
            f"--model={flag}: version {outside[0]} has a label and is not among versions={listed}",
            "the server gives labels to versions that it serves: add it to versions=",
        )
    return model


def _split(flag: str, rest: str) -> tuple[str, list[tuple[str, str]]]:
    """Returns: (base path, [(option, value)])."""
    parts = rest.split(":")
    options: list[tuple[str, str]] = []
    while len(parts) > 1 and (match := _OPTION.fullmatch(parts[-1])):
        options.insert(0, (match["all"] or match["name"], match["value"] or ""))
        parts.pop()
    path = ":".join(parts)
    if len(parts) > 1 and not is_uri(path) and "/" not in parts[-1]:
        raise errors.UsageError(
            f"--model={flag}: {parts[-1]!r} is no option", "options are latest=N, all, versions=N,N and LABEL=N"
        )
    if not path:
        raise errors.UsageError(f"--model={flag} gives no base path", _EXAMPLE)
    return path, options


def _number(flag: str, option: str, value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", value):
        raise errors.UsageError(f"--model={flag}: {option}={value} is no version number", _EXAMPLE)
    return int(value)


def to_proto(models: Iterable[Model]) -> config_types.ModelServerConfig:
    """The ModelServerConfig of Models."""
    config = config_messages.new(config_messages.MODELS)
    for model in models:
        fill(
            config.model_config_list.config.add(name=model.name, base_path=model.base_path, model_platform=PLATFORM),
            model,
        )
    return config


def fill(proto: config_types.ModelConfig, model: Model) -> None:
    """Give a ModelConfig the version policy and the labels of Model `model`; the rest of it stays."""
    policy = proto.model_version_policy
    policy.Clear()
    if model.policy == SPECIFIC:
        policy.specific.versions.extend(model.versions)
    elif model.policy == ALL:
        policy.all.SetInParent()
    else:
        policy.latest.num_versions = model.latest
    proto.version_labels.clear()
    for label, version in model.labels.items():
        proto.version_labels[label] = version


def mounted(base_path: str, mounts: Iterable[tuple[str, str]]) -> str:
    """A base path of this machine as the server sees it. Args: mounts: [(folder here, folder there)], as `docker run -v` has them.

    Returns: the path there; the same path where no mount holds it.
    """
    for here, there in mounts:
        if not is_uri(base_path) and pathlib.Path(base_path).is_relative_to(here):
            return os.path.normpath(os.path.join(there, os.path.relpath(base_path, here)))
    return base_path


def parse_mount(flag: str) -> tuple[str, str]:
    """(folder here, folder there) of one --mount=HERE:THERE. Raises: UsageError."""
    here, colon, there = flag.partition(":")
    if not colon or not here or not os.path.isabs(there):
        raise errors.UsageError(
            f"--mount={flag} is not HERE:THERE", "write it as in `docker run -v`: --mount=/home/me/models:/models"
        )
    return os.path.abspath(os.path.expanduser(here)), there
