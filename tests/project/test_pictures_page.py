"""docs/pictures.md, from a folder of photos to a served classifier: all of its commands, with a server."""

import os
import shutil
import subprocess
import sys

import pytest

from saved_models import demo
from tests.conformance import launch
from tests.conftest import ROOT
from tests.pages import blocks
from tests.project.test_readme import Reader
from tftrt_tools.servers.client import Client, ServingError

PAGE, SERVED = "docs/pictures.md", "needs a running server"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_page_leads_from_photos_to_a_served_classifier(zoo_model, tftrt, tmp_path):
    shutil.copytree(zoo_model("digits_cnn"), tmp_path / "digits_cnn")
    demo._held_back(tmp_path)
    reader = Reader(tmp_path)
    for block in blocks(PAGE):
        reader.read(block)
    assert not reader.wrong, "\n".join(reader.wrong)
    assert len(reader.ran) >= 4
    commands = [
        argv for block in blocks(PAGE) if block.text.startswith(f"# {SERVED}\n") for argv, _, _ in block.commands()
    ]
    assert [argv[1] for argv in commands] == ["classify.py", "smoke", "bench"]
    flags = ["--model_name=pictures", f"--model_base_path={tmp_path / 'models/pictures'}"]
    with launch.LocalServer(flags, tmp_path / "log.txt") as server:
        for program, *words in commands:
            words = [word.replace("localhost:8500", f"localhost:{server.port}") for word in words]
            if program == "python":
                done = subprocess.run(
                    [sys.executable, *words],
                    cwd=tmp_path,
                    capture_output=True,
                    text=True,
                    check=False,
                    env={**os.environ, "PYTHONPATH": str(ROOT)},
                )
                assert done.returncode == 0 and "photos/1.jpg" in done.stdout and " seven " in done.stdout, (
                    done.stdout + done.stderr
                )
            else:
                done = tftrt(
                    *words,
                    # What training gives depends on the processor: on some all probabilities are 0 or 1.
                    *(["--allow_constant_outputs"] if words[0] == "smoke" else []),
                    *(["--duration_seconds=0.5", "--warmup_seconds=0.2"] if words[0] == "bench" else []),
                    cwd=tmp_path,
                    env={"CUDA_VISIBLE_DEVICES": "-1"},
                )
                assert done.returncode == 0, done.stdout + done.stderr
        photos = [path.read_bytes() for path in sorted((tmp_path / "photos").iterdir())][:32]
        with Client(f"localhost:{server.port}") as client:
            for broken in (b"", b"no picture", photos[9][:80]):
                with pytest.raises(ServingError, match="image: picture 9 of 32 .counted from 0. cannot be decoded"):
                    client.predict("pictures", {"image": [*photos[:9], broken, *photos[10:]]}, signature="encoded")
            assert client.predict("pictures", {"image": photos}, signature="encoded")["labels"].shape == (32, 5)
