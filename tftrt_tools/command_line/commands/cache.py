"""usage: tftrt cache list|clear|remove ID…|dir [--flags]

Shows and clears the engine cache. The cache keeps the engines and plans that were built here, under everything that they depend on
(segment or ONNX file, shapes, precision, GPU, versions, …). A second build of the same engine only copies it. The cache needs no care: it
has a maximum size, drops the entries that were not used for the longest time, and rebuilds a damaged entry.

  list       show the entries, the most recently used first
  remove ID  remove entries; an ID is the beginning of a name that `list` shows
  clear      remove all entries, or with --engine_cache_max_bytes only until the rest has that size
  dir        print the folder

An entry that another process is building stays.

examples:
  tftrt cache list
  tftrt cache remove 3f9a01c2
  tftrt cache clear --engine_cache_max_bytes=2GiB
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

from absl import flags

from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import _engine_cache, _output

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from tftrt_tools.models.engine_cache.entry import Entry
    from tftrt_tools.models.engine_cache.key import EngineKey
    from tftrt_tools.models.engine_cache.listing import Listing
    from tftrt_tools.models.engine_cache.plan_key import PlanKey
    from tftrt_tools.models.engine_cache.store import Store

_USAGE = "usage: tftrt cache list|clear|remove ID…|dir [--flags]"
_ID_CHARACTERS = 12
_LEAST_CHARACTERS = 4
_SHOWN_CALLS = 3


def define(values: flags.FlagValues) -> None:
    """Define the command's flags on FlagValues `values`."""
    _engine_cache.define(values)


def run(values: flags.FlagValues, positional: list[str]) -> int:
    """List, remove, clear. Returns: the exit code."""
    action, ids = (positional[0], positional[1:]) if positional else ("", [])
    if action not in ("list", "clear", "remove", "dir") or (action == "remove") != bool(ids):
        raise errors.UsageError(_USAGE, "`tftrt cache --help` explains them")
    store = _engine_cache.store(values)
    if store.folder is None:
        raise errors.TftrtError(store.problem, "choose another --engine_cache_dir, or fix that folder")
    from tftrt_tools.models.engine_cache import timings
    from tftrt_tools.models.engine_cache.listing import Listing

    removed: Sequence[str] = ()
    kept, forgotten = "", 0
    if action == "remove":
        removed, kept = _remove(store, ids)
    elif action == "clear":
        sized = values["engine_cache_max_bytes"].present
        removed, forgotten = (store.evict(), 0) if sized else (store.clear(), timings.clear(store.folder))
    listing = Listing.of(store, removed)
    _print(action, listing, values.json, forgotten)
    _output.write_json(listing, values.json)
    if kept or listing.problem:
        raise errors.TftrtError(
            kept or listing.problem, "run the command again when that is over" if kept else "fix that folder"
        )
    return errors.EXIT_DONE


def _remove(store: Store, ids: Iterable[str]) -> tuple[list[str], str]:
    """Returns: (names that were removed, why one was not)."""
    names = [_name(wanted, [entry.name for entry in store.entries()]) for wanted in ids]
    removed, kept = [], ""
    for name in dict.fromkeys(names):
        reason = store.remove(name)
        if reason:
            kept = kept or f"the entry {name[:_ID_CHARACTERS]} was not removed: {reason}"
        else:
            removed.append(name)
    return removed, kept


def _name(wanted: str, names: Sequence[str]) -> str:
    found = [name for name in names if name.startswith(wanted.lower())] if len(wanted) >= _LEAST_CHARACTERS else []
    if len(found) != 1:
        what = "several entries have" if found else "no entry has"
        raise errors.UsageError(
            f"{what} the ID {wanted!r}", f"`tftrt cache list` shows them; give {_LEAST_CHARACTERS} characters or more"
        )
    return found[0]


def _print(action: str, listing: Listing, json_path: str | None, forgotten: int) -> None:
    from tftrt_tools.models.savedmodel.inspection import bytes_text

    console = _output.console(json_path)

    def say(text: str) -> None:
        console.print(text, soft_wrap=True)

    if action == "dir":
        say(listing.folder)
        return
    if action != "list":
        say(
            f"removed: {_counted(listing.removed)}"
            + (f", and {bytes_text(forgotten)} of TensorRT's timings of kernels" if forgotten else "")
        )
    elif listing.entries:
        columns = ["ID", "built for", "precision", "shapes", "GPU", "TensorRT", ">bytes", "last used, UTC"]
        console.print(_output.table(None, columns, [_row(entry, bytes_text) for entry in listing.entries]))
    say(
        f"{_counted(listing.entries)}, {bytes_text(listing.bytes)} of {bytes_text(listing.max_bytes)}, in {listing.folder}"
    )


def _counted(entries: Collection[object]) -> str:
    return f"{len(entries)} entry" if len(entries) == 1 else f"{len(entries)} entries"


def _row(entry: Entry, bytes_text: Callable[[int], str]) -> tuple[str, ...]:
    from tftrt_tools.models.engine_cache.plan_key import PlanKey

    used = datetime.datetime.fromtimestamp(entry.last_used, datetime.timezone.utc).strftime("%Y-%m-%d %H:%M")
    name, size = entry.name[:_ID_CHARACTERS], bytes_text(entry.bytes)
    if entry.record is None:
        return name, f"cannot be used: {entry.problem}", "", "", "", "", size, used
    key = entry.record.key
    what, digest, texts = (
        ("plan of ", key.onnx, _profiles(key)) if isinstance(key, PlanKey) else ("", key.segment_digest, _calls(key))
    )
    origin = what + (entry.record.origin or digest.removeprefix("sha256:")[:_ID_CHARACTERS])
    return name, origin, key.precision, _few(texts), key.gpu, key.tensorrt, size, used


def _calls(key: EngineKey) -> list[str]:
    """Such as "8x8x8x1" for each call; the inputs of one are joined by "+"."""
    return ["+".join("x".join(map(str, fed.shape)) or "scalar" for fed in call) for call in key.calls]


def _profiles(key: PlanKey) -> list[str]:
    """The same for each profile; a range is "1x8x8x1 to 8x8x8x1"."""
    from tftrt_tools.models.kinds.plan.profiles import Range

    return ["+".join(Range(*held).text() for held in one.values()) for one in key.profiles]


def _few(texts: Sequence[str]) -> str:
    """Such as "1x8x8x1, 8x8x8x1, and 3 more"."""
    more = f", and {len(texts) - _SHOWN_CALLS} more" if len(texts) > _SHOWN_CALLS else ""
    return ", ".join(texts[:_SHOWN_CALLS]) + more
