"""Build sample SavedModels.

usage: python -m saved_models --list
       python -m saved_models NAME... --output=DIR     (NAME `all` builds every model)

Each model goes to DIR/NAME. One that is there already is left alone.
"""

import argparse
import os
import pathlib
import shutil
import sys
import time

import saved_models


def main(argv=None):
    """Returns: 0 done, 2 wrong usage."""
    parser = argparse.ArgumentParser(prog="python -m saved_models", description="Build sample SavedModels.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="models to build, or `all`")
    parser.add_argument("--list", action="store_true", help="list the models and leave")
    parser.add_argument("--output", metavar="DIR", type=pathlib.Path, help="folder that receives one folder a model")
    options = parser.parse_args(argv)
    if options.list:
        width = max(map(len, saved_models.NAMES))
        for name in saved_models.NAMES:
            print(f"{name:<{width}}  {saved_models.description(name)}")
        return 0
    unknown = sorted(set(options.names) - {*saved_models.NAMES, "all"})
    if unknown:
        parser.error(f"no model {unknown[0]!r}; there are: {', '.join(saved_models.NAMES)}")
    if not options.names or not options.output:
        parser.error("name the models (or `all`) and a folder with --output=DIR, or ask for --list")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    for name in saved_models.NAMES if "all" in options.names else dict.fromkeys(options.names):
        _build_into(options.output, name)
    return 0


def _build_into(folder, name):
    target = folder / name
    if target.exists():
        print(f"{target}: is there already, left alone")
        return
    # Built beside its place and renamed: an interrupted build must not look like a model next time.
    partial = folder / f".{name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    saved_models.build(name, partial)
    partial.rename(target)
    print(f"{target}: built in {time.monotonic() - start:.1f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
