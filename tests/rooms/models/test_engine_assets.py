"""Engine files: what they hold, and what a serialized engine says of itself."""

import pytest

from tests.engine_files import HEAD, HEAD_8_6, HEADS, engine_file
from tftrt_tools.models.savedmodel import engine_assets
from tftrt_tools.models.savedmodel.inspection import EngineFile, Inspection
from tftrt_tools.models.savedmodel.job import findings


def changed(offset, value):
    return HEAD[:offset] + bytes([value]) + HEAD[offset + 1 :]


def origin(tmp_path, head):
    path = engine_file(tmp_path / (engine_assets.PREFIX + "engine"), (1, 8), engine=head + b"e" * 100)
    (asset,) = engine_assets.read_file(path)
    assert asset.input_shapes == ((1, 8),) and asset.bytes == len(head) + 100
    return asset.tensorrt, asset.compute_capability


@pytest.mark.parametrize("head", HEADS)
def test_an_engine_names_its_tensorrt_and_its_compute_capability(head, tmp_path):
    assert origin(tmp_path, head) == ("8.5.3.1", "9.0")


def test_an_engine_of_another_tensorrt_names_it_as_well(tmp_path):
    assert origin(tmp_path, HEAD_8_6) == ("8.6.0.12", "9.0")
    # Such bytes in front of the version of 8.5, as no TensorRT writes them: a form that nobody has seen.
    assert origin(tmp_path, HEAD_8_6[:50] + HEAD) == (None, None)


@pytest.mark.parametrize(
    ("offset", "value", "says"), [(33, 4, ("8.4.3.1", "9.0")), (56, 7, ("8.5.3.1", "7.0")), (64, 5, ("8.5.3.1", "9.5"))]
)
def test_of_another_release_or_gpu_it_names_that(offset, value, says, tmp_path):
    assert origin(tmp_path, changed(offset, value)) == says


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"ptrt",
        b"e" * 100,
        changed(0, 0),
        changed(24, 3),
        changed(44, 0),
        changed(52, 0),
        changed(56, 99),
        HEAD[:60],
    ],
)
def test_a_head_of_another_form_says_nothing(head, tmp_path):
    assert origin(tmp_path, head) == (None, None)


@pytest.mark.parametrize(
    ("tensorrt", "capabilities", "words"),
    [
        ("8.5.3", ["9.0"], None),
        ("8.5.3.1", ["8.0", "9.0"], None),
        ("8.6.1", ["9.0"], "TensorRT 8.5.3.1; here is 8.6.1"),
        ("8.5.3", ["8.6"], "compute capability 9.0"),
        (None, [], None),
    ],
)
def test_foreign_engines_are_found_without_a_manifest(tensorrt, capabilities, words, tmp_path):
    path = engine_file(tmp_path / (engine_assets.PREFIX + "engine"), (1, 8), engine=HEAD + b"e" * 100)
    file = EngineFile("engine", tuple(engine_assets.read_file(path)), path.stat().st_size, "")
    seen = Inspection(
        model=str(tmp_path),
        tags=("serve",),
        tensorflow="2.14.1",
        graph_bytes=0,
        signatures=(),
        engines=(),
        ambiguous=(),
        engine_files=(file,),
        loads={},
        manifest=None,
        verification=None,
    )
    found = [one.text for one in findings.find(seen, tensorrt, capabilities) if one.about == "engine files"]
    assert (words is None and not found) or any(words in text for text in found)
