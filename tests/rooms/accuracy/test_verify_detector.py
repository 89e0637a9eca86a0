"""`tftrt verify` of a detector with combined_non_max_suppression: as detections, and against boxes that the user says are right."""

import json

import numpy as np
import pytest

from tests.command_line import assert_clear
from tests.detectors import SIZE, detector


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Folder of a detector, `other` of slightly other weights, rows.npz, and truth.npz: what the detector finds in them."""
    import tensorflow as tf

    folder = tmp_path_factory.mktemp("pair")
    detector(folder / "original")
    detector(folder / "other", noise=0.2)
    rows = np.random.default_rng(5).uniform(0, 1, (12, SIZE, SIZE, 3)).astype(np.float32)
    np.savez(folder / "rows.npz", image=rows)
    found = tf.saved_model.load(str(folder / "original")).signatures["serving_default"](image=tf.constant(rows))
    classes = found["classes"].numpy().astype(int)
    classes[np.arange(classes.shape[1]) >= found["num_detections"].numpy()[:, None]] = -1
    np.savez(folder / "truth.npz", boxes=found["boxes"].numpy(), classes=classes)
    assert (classes >= 0).sum() > 20
    return folder


def verified(tftrt, pair, other, *flags):
    done = tftrt("verify", pair / "original", pair / other, f"--data={pair / 'rows.npz'}", "--nowrite", *flags)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def test_a_detector_is_judged_by_what_it_finds(tftrt, pair, tmp_path):
    flags = (f"--labels={pair / 'truth.npz'}", f"--html={tmp_path / 'r.html'}", f"--json={tmp_path / 'r.json'}")
    done = verified(tftrt, pair, "original", *flags, "--thresholds=labels:map>=0.9")
    assert (
        done.returncode == 0
        and "map on 12 labels (serving_default/boxes+scores+classes): original 1.0000, converted 1.0000" in done.stdout
    )
    said = json.loads((tmp_path / "r.json").read_text())
    together = next(one for one in said["comparisons"] if one["kind"] == "detections")
    assert together["matched"] == together["map"] == 1.0 and together["elements"] > 20 and together["max_abs"] is None
    assert said["accuracy"]["kind"] == "boxes" and said["accuracy"]["metrics"]["map50"] == {
        "original": 1.0,
        "converted": 1.0,
    }
    page = (tmp_path / "r.html").read_text()
    assert (
        "mAP" in page
        and "matched &gt;= 0.99" in page
        and page.count("see detections") == 4 == done.stdout.count("see detections")
    )


def test_another_detector_fails_by_what_it_finds_and_by_the_labels(tftrt, pair, tmp_path):
    done = verified(
        tftrt,
        pair,
        "other",
        f"--labels={pair / 'truth.npz'}",
        "--thresholds=labels:map>=0.99",
        f"--json={tmp_path / 'r.json'}",
    )
    assert (
        done.returncode == 3
        and "serving_default/boxes+scores+classes: matched" in done.stdout
        and "labels: map is" in done.stdout
    ), done.stdout
    said = json.loads((tmp_path / "r.json").read_text())["accuracy"]
    assert said["original"] == 1.0 and 0 < said["converted"] < 0.99


def test_wrong_kinds_and_labels_are_one_clear_line(tftrt, pair):
    for flag, words in (
        ("--output_kind=scores:ids;boxs:boxes", "no output 'boxs'"),
        ("--output_kind=scores:mask", "'mask' is no kind"),
        ("--thresholds=labels:map>=0.5", "give --labels"),
        (f"--labels={pair / 'rows.npz'}", "fits no output"),
    ):
        assert_clear(verified(tftrt, pair, "original", flag), 2, words)
