"""docs/pictures.md, from a folder of photos to a served classifier."""

import shutil

import pytest

from saved_models import demo
from tests.pages import blocks
from tests.test_readme import Reader

PAGE = "docs/pictures.md"


@pytest.mark.timeout(600)
def test_the_page_does_what_it_says(zoo_model, tmp_path):
    shutil.copytree(zoo_model("digits_cnn"), tmp_path / "digits_cnn")
    demo._held_back(tmp_path)
    reader = Reader(tmp_path)
    for block in blocks(PAGE):
        reader.read(block)
    assert not reader.wrong, "\n".join(reader.wrong)
    assert len(reader.ran) >= 3
