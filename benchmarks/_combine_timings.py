"""Put TensorRT's timing caches of several engine caches into one: python -m benchmarks._combine_timings TARGET SOURCE… (GPU).

Each is the folder of an engine cache. The last line of the output is JSON: {"bytes": of each source, "together": of the target}.
"""

import dataclasses
import json
import pathlib
import sys

from tftrt_tools.models.engine_cache import timings


@dataclasses.dataclass(frozen=True)
class At(timings.Timings):
    """The timing cache under a name that is known already."""

    name: str = ""

    @property
    def path(self):
        return self.folder / timings.FOLDER / self.name


def main(target, *sources):
    found = [kept(pathlib.Path(source)) for source in sources]
    names = {one.name for one in found}
    if len(names) > 1:
        raise SystemExit("the caches are of different conditions: they belong to one GPU and one set of versions")
    contents = [one.read() for one in found]
    content = combined(contents)
    if not At(pathlib.Path(target), {}, name=names.pop()).write(content):
        raise SystemExit(f"{target} cannot be written")
    print(json.dumps({"bytes": list(map(len, contents)), "together": len(content)}))


def kept(folder):
    """The timing cache of an engine cache."""
    names = [path.name for path in (folder / timings.FOLDER).glob("*") if path.suffix != ".trial"]
    if len(names) != 1:
        raise SystemExit(f"{folder} holds {len(names)} timing caches, not one: is TFTRT_TIMING_CACHE=0 set?")
    return At(folder, {}, name=names[0])


def combined(contents):
    """One serialized cache of several. Of times that two have, TensorRT keeps the first."""
    import tensorrt as trt

    # Both must live as long as the caches: TensorRT 8.5 ends the process otherwise.
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    config = builder.create_builder_config()
    whole = config.create_timing_cache(b"")
    for content in contents:
        if not whole.combine(config.create_timing_cache(content), False):
            raise SystemExit("TensorRT does not combine these timing caches")
    content = bytes(whole.serialize())
    del whole, config, builder, logger
    return content


if __name__ == "__main__":
    main(*sys.argv[1:])
