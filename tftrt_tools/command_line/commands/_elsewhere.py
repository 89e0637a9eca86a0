"""Runs a whole command on machines of a cluster: says what travels, sends it, prints what came back. `_travel` has the class of each
flag."""

from __future__ import annotations

import contextlib
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tftrt_tools.base import errors
from tftrt_tools.base.files import whole_file
from tftrt_tools.base.process import progress
from tftrt_tools.command_line.commands import _flags, _fleet, _record_flags, _travel
from tftrt_tools.fleet import placing, session
from tftrt_tools.models.inputs import find
from tftrt_tools.models.kinds import table
from tftrt_tools.models.savedmodel import files, staging
from tftrt_tools.models.sources import kinds
from tftrt_tools.studies.elsewhere import bundle, request, sending
from tftrt_tools.studies.elsewhere.request import Request
from tftrt_tools.tensorrt.exporting import earlier

if TYPE_CHECKING:
    from absl import flags

    from tftrt_tools.fleet.place import Place
    from tftrt_tools.studies.elsewhere.sending import RemoteRun

_STDOUT = "-"
_TWO_SUFFIXES = (".gz",)


def run(name: str, values: flags.FlagValues, positional: Sequence[str], place: Place) -> int:
    """Run the command elsewhere. Returns: its exit code; of several, as sending.worst. Raises: UsageError, before anything is sent;
    TftrtError."""
    types = tuple(dict.fromkeys(values.gpu_types)) or ("",)
    for one in values.gpu_types:
        placing.check_type(one)
    _check_stays(name, values)
    values = _with_work_dir(name, values, positional)
    reads = _reads(name, values, positional)
    requests = {one: _request(name, values, positional, one if len(types) > 1 else "") for one in types}
    _check_places(values, requests.values(), reads)
    session.check()
    weights = [(path, found) for one in requests.values() for path in one.families if (found := earlier.weights(path))]
    with _fleet.live() as changed:
        overwrite = "overwrite" in values and bool(values.overwrite)
        remote_runs = sending.run(requests, reads, overwrite, place, changed, place_seconds=values.wait_seconds)
    code = _shown(remote_runs)
    placed = {path for one in remote_runs for path in one.placed}
    # As `export` does where it writes: there it could not see them.
    removed, stay = earlier.cleared(found for path, found in weights if path in placed)
    for line in (*(f"removed: {path}, the weights of the file that was there before" for path in removed), *stay):
        progress.note(line)
    return code


def _shown(remote_runs: Sequence[RemoteRun]) -> int:
    """Print what came back. Returns: the exit code."""
    for one in remote_runs:
        about = f"{one.gpu_type}: " if len(remote_runs) > 1 else ""
        if about:
            print(f"{one.gpu_type}:", flush=True)
        sys.stdout.write(one.stdout)
        sys.stdout.flush()
        sys.stderr.write(one.stderr)
        for line in one.notes() if not one.cause else ():
            progress.note(f"{about}{line}")
        for line in one.lost:
            print(f"tftrt: error: {about}{line}", file=sys.stderr)
        if one.cause and about:
            print(f"tftrt: error: {about}{one.cause}\n  {one.mend}", file=sys.stderr)
    if len(remote_runs) == 1 and remote_runs[0].cause:
        raise errors.TftrtError(remote_runs[0].cause, remote_runs[0].mend)
    return sending.worst([one.code for one in remote_runs])


def _check_stays(name: str, values: flags.FlagValues) -> None:
    """Refuse flags that speak of this machine, and code of the user's own. Raises: UsageError."""
    wrong = errors.Wrong()
    for flag in _given(values):
        value, kind = values[flag].value, _travel.class_of(name, flag)
        with wrong.collected():
            if kind == "stays":
                raise errors.UsageError(
                    f"--{flag} cannot go to a cluster: it is {_travel.STAYS[flag]}", f"leave out --{flag}, or --on"
                )
            if mend := _travel.OF_HISTORY.get((flag, value)) if isinstance(value, str) else None:
                raise errors.UsageError(
                    f"--{flag}={value} cannot go to a cluster: the history is on this machine", mend
                )
            if kind == "code" and _is_code(flag, value):
                raise errors.UsageError(
                    f"--{flag}={value} cannot go to a cluster: it names code of this machine",
                    "leave it out, or run the command on that machine itself, without --on",
                )
    wrong.check()


def _is_code(flag: str, value: str) -> bool:
    if flag == "thresholds":
        from tftrt_tools.accuracy import thresholds

        return bool(thresholds.parse(value).get(thresholds.FUNCTIONS))
    if flag == "accuracy":
        return any(":" in one.rpartition(":")[0] for one in value.split(";"))
    return True


def _with_work_dir(name: str, values: flags.FlagValues, positional: Sequence[str]) -> flags.FlagValues:
    """The flags with the default of --work_dir written out, for it comes back."""
    begins = _travel.COMMANDS[name].work_dir
    if begins and positional and not values.work_dir:
        values.work_dir = begins + pathlib.Path(positional[0]).absolute().name
        values["work_dir"].present += 1
    return values


def _reads(name: str, values: flags.FlagValues, positional: Sequence[str]) -> list[str]:
    """Absolute paths of all that the command reads. Raises: UsageError."""
    found: list[str] = []
    for model in positional:
        found += _of_model(model)
    for flag in _given(values):
        kind = _travel.class_of(name, flag)
        for path in _texts(values[flag].value):
            if path in _travel.WORDS.get(flag, ()):
                continue
            if kind == "model":
                found += _of_model(path)
            elif kind == "data":
                found += _of_data(path, f"--{flag}")
            elif kind == "read":
                if not os.path.exists(path):
                    raise errors.UsageError(f"--{flag}={path}: no such file or folder", "check the path")
                bundle.check(path)
                found.append(path)
    return [_absolute(path) for path in dict.fromkeys(found)]


def _of_model(path: str) -> list[str]:
    """The files and folders of a model. Raises: UsageError where there is none, or where a link leads out of it."""
    whole = kinds.resolved(path)
    found = [one for one in dict.fromkeys((path, whole)) if os.path.exists(one)]
    found += map(str, files.checkpoint_parts(whole))
    if not found and find.is_function(path):
        raise errors.UsageError(
            f"{path} cannot go to a cluster: it names code of this machine",
            "`tftrt export` writes it to a file: give that",
        )
    if not found:
        raise errors.UsageError(f"no such file or directory: {path}", "check the path of the model")
    with contextlib.suppress(errors.TftrtError):  # the command will say what is wrong with the file
        found += table.kind(path).weights(path)
    for one in found:
        if os.path.isdir(one):
            files.check_links(one)
    return found


def _of_data(source: str, flag: str) -> list[str]:
    found = find.find(source, flag)
    if found.kind == "function":
        raise errors.UsageError(
            f"{flag}={source} cannot go to a cluster: it names code of this machine",
            "`tftrt data` writes its rows to a file: give that",
        )
    return list(found.files)


def _request(name: str, values: flags.FlagValues, positional: Sequence[str], gpu_type: str) -> Request:
    """Args: gpu_type: where there are several; each writes at places of its own."""
    words = [name]
    written: dict[str, list[str]] = {kind: [] for kind in _travel.WRITTEN}
    for flag in _given(values):
        kind, value = _travel.class_of(name, flag), values[flag].value
        if kind == "fleet":
            continue
        if kind in _travel.WRITTEN:
            value = _of_type(value, gpu_type, kind == "folder", flag)
            if value != _STDOUT:
                written[kind].append(_lexical(value))
            value = _travelled(value, absolute=_lexical)
        elif kind in ("model", "data", "read"):
            value = _travelled(value, _travel.WORDS.get(flag, ()))
        words += _flags.words(values[flag], value)
    kept = _kept(name, values, positional)
    if kept and gpu_type:
        raise errors.UsageError(
            f"{name} keeps its result in {positional[_travel.COMMANDS[name].keeps or 0]}, which has room for that of one kind of GPU",
            "add --nowrite, or name one kind in --gpu_types",
        )
    return Request(
        words=(*words, "--", *(_travelled(one) for one in positional)),
        current=os.getcwd(),
        files=tuple(written["file"]),
        families=tuple(written["family"]),
        folders=tuple(written["folder"]),
        models=kept,
    )


def _kept(name: str, values: flags.FlagValues, positional: Sequence[str]) -> tuple[str, ...]:
    """The directory of the model in which the command keeps its result, as one; () where it keeps none."""
    number = _travel.COMMANDS[name].keeps
    if number is None or not values["write"].value or len(positional) <= number:
        return ()
    model = kinds.resolved(positional[number])
    return (_absolute(model),) if os.path.isdir(model) else ()


def _check_places(values: flags.FlagValues, requests: Iterable[Request], reads: Sequence[str]) -> None:
    """Raise UsageError where what comes back could not be written."""
    for one in requests:
        whole_file.check_places((*one.files, *one.families))
        for path in (*one.files, *one.families):
            if whole_file.is_stream(path):
                raise errors.UsageError(
                    f"{path} is no file, and what is written elsewhere comes back as one", "name a file"
                )
        work_dir = _lexical(values.work_dir) if "work_dir" in values and values.work_dir else ""
        for path in one.folders:
            if work_dir and (path == work_dir or os.path.dirname(path) == work_dir):
                if os.path.isdir(path) and os.listdir(path):
                    raise errors.UsageError(
                        f"--work_dir={values.work_dir} is there, and a search on a cluster begins anew",
                        "name another --work_dir, or move that one away",
                    )
                staging.check_target(path, False, reads)
            else:
                staging.check_target(path, "overwrite" in values and bool(values.overwrite), reads)


def _lexical(path: str) -> str:
    """The absolute path of an output, which is written at the place that `abspath` gives. Of // at its front one is left."""
    return "/" + os.path.abspath(path).lstrip("/")


def _absolute(path: str) -> str:
    """The absolute path of what is read, without `..`, as the system takes it: of LINK/.. the folder above what the link leads to."""
    parts = pathlib.PurePath(path).parts
    if ".." in parts:
        last = len(parts) - parts[::-1].index("..")
        path = os.path.join(os.path.realpath(os.path.join(*parts[:last])), *parts[last:])
    return _lexical(path)


def _given(values: flags.FlagValues) -> list[str]:
    """The flags that the user gave, and that say something."""
    return [
        flag for flag in _record_flags.given(values) if values[flag].boolean or values[flag].value not in (None, "", [])
    ]


def _texts(value: Any) -> list[str]:
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str)]


def _travelled(value: Any, words: Sequence[str] = (), absolute: Callable[[str], str] = _absolute) -> Any:
    """A path, or paths, as the other machine has them: those from / lie below the folder that stands for it. One with `..` is written out,
    for a link on its way does not travel."""
    if isinstance(value, list):
        return [_travelled(one, words, absolute) for one in value]
    if value in words or value == _STDOUT or not (os.path.isabs(value) or ".." in pathlib.PurePath(value).parts):
        return value
    return request.ROOT + absolute(value)


def _of_type(path: str, gpu_type: str, is_folder: bool, flag: str) -> str:
    """The place of one kind of GPU among several: out/T4 of a folder, out-T4.json of a file. Raises: UsageError for stdout."""
    if not gpu_type:
        return path
    if path == _STDOUT:
        raise errors.UsageError(
            f"--{flag}=- is one place, and --gpu_types names several kinds", f"give a file: --{flag}=FILE"
        )
    if is_folder:
        return os.path.join(path, gpu_type)
    place = pathlib.PurePath(path)
    ending = place.suffix
    if ending in _TWO_SUFFIXES:
        ending = place.with_suffix("").suffix + ending
    return str(place.with_name(f"{place.name.removesuffix(ending)}-{gpu_type}{ending}"))
