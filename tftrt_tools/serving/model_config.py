"""The models of a TensorFlow Serving: names, base paths, version policies and labels; the grammar of --model.

    --model=NAME=BASE_PATH[:latest=N | :all | :versions=N,N…][:LABEL=N]…

    --model=digits=/models/digits                                    the latest version, as the server does by default
    --model=digits=/models/digits:latest=2                           the latest two
    --model=digits=/models/digits:versions=1,2:stable=1:canary=2     these two, with labels
    --model=ranker=gs://bucket/ranker:all                            every version
"""

import dataclasses
import difflib
import os
import pathlib
import re

from tftrt_tools import errors

PLATFORM = "tensorflow"
LATEST, ALL, SPECIFIC = "latest", "all", "specific"
_OPTION = re.compile(r"(?P<all>all)|(?P<name>[A-Za-z_][\w.-]*)=(?P<value>[^:/]*)")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_EXAMPLE = "write --model=NAME=BASE_PATH:versions=1,2:stable=1:canary=2"
# Near misses of `versions` and `latest` that would pass for labels.
_NO_LABELS = {"version": "versions", "specific": "versions", "last": "latest", "all": "all"}
_CLOSE = 0.85  # "latst" is, "test" is not


@dataclasses.dataclass(frozen=True)
class Model:
    """A model of a server. policy: LATEST, ALL or SPECIFIC; latest: how many; versions: of SPECIFIC; labels: {label: version}."""

    name: str
    base_path: str
    policy: str = LATEST
    latest: int = 1
    versions: tuple = ()
    labels: dict = dataclasses.field(default_factory=dict)

    def to_dict(self):
        return {"name": self.name, "base_path": self.base_path, "policy": self.policy, "versions": list(self.served_text()),
                "labels": self.labels}

    def served_text(self):
        """The versions of SPECIFIC, ("latest N",) or ("all",)."""
        return {LATEST: (f"latest {self.latest}",), ALL: ("all",), SPECIFIC: self.versions}[self.policy]

    def served(self, there):
        """Those of the version numbers `there` that this policy serves, the smallest first."""
        there = sorted(there)
        if self.policy == SPECIFIC:
            return [version for version in there if version in self.versions]
        return there[-self.latest:] if self.policy == LATEST else there

    def at(self, base_path):
        """This model at another base path."""
        return dataclasses.replace(self, base_path=base_path)

    @classmethod
    def of(cls, proto):
        """Of a ModelConfig."""
        kind = proto.model_version_policy.WhichOneof("policy_choice") or LATEST
        return cls(proto.name, proto.base_path, kind, max(proto.model_version_policy.latest.num_versions, 1),
                   tuple(sorted(set(proto.model_version_policy.specific.versions))), dict(sorted(proto.version_labels.items())))


def is_absolute(base_path):
    """Whether the server takes this base path: an absolute path, or a URI."""
    return bool(_URI.match(base_path)) or os.path.isabs(base_path)


def is_uri(base_path):
    """Whether the base path is no path of a file system."""
    return bool(_URI.match(base_path))


def parse(flag):
    """The Model that one --model names; its base path absolute. Raises: UsageError."""
    name, equals, rest = flag.partition("=")
    if not equals or not name or not rest:
        raise errors.UsageError(f"--model={flag} gives no name and base path", _EXAMPLE)
    path, options = _split(flag, rest)
    policy, latest, versions, labels = None, 1, (), {}
    for option, value in options:
        if option in (LATEST, ALL, "versions"):
            if policy:
                raise errors.UsageError(f"--model={flag} gives two version policies", "give one of latest=N, all and versions=N,N")
            policy = SPECIFIC if option == "versions" else option
            latest = _number(flag, option, value) if option == LATEST else 1
            versions = tuple(_number(flag, option, one) for one in value.split(",")) if option == "versions" else ()
        elif near := _NO_LABELS.get(option) or next(iter(difflib.get_close_matches(option, (LATEST, "versions"), 1, _CLOSE)), ""):
            raise errors.UsageError(f"--model={flag}: {option!r} is no option", f"did you mean {near}?")
        elif option in labels:
            raise errors.UsageError(f"--model={flag} gives the label {option!r} twice", _EXAMPLE)
        else:
            labels[option] = _number(flag, option, value)
    if policy == LATEST and latest < 1:
        raise errors.UsageError(f"--model={flag}: latest={latest}", "give a number of versions, 1 or more")
    path = path if is_uri(path) else os.path.abspath(os.path.expanduser(path))
    model = Model(name, path, policy or LATEST, latest, tuple(sorted(set(versions))), labels)
    outside = sorted(set(labels.values()) - set(versions)) if policy == SPECIFIC else []
    if outside:
        listed = ",".join(map(str, versions))
        raise errors.UsageError(f"--model={flag}: version {outside[0]} has a label and is not among versions={listed}",
                                "the server gives labels to versions that it serves: add it to versions=")
    return model


def _split(flag, rest):
    """Returns: (base path, [(option, value)])."""
    parts, options = rest.split(":"), []
    while len(parts) > 1 and (match := _OPTION.fullmatch(parts[-1])):
        options.insert(0, (match["all"] or match["name"], match["value"] or ""))
        parts.pop()
    path = ":".join(parts)
    if len(parts) > 1 and not is_uri(path) and "/" not in parts[-1]:
        raise errors.UsageError(f"--model={flag}: {parts[-1]!r} is no option", "options are latest=N, all, versions=N,N and LABEL=N")
    if not path:
        raise errors.UsageError(f"--model={flag} gives no base path", _EXAMPLE)
    return path, options


def _number(flag, option, value):
    if not re.fullmatch(r"[0-9]{1,18}", value):
        raise errors.UsageError(f"--model={flag}: {option}={value} is no version number", _EXAMPLE)
    return int(value)


def to_proto(models):
    """The ModelServerConfig of Models."""
    from tensorflow_serving.config import model_server_config_pb2

    config = model_server_config_pb2.ModelServerConfig()
    for model in models:
        fill(config.model_config_list.config.add(name=model.name, base_path=model.base_path, model_platform=PLATFORM), model)
    return config


def fill(proto, model):
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


def mounted(base_path, mounts):
    """A base path of this machine as the server sees it. Args: mounts: [(folder here, folder there)], as `docker run -v` has them.

    Returns: the path there; the same path where no mount holds it.
    """
    for here, there in mounts:
        if not is_uri(base_path) and pathlib.Path(base_path).is_relative_to(here):
            return os.path.normpath(os.path.join(there, os.path.relpath(base_path, here)))
    return base_path


def parse_mount(flag):
    """(folder here, folder there) of one --mount=HERE:THERE. Raises: UsageError."""
    here, colon, there = flag.partition(":")
    if not colon or not here or not os.path.isabs(there):
        raise errors.UsageError(f"--mount={flag} is not HERE:THERE", "write it as in `docker run -v`: --mount=/home/me/models:/models")
    return os.path.abspath(os.path.expanduser(here)), there
