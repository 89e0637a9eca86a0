"""A detector with engines: what it finds is what its original finds, by the bounds of detections."""

import json

import numpy as np
import pytest

from tests.detectors import SIZE, detector


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["FP32", "FP16"])
def test_a_detectors_engines_find_what_it_finds(tftrt, tmp_path, precision):
    detector(tmp_path / "model", bias=0.5)
    rows = np.random.default_rng(2).uniform(0, 1, (32, SIZE, SIZE, 3)).astype(np.float32)
    np.savez(tmp_path / "rows.npz", image=rows)
    done = tftrt(
        "convert",
        f"--model={tmp_path / 'model'}",
        f"--output={tmp_path / 'out'}",
        f"--precision={precision}",
        f"--shapes=image:8x{SIZE}x{SIZE}x3",
        "--minimum_segment_size=2",
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    done = tftrt("verify", tmp_path / "model", tmp_path / "out", f"--data={tmp_path / 'rows.npz'}", "--json=-")
    said = json.loads(done.stdout)
    (together,) = (one for one in said["comparisons"] if one["kind"] == "detections")
    assert done.returncode == 0 and said["mode"] == "gpu", said["problems"]
    assert together["elements"] > 50 and together["matched"] >= 0.95 and together["matched_iou"] >= 0.95
