"""List the benchmarks and run those that this machine can run.

usage: python -m benchmarks [--list] [NAME...]

A benchmark is a module here without a leading underscore. Its docstring says what it measures, NEEDS_GPU whether it needs an
NVIDIA GPU; `python -m benchmarks.NAME --help` lists its own flags.
"""

import argparse
import importlib
import pkgutil
import subprocess
import sys

import benchmarks
from benchmarks import _models, _report


def main(argv=None):
    """Returns: 0 when every benchmark that ran ended well, else 1."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run, by default all")
    parser.add_argument("--list", action="store_true", help="list them and leave")
    options = parser.parse_args(argv)
    modules = {name: importlib.import_module(f"benchmarks.{name}") for name in names()}
    if unknown := sorted(set(options.names) - set(modules)):
        parser.error(f"no benchmark {unknown[0]!r}; there are: {', '.join(modules)}")
    gpu = _report.gpu()
    chosen = {name: modules[name] for name in options.names or modules}
    for name, module in chosen.items():
        reason = skipped(module, gpu)
        print(
            f"{name}: {module.__doc__.splitlines()[0]}"
            + (f" [skipped: {reason}]" if reason and not options.list else ""),
            flush=True,
        )
    if options.list:
        return 0
    failed = [name for name, module in chosen.items() if not skipped(module, gpu) and not _ran(name)]
    if failed:
        print("failed: " + ", ".join(failed))
    return 1 if failed else 0


def names():
    """Names of the benchmarks."""
    return sorted(
        module.name for module in pkgutil.iter_modules(benchmarks.__path__) if not module.name.startswith("_")
    )


def skipped(module, gpu):
    """Why this machine cannot run it, or ""."""
    return "it needs an NVIDIA GPU, and none answers here" if module.NEEDS_GPU and not gpu else ""


def _ran(name):
    print(f"\n== {name}", flush=True)
    return subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], cwd=_models.ROOT, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
