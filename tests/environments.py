"""Installations that can be broken: other site-packages made of links, and libraries made by a C compiler."""

import pathlib
import shutil
import subprocess
import sys
import sysconfig

import pytest

SITE = pathlib.Path(sysconfig.get_paths()["purelib"])


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A function: a virtual environment with this one's packages but those named, and its site-packages."""

    def make(*without):
        root = tmp_path_factory.mktemp("environment")
        subprocess.run(
            [getattr(sys, "_base_executable", sys.executable), "-m", "venv", "--without-pip", root], check=True
        )
        site = next(root.glob("lib/python*/site-packages"))
        for entry in SITE.iterdir():
            name = entry.name
            if any(
                name == package or name.startswith(f"{package}-") and name.endswith(".dist-info") for package in without
            ):
                continue
            if name == "tensorflow":
                mirror(entry, site / name)
            else:
                (site / name).symlink_to(entry)
        return str(root / "bin" / "python"), site

    return make


def mirror(source, target):
    """Real directories of links: `$ORIGIN/..` in a RUNPATH follows a linked directory to where it really is."""
    target.mkdir()
    for entry in source.iterdir():
        if entry.is_dir() and entry.name not in ("include", "__pycache__"):
            mirror(entry, target / entry.name)
        else:
            (target / entry.name).symlink_to(entry)


@pytest.fixture(scope="module")
def stub(tmp_path_factory):
    """A function that compiles a shared library and returns its directory."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")

    def build(name, source, folder=None, version_of_symbols=None):
        folder = folder or tmp_path_factory.mktemp("stub")
        options = [f"-Wl,-soname,{name}"]
        if version_of_symbols:
            script = folder / "symbols.map"
            script.write_text(f"{version_of_symbols} {{ global: *; }};")
            options.append(f"-Wl,--version-script={script}")
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-w", *options, "-o", folder / name, "-xc", "-"],
            input=source.encode(),
            check=True,
        )
        return folder

    return build
