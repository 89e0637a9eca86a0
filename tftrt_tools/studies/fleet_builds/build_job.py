"""On the machine that has the GPU: what `tftrt build` does, of a model that has travelled."""

from tftrt_tools.base import errors
from tftrt_tools.fleet.task import Given
from tftrt_tools.models.backends.protocol import Changes, Work
from tftrt_tools.models.engine_cache.store import Place
from tftrt_tools.models.sources.source import Source
from tftrt_tools.studies import backends
from tftrt_tools.studies.fleet_builds.building import Asked, Built


def job(given: Given) -> Built:
    """Build. Raises: UsageError, TftrtError, CheckFailed."""
    asked = Asked.from_dict(given.request)
    backend = backends.named(asked.backend)
    options = {name: tuple(one) if isinstance(one, list) else one for name, one in asked.options.items()}
    changes = Changes(shapes=asked.shapes, max_workspace_size_bytes=asked.max_workspace_size_bytes, options=options)
    # In the folder that this machine has for it.
    cache = None if asked.cache_max_bytes is None else Place(folder=None, max_bytes=asked.cache_max_bytes).to_dict()
    work = Work(
        source=Source(path=given.content),
        output=given.output,
        settings=backend.settings(),
        build_minutes=asked.build_minutes,
        cache=cache,
    )
    done = backend.rebuild(given.content, changes, work)
    if not done.output:
        raise errors.TftrtError(f"{backend.name} wrote nothing", "build it without --on")
    # Its last line, and its paths, speak of a folder that goes.
    made = {name: value for name, value in done.to_dict().items() if name not in ("model", "output")}
    return Built(complete=done.complete, text=tuple(done.text())[:-1], made=made)
