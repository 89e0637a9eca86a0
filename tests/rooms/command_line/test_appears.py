"""Commands at whose output something appears while they run: it stays, and the finished work is kept. The user's function, which gives the
data, makes it appear."""

import numpy as np
import pytest

FUNCTION = """
import pathlib
import numpy as np

def batches():
    for number in range(2):
        yield {{"image": np.full((4, 8, 8, 1), 1 + number, np.float32)}}
    place = pathlib.Path({place!r})
    if {folder}:
        place.mkdir()
        place = place / "notes.txt"
    place.write_text("do not lose")
"""
INT8 = ["--precision=INT8", "--use_dynamic_shape", "--calibration_data=mine:batches"]
CASES = {
    "convert": (["--model={model}", "--output=out", *INT8], "out", True, "saved_model.pb"),
    "calibrate": (
        ["{model}", "--output=out", "--use_dynamic_shape", "--calibration_data=mine:batches"],
        "out",
        False,
        "",
    ),
    "data": (["{model}", "mine:batches", "--output=out.npz"], "out.npz", False, ""),
}


@pytest.mark.parametrize("name", CASES)
def test_what_appears_at_the_output_stays_and_the_work_is_kept(name, tftrt, zoo_model, tmp_path, monkeypatch):
    words, place, folder, holds = CASES[name]
    (tmp_path / "mine.py").write_text(FUNCTION.format(place=str(tmp_path / place), folder=folder))
    done = tftrt(name, *(word.format(model=zoo_model("digits_cnn")) for word in words), cwd=tmp_path)
    assert done.returncode == 2 and "appeared there meanwhile" in done.stderr and "written" not in done.stdout, (
        done.stderr
    )
    assert (tmp_path / place / "notes.txt" if folder else tmp_path / place).read_text() == "do not lose"
    kept = tmp_path / f"{place}.finished"
    assert str(kept) in done.stderr and (kept / holds).is_file()
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_file_that_appears_is_replaced_with_overwrite(tftrt, zoo_model, tmp_path):
    (tmp_path / "mine.py").write_text(FUNCTION.format(place=str(tmp_path / "out.npz"), folder=False))
    done = tftrt("data", zoo_model("digits_cnn"), "mine:batches", "--output=out.npz", "--overwrite", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(np.load(tmp_path / "out.npz")["image"]) == 8
