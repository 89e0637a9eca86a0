"""Puts a version and config.pbtxt into a model repository of Triton, both or neither."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

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
    Returns: `done` with what is known now. Raises: UsageError where a config.pbtxt is there that does not fit; what `fill` raises;
      TftrtError, OSError. Nothing is published then, and what was there is as it was.
    """
    start = time.monotonic()
    path = base / config.FILE
    kept = config.kept(path, configured, options.replace_config)
    notes = [
        *done.notes,
        _unfit_note(base, configured, backend) if kept is None else _kept_note(path, kept, configured, options),
    ]
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
            if config.kept(written.path, configured, options.replace_config) is None:
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


def _unfit_note(base: pathlib.Path, configured: config_types.TritonConfig, backend: Backend) -> str:
    """The versions that are there and have other files than the config.pbtxt that is written names, or ""."""
    names = sorted({entry.value for entry in configured.cc_model_filenames}) or [backend.file]
    lacking = {
        one.number: lost
        for one in version_directories.listing(base)
        if (lost := [name for name in names if not os.path.exists(one.path / name)])
    }
    if not lacking:
        return ""
    newest = sorted(lacking)[-_NAMED:]
    lost = list(dict.fromkeys(name for number in newest for name in lacking[number]))
    which = f"version {newest[0]} does" if len(lacking) == 1 else f"versions {', '.join(map(str, newest))} do"
    return (
        f"{which} not fit the new {config.FILE}: no {' and no '.join(lost)} there; Triton cannot go back to "
        f"{'it' if len(lacking) == 1 else 'them'}"
    )
