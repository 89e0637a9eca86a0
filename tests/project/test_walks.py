"""The three walks: what a page says is typed by someone who has the page, a model and no GPU, and what it quotes is what was printed."""

import contextlib
import dataclasses
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.real_models import packages
from saved_models import demo
from tests import page_server, text_models
from tests.conftest import ROOT
from tests.pages import WALKS, blocks
from tests.project.test_readme import Reader

PHOTOS, TEXT, SERVER = WALKS
ADDRESS, SERVED, SERVES = "localhost:8500", "needs a running server", "stays until Ctrl-C"
# A server has few requests to answer here.
SHORTER = {"bench": ("--warmup_seconds=1",), "regress": page_server.QUICK}
HIDDEN = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}


class Walker(Reader):
    """Someone who also starts the server that a page starts, and asks it."""

    def __init__(self, folder, servers):
        super().__init__(folder)
        self._servers, self._address = servers, ADDRESS

    def read(self, block):
        if block.text.startswith(f"# {SERVES}\n"):
            ((argv, _, _),) = block.commands()
            self._address = self._servers.enter_context(page_server.started(argv, self.folder))
        super().read(_asked(dataclasses.replace(block, follows=block.follows and _asked(block.follows))))

    def _run(self, page, argv, code, line):
        # Times of a busy machine say nothing.
        argv = [word.replace(ADDRESS, self._address).replace("p99<200ms", "p99<60000ms") for word in argv]
        super()._run(page, [*argv, *(SHORTER.get(argv[1], ()) if self._address != ADDRESS else ())], code, line)


def _asked(block):
    """The block without the mark that keeps others from running it."""
    return dataclasses.replace(block, text=block.text.removeprefix(f"# {SERVED}\n"))


def program(*words, cwd, python=sys.executable):
    done = subprocess.run(
        [python, *words], cwd=cwd, capture_output=True, text=True, check=False, env={**os.environ, **HIDDEN}
    )
    assert done.returncode == 0, done.stdout + done.stderr


@contextlib.contextmanager
def walker(page, folder):
    """Someone who has the files that the page writes down."""
    with contextlib.ExitStack() as servers:
        one = Walker(folder, servers)
        for block in blocks(page):
            if block.language == "python":
                one.read(block)
        yield one
    assert not one.wrong, "\n".join(one.wrong)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_keras_model_and_a_folder_of_photos(tmp_path):
    with walker(PHOTOS, tmp_path) as one:
        program("example.py", cwd=tmp_path)
        for block in blocks(PHOTOS):
            one.read(block)
    commands = [line.split()[1] for line in one.ran]
    assert commands == ["optimize", "inspect", "convert", "verify", "verify", "publish", "smoke"]


def walk_a_text_model(one):
    for block in blocks(TEXT):
        one.read(block)
    commands = [line.split()[1] for line in one.ran]
    assert commands == ["inspect", "convert", "verify", "sensitivity"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_text_model(tmp_path):
    """What stands for a model of Transformers: the next test has one."""
    text_models.build(tmp_path / "text")
    np.savez(tmp_path / "texts.npz", **text_models.rows())
    with walker(TEXT, tmp_path) as one:
        walk_a_text_model(one)


# A model of Transformers with random weights and its tokenizer, as from_pretrained reads them, and texts.
SMALL = """
import pathlib, sys
import numpy as np
import tensorflow as tf
from transformers import DistilBertConfig, DistilBertTokenizerFast, TFDistilBertForSequenceClassification
tf.keras.utils.set_random_seed(0)
words = [f"word{number}" for number in range(995)]
pathlib.Path("vocab.txt").write_text("\\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]) + "\\n")
DistilBertTokenizerFast("vocab.txt").save_pretrained("small")
config = DistilBertConfig(vocab_size=1000, dim=128, n_layers=2, n_heads=4, hidden_dim=512)
model = TFDistilBertForSequenceClassification(config)
model.build()
model.save_pretrained("small")
rng = np.random.default_rng(0)
texts = [" ".join(rng.choice(words, rng.integers(8, 80))) for _ in range(64)]
pathlib.Path("texts.txt").write_text("\\n".join(texts) + "\\n")
"""


@pytest.mark.corpus
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_text_model_of_transformers(tmp_path):
    """The page's own export, of a small model: trained weights are not downloaded."""
    environments = ROOT / "build" / "real_models" / "models"
    environments.mkdir(parents=True, exist_ok=True)
    python = packages.python("transformers", environments)
    with walker(TEXT, tmp_path) as one:
        program("-c", SMALL, cwd=tmp_path, python=python)
        program("export_text.py", "small", "texts.txt", cwd=tmp_path, python=python)
        walk_a_text_model(one)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_running_server(zoo_model, tmp_path):
    for name in ("digits_cnn", "lstm_tagger"):
        shutil.copytree(zoo_model(name), tmp_path / name)
    demo._held_back(tmp_path)
    here = blocks(SERVER)
    (serves,) = (number for number, block in enumerate(here) if block.text.startswith(f"# {SERVES}\n"))
    with walker(SERVER, tmp_path) as one:
        # Who reads the page has a server that runs.
        for block in (*here[serves - 1 : serves + 1], *here[: serves - 1], *here[serves + 1 :]):
            one.read(block)
    commands = [line.split()[1] for line in one.ran]
    assert commands == [
        *("publish", "configure"),
        *("inspect", "bench"),
        *("convert", "verify", "publish"),
        *("promote", "smoke", "regress"),
        *("promote", "rollback"),
        *("inspect", "convert"),
    ]
