"""The images of each version, built once for the tests of this folder and removed after them."""

import dataclasses
import json
import os
import pathlib
import re
import shutil

import pytest
import yaml

from tests.conftest import ROOT
from tests.images import bases, build, podman

_LINES = pytest.StashKey[list]()


def pytest_configure(config):
    config.stash[_LINES] = []


def pytest_terminal_summary(terminalreporter, config):
    for line in config.stash[_LINES]:
        terminalreporter.write_line(line)


@pytest.fixture(scope="session", params=list(build.VERSIONS))
def built(request, pytestconfig):
    """build.Built of a version. TFTRT_IMAGES names a folder that keeps them."""
    tensorflow, kept = request.param, os.environ.get("TFTRT_IMAGES")
    folder = pathlib.Path(kept or ROOT / "build/images")
    _skip_where_nothing_can_be_built(tensorflow, folder)
    engine = podman.Podman(folder)
    try:
        made = build.build(engine, tensorflow)
        pytestconfig.stash[_LINES] += build.table(made)
        yield made
    finally:
        if not kept:
            engine.remove()


def _skip_where_nothing_can_be_built(tensorflow, folder):
    if podman.missing():
        pytest.skip(podman.missing())
    if not bases.interpreter(build.PYTHONS[tensorflow]):
        pytest.skip(f"no Python {build.PYTHONS[tensorflow]} here for the base")
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free / 1e9
    if not (folder / "root").exists() and free < build.ROOM:
        pytest.skip(f"{folder} has {free:.0f} GB free, and a version's images need {build.ROOM}")


@pytest.fixture(scope="session")
def store(built, zoo_model, tmp_path_factory):
    """The volume of kubernetes/: originals/digits, and what the tests put there. The group owns it, as with fsGroup."""
    folder = tmp_path_factory.mktemp("store")
    shutil.copytree(zoo_model("digits_cnn"), folder / "originals/digits")
    for path in (folder, *folder.rglob("*")):
        os.chown(path, -1, 10001)
        path.chmod(0o2775 if path.is_dir() else 0o664)
    return folder


@dataclasses.dataclass(frozen=True)
class Published:
    """folder: served/ of the volume. said: what the commands printed."""

    folder: pathlib.Path
    said: str


@pytest.fixture(scope="session")
def published(built, store):
    """What the job of kubernetes/3-build.yaml publishes. It builds engines, which takes a GPU: that line converts here instead."""
    job = yaml.safe_load((ROOT / "serving/kubernetes/3-build.yaml").read_text())
    (container,) = job["spec"]["template"]["spec"]["containers"]
    (script,) = container["args"]
    flags = "--model=/models/originals/digits --output=/models/work/digits --precision=FP16"
    script, lines = re.subn("^tftrt build .*$", f"tftrt convert {flags}", script, flags=re.MULTILINE)
    assert lines == 1
    options = [f"--volume={store}:/models", f"--entrypoint={json.dumps(container['command'])}", *built.switch]
    return Published(store / "served", built.podman.run(built.tools, script, options=options).stdout)
