"""The files of a SavedModel, checked and digested without TensorFlow."""

import glob
import hashlib
import os
import pathlib
import re
from collections.abc import Callable, Collection

from tftrt_tools.base import errors
from tftrt_tools.base.files import plain_file

ASSETS, EXTRAS = "assets", "assets.extra"
PASSPORT = pathlib.PurePosixPath(EXTRAS) / "tftrt"
# Requests that TensorFlow Serving sends to a version before it serves it.
WARMUP = f"{EXTRAS}/tf_serving_warmup_requests"
# What makes a directory a plan directory (models.plan): what is said about the plan, and the plan.
PLAN_DOCUMENT, PLAN = "plan.json", "model.plan"
_CHUNK_BYTES = 1 << 20
# Weights as Transformers writes them beside its config.json.
_WEIGHTS = (
    "tf_model.h5",
    "model.safetensors",
    "pytorch_model.bin",
    "tf_model.h5.index.json",
    "model.safetensors.index.json",
)


def is_saved_model(path: str | os.PathLike[str]) -> bool:
    """Whether `path` is a directory with a saved_model.pb (or .pbtxt)."""
    path = pathlib.Path(path)
    return (path / "saved_model.pb").is_file() or (path / "saved_model.pbtxt").is_file()


def is_plan(path: str | os.PathLike[str]) -> bool:
    """Whether `path` is a plan directory, or what is left of one."""
    return any((pathlib.Path(path) / name).is_file() for name in (PLAN_DOCUMENT, PLAN))


def check(path: str | os.PathLike[str]) -> pathlib.Path:
    """Raise UsageError where `path` cannot be a complete SavedModel. Returns: `path` as a pathlib.Path."""
    path = pathlib.Path(path)
    if not path.exists():
        raise errors.UsageError(f"no such file or directory: {path}", "check the path of the model")
    if not path.is_dir():
        raise errors.UsageError(f"not a SavedModel: {path} is a file", "give the directory that holds saved_model.pb")
    if is_plan(path):
        raise errors.UsageError(
            f"not a SavedModel: {path} is a plan directory, built by TensorRT already",
            "give the model that it was made from",
        )
    if not is_saved_model(path):
        if kinds := _of_kinds(path):
            raise errors.UsageError(
                f"{path} is a version with several models, one for each kind of GPU: {', '.join(kinds)}",
                f"give one of its folders, such as {path / kinds[0]}",
            )
        raise errors.UsageError(f"not a SavedModel: {path} holds no saved_model.pb", _nearby(path))
    _check_variables(path)
    return path


def _of_kinds(path: pathlib.Path) -> list[str]:
    """The folders with models in a version that `tftrt publish --server=triton` made for several kinds of GPU; [] elsewhere."""
    # That of one SavedModel has this folder.
    if not (path / PASSPORT / "publish.json").is_file() or is_saved_model(path / "model.savedmodel"):
        return []
    return sorted(child.name for child in path.iterdir() if is_plan(child) or is_saved_model(child))


def _nearby(path: pathlib.Path) -> str:
    inside = sorted(child.name for child in path.iterdir() if child.is_dir() and is_saved_model(child))
    if inside:
        return f"did you mean {path / inside[-1]}?"
    if (path / "config.json").is_file() and any((path / name).is_file() for name in _WEIGHTS):
        # The folder that save_pretrained(…, saved_model=True) adds.
        exported = path / "saved_model" / "1"
        if is_saved_model(exported):
            return f"did you mean {exported}?"
        return "it holds weights of Transformers: export a SavedModel (docs/walk_text.md)"
    return "give the directory that holds saved_model.pb"


def _check_variables(path: pathlib.Path) -> None:
    """Refuse a checkpoint index without its data file, or with a missing data shard: in TensorFlow it fails late, with an obscure error."""
    folder = path / "variables"
    if not folder.is_dir():
        return
    shards = sorted(folder.glob("variables.data-*-of-*"))
    has_index = (folder / "variables.index").is_file()
    counted = re.fullmatch(r".*-of-([0-9]{1,9})", shards[0].name) if shards else None
    expected = int(counted[1]) if counted else 0
    if has_index and (not shards or len(shards) != expected):
        raise errors.TftrtError(
            f"variables are missing: {folder} holds {len(shards)} of {expected or 'its'} data files",
            "copy the whole SavedModel again",
        )
    if shards and not has_index:
        raise errors.TftrtError(
            f"variables are missing: {folder} holds no variables.index", "copy the whole SavedModel again"
        )


def listing(path: str | os.PathLike[str]) -> list[str]:
    """Relative POSIX paths of the model's files, sorted. Extras (the passport, warm-up requests) are left out, because they do not
    change the answers."""
    path = pathlib.Path(path)
    files = (file.relative_to(path) for file in path.rglob("*") if file.is_file())
    return sorted((name.as_posix() for name in files if name.parts[0] != EXTRAS), key=os.fsencode)


def check_links(path: str | os.PathLike[str], *parts: str) -> None:
    """Refuse a model with a link that leads out of it: what is copied from there may be any file of this machine.

    Args: parts: the folders of it that are looked at, by default all. Raises: UsageError.
    """
    for part in parts or ("",):
        place = pathlib.Path(path) / part
        for entry in ([place] if part else []) + sorted(place.rglob("*")):
            check_link(entry, path)


def check_link(link: pathlib.Path, model: str | os.PathLike[str]) -> None:
    """Refuse a link that leads out of the directory `model`; a path that is no link passes. Raises: UsageError."""
    if not link.is_symlink():
        return
    home, end = pathlib.Path(os.path.realpath(model)), pathlib.Path(os.path.realpath(link))
    if home not in end.parents:
        raise errors.UsageError(
            f"{link} is a link that leads out of the model, to {end}",
            f"if that is a part of the model, copy it with what its links lead to: cp -rL {os.fspath(model)} COPY",
        )


def copy(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    left_out: Collection[str] = (),
    said: Callable[[str], object] = lambda name: None,
) -> None:
    """Copy the files of a model, with the permissions that new files get here.

    Args: source: directory. target: directory. left_out: paths relative to `source`, POSIX form, not to copy. said: is told each name.
    Raises: UsageError for a link that leads out of the model or to a directory, a dangling link or a special file; OSError.
    """
    source, target = pathlib.Path(source), pathlib.Path(target)
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source)
        if any(parent.as_posix() in left_out for parent in (name, *name.parents)):
            continue
        check_link(path, source)
        if path.is_dir():
            if path.is_symlink():
                raise errors.UsageError(
                    f"{path} is a link to a directory, which no digest covers",
                    f"copy the model first: cp -rL {source} COPY",
                )
            (target / name).mkdir(exist_ok=True)
        elif not path.is_file():
            what = "a link to nothing" if path.is_symlink() else "neither a file nor a directory"
            raise errors.UsageError(f"{path} is {what}", "remove it from the model")
        else:
            said(name.as_posix())
            plain_file.copy(path, target / name)


def checkpoint_parts(prefix: str | os.PathLike[str]) -> list[pathlib.Path]:
    """The files of a checkpoint (.index, .meta, .data-…), sorted; [] if `prefix` is not a checkpoint's. Returns: [pathlib.Path]."""
    prefix = pathlib.Path(prefix)
    if not prefix.name or not prefix.with_name(prefix.name + ".index").is_file():
        return []
    return sorted(
        file
        for end in (".index", ".meta", ".data-*-of-*")
        for file in prefix.parent.glob(glob.escape(prefix.name) + end)
    )


def size(path: str | os.PathLike[str]) -> int:
    """Bytes of a file, or of all files of a directory."""
    place = pathlib.Path(path)
    files = [place] if place.is_file() else [one for one in place.rglob("*") if one.is_file()]
    return sum(one.stat().st_size for one in files)


def digest(path: str | os.PathLike[str]) -> str:
    """SHA-256 over the names, sizes and bytes of a SavedModel's files, of one file, or of a checkpoint's. Returns: "sha256:<hex>"."""
    path = pathlib.Path(path)
    whole = hashlib.sha256()
    for name, file in _named(path):
        # A file's name is bytes, which need not be text.
        whole.update(b"%s\0%d\0" % (os.fsencode(name), file.stat().st_size))
        with open(file, "rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                whole.update(chunk)
    return "sha256:" + whole.hexdigest()


def _named(path: pathlib.Path) -> list[tuple[str, pathlib.Path]]:
    """(name in the digest, file) of each file that belongs to `path`."""
    if path.is_dir():
        return [(name, path / name) for name in listing(path)]
    return [(file.name, file) for file in ([] if path.is_file() else checkpoint_parts(path)) or [path]]
