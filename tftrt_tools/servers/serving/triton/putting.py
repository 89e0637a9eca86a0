"""Puts a version and config.pbtxt into a model repository of Triton, both or neither."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tftrt_tools.base import errors
from tftrt_tools.base.files import whole_file
from tftrt_tools.base.wire import triton_config
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.servers.serving import version_directories
from tftrt_tools.servers.serving.publishing import placing
from tftrt_tools.servers.serving.triton import asked, config, growing
from tftrt_tools.servers.serving.triton.backends import Backend

if TYPE_CHECKING:
    from tftrt_tools.base.wire import config_types
    from tftrt_tools.servers.serving.triton.publish import Options, Publication


# How many versions a note names.
_NAMED = 5


def put(
    base: pathlib.Path,
    configured: config_types.TritonConfig,
    backend: Backend,
    options: Options,
    done: Publication,
    fill: Callable[[pathlib.Path], object],
) -> Publication:
    """Make a version and put it in place, with config.pbtxt where there is none, or one that has to be written anew.

    Args: base: the directory of the model in the repository. configured: the config.pbtxt that the version needs. done: what is known of
      the publication before; `seconds` as measured until then. fill: writes the model's files into the folder that becomes the version.
    Returns: `done` with what is known now. Raises: UsageError where a config.pbtxt is there that does not fit, or where Triton would
      serve a version that a new one does not fit; what `fill` raises; TftrtError, OSError. Nothing is published then, and what was
      there is as it was.
    """
    start = time.monotonic()
    path = base / config.FILE
    kept = config.kept(path, configured, backend, options.replace_config)
    if kept is None:
        number = version_directories.following(base) if options.version is None else options.version
        new = [_dropped_note(path, configured), _unfit_note(base, configured, backend, options, number)]
    else:
        new = [_kept_note(path, kept, configured, options)]
    notes = [*done.notes, *new]
    served = configured if kept is None else kept
    done = dataclasses.replace(
        done,
        max_batch_size=served.max_batch_size,
        joined=served.HasField("dynamic_batching"),
        warm_up=len(served.model_warmup),
        config_kept=kept is not None,
    )
    with growing.place(base) as place, placing.staged(place.home, place.workplace) as stage:
        done = dataclasses.replace(done, notes=tuple(filter(None, [*notes, place.note])))
        fill(stage.folder)
        written = _Written(place.home / config.FILE, stage.folder.parent)

        def complete(number: int) -> None:
            nonlocal done
            seconds = done.seconds + time.monotonic() - start
            done = dataclasses.replace(done, version=number, path=str(base / str(number)), seconds=seconds)
            passport.write(stage.folder, passport.PUBLISH, done.to_dict())
            placing.flush_folder(passport.folder(stage.folder))
            placing.flush_folder(passport.folder(stage.folder).parent)
            # Another publisher may have been here since.
            if config.kept(written.path, configured, backend, options.replace_config) is None:
                _unfit_note(base, configured, backend, options, number)
                # The last thing before the version gets its name: Triton reads both at its next look.
                written.write(
                    f"# Written by tftrt publish; it holds for all versions.\n{triton_config.render(configured)}"
                )

        try:
            stage.place(options.version, options.allow_older_version, complete)
        except BaseException:
            written.undo()
            raise
    return done


class _Written:
    """A file that is written, and put back as it was if what belongs to it cannot be placed.

    Args: grows_in: where it is before it is renamed; what appears in the model's directory makes Triton load the served version again.
    """

    def __init__(self, path: pathlib.Path, grows_in: pathlib.Path) -> None:
        self.path, self._grows_in = path, grows_in
        self._before: bytes | None = None
        self._text: str | None = None

    def write(self, text: str) -> None:
        self._before = self.path.read_bytes() if self.path.is_file() else None
        self._text = text
        whole_file.write_text(self.path, text, self._grows_in)

    def undo(self) -> None:
        """Put it back, unless somebody else has written it since."""
        with contextlib.suppress(OSError):
            if self._text is None or self.path.read_text() != self._text:
                return
            if self._before is None:
                self.path.unlink()
            else:
                whole_file.write_bytes(self.path, self._before, self._grows_in)


def _kept_note(
    path: pathlib.Path, kept: config_types.TritonConfig, written: config_types.TritonConfig, options: Options
) -> str:
    """That a config.pbtxt stays, and which of the user's flags it keeps from having an effect."""
    missed = asked.missed(
        kept,
        written,
        options.settings,
        options.max_batch_size,
        options.preferred_batch_sizes,
        options.warmup_shapes if options.warm_up else None,
    )
    if not missed:
        return f"{path} stays as it is: it holds for all versions; --triton_replace_config writes it anew"
    return (
        f"{path} stays as it is: it holds for all versions, and these flags have no effect: {'; '.join(missed)}. Give "
        "--triton_replace_config to write it anew, or edit it"
    )


def _dropped_note(path: pathlib.Path, configured: config_types.TritonConfig) -> str:
    """Which compute capabilities the config.pbtxt that is there names and the new one does not, or ""."""
    dropped = config.dropped(path, configured)
    if not dropped:
        return ""
    listed = ", ".join(f"{capability} ({file})" for capability, file in dropped.items())
    return f"the new {config.FILE} names no file for compute capability {listed}, as the one that was there did"


def _unfit_note(
    base: pathlib.Path, configured: config_types.TritonConfig, backend: Backend, options: Options, number: int
) -> str:
    """The versions that are there and that the config.pbtxt which is written does not fit, or "".

    Args: number: of the new version. Raises: UsageError where Triton would serve such a version. It loads those that it serves all or none
      (model_lifecycle.cc of triton-inference-server/core), so that the new one would not load either.
    """
    there = [one for one in version_directories.listing(base) if one.number != number and _of_triton(one)]
    unfit = {one.number: why for one in there if (why := _unfit(one.path, configured, backend))}
    if not unfit:
        return ""
    count = configured.version_policy.latest.num_versions
    fit = sorted([number, *(one.number for one in there if one.number not in unfit)])[-count:]
    # Without these Triton serves versions that fit alone.
    served = [one for one in sorted(unfit) if one > fit[0] or len(fit) < count]
    which, reasons = _told({one: unfit[one] for one in served or unfit})
    cause = f"{which} not fit the new {config.FILE}: {' and '.join(reasons)} there"
    if not served:
        return f"{cause}; Triton cannot go back to {'it' if len(unfit) == 1 else 'them'}"
    flags = [
        *(["--model_version"] if any(one.number > number for one in there) else []),
        *(["--triton_versions"] if count > 1 else []),
    ]
    raise errors.UsageError(
        f"{cause}, and Triton, which serves the latest {count if count > 1 else 'version'}, loads all that it serves or none",
        f"leave {' and '.join(flags)} out, or remove {_listed(served)}",
    )


def _of_triton(one: version_directories.Version) -> bool:
    """Whether Triton takes it for a version, too: it passes over files and over numbers with a zero before them."""
    return one.path.name == str(one.number) and one.path.is_dir()


def _unfit(version: pathlib.Path, configured: config_types.TritonConfig, backend: Backend) -> list[str]:
    """Why a version does not fit: the files that it lacks, and the kinds that are for other GPUs than the new ones; [] if it does."""
    files = config.files(configured)
    lacking = [
        f"no {name}" for name in sorted(set(files.values())) or [backend.file] if not os.path.exists(version / name)
    ]
    try:
        said = passport.read(version, passport.PUBLISH) or {}
    except (errors.TftrtError, OSError):  # what it was published with is not known
        said = {}
    built = {kind["gpu_type"]: kind["compute_capability"] for kind in said.get("kinds") or ()}
    kinds = {capability: file.split("/")[0] for capability, file in files.items()}
    return lacking + [
        f"{kind} for {built[kind]}" for capability, kind in kinds.items() if built.get(kind, capability) != capability
    ]


def _told(unfit: dict[int, list[str]]) -> tuple[str, list[str]]:
    """("versions 1, 2 do", why) of the newest."""
    newest = sorted(unfit)[-_NAMED:]
    reasons = list(dict.fromkeys(reason for number in newest for reason in unfit[number]))
    return f"{_listed(newest)} {'does' if len(newest) == 1 else 'do'}", reasons


def _listed(versions: list[int]) -> str:
    return f"version{'s' if len(versions) > 1 else ''} {', '.join(map(str, versions))}"
