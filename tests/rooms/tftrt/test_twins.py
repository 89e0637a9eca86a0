"""Signatures that are one function are walked once, and every command says so."""

import json

import numpy as np
import pytest

from tests import signature_models as models
from tests import stacks
from tests.meta_graphs import converted, meta, stripped
from tftrt_tools.accuracy import truth
from tftrt_tools.accuracy.labels import Labels
from tftrt_tools.base import errors
from tftrt_tools.models.execution.job import native_copy
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.models.savedmodel.job import graph, inspector, twins
from tftrt_tools.models.savedmodel.signatures import Once, label
from tftrt_tools.tftrt.conversion import calibrate_job, convert_job
from tftrt_tools.tftrt.conversion.converting import CalibrateRequest, ConvertRequest, TablesFrom
from tftrt_tools.tftrt.conversion.job import planner
from tftrt_tools.tftrt.conversion.settings import Settings

SAME = {"serve": "serving_default", "serving_default": "serving_default"}
BOTH = "serve, serving_default (the same)"


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A small model by Keras' model.export, not to be changed."""
    return models.twins(tmp_path_factory.mktemp("twins") / "model")


def test_twins_of_keras_export_and_of_tf1_are_found_and_stay_twins(exported, tmp_path):
    for source in (exported, models.twins(tmp_path / "tf1", "tf1")):
        out = converted(source, tmp_path / f"{source.name}-out")
        built = stripped(out, tmp_path / f"{source.name}-built")
        assert [twins.find(meta(one)) for one in (source, out, built)] == [SAME] * 3
        for one in (out, built):
            # One set of engines for both names.
            seen = inspector.signature_graphs(meta(one))
            assert [one.engines for one in seen] == [seen[0].engines] * 2 and len(
                graph.engine_ops(meta(one).graph_def)
            ) == 1
        native_copy.write(built, tmp_path / f"{source.name}-native")
        for name in SAME:
            feed = {next(iter(meta(source).signature_def[name].inputs)): models.rows()}
            answers = [
                models.answers_of_session(one, feed, name) for one in (source, tmp_path / f"{source.name}-native")
            ]
            for output, expected in answers[0].items():
                np.testing.assert_allclose(answers[1][output], expected, rtol=1e-5)


def test_functions_of_one_form_that_compute_otherwise_are_no_twins(tmp_path):
    source = models.twins(tmp_path / "in", "other")
    assert twins.find(meta(source)) == {}
    seen = inspector.signature_graphs(meta(converted(source, tmp_path / "out")))
    assert len({one.engines for one in seen}) == 2


def test_other_names_or_shapes_are_no_twins(exported):
    for change in (
        lambda one: setattr(one.outputs["output_0"].tensor_shape.dim[1], "size", 5),
        lambda one: one.inputs["more"].CopyFrom(next(iter(one.inputs.values()))),
        lambda one: setattr(one.outputs["output_0"], "name", "serve_x_input:0"),
    ):
        proto = meta(exported)
        change(proto.signature_def["serve"])
        assert twins.find(proto) == {}


def test_a_twin_that_was_not_asked_for_stays_as_it_was(exported, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    request = ConvertRequest(source=str(exported), output=str(out), settings=Settings(signature_keys=("serve",)))
    found = convert_job.job(request).signatures
    assert [(one.name, one.converted, one.twins) for one in found] == [
        ("serve", True, ()),
        ("serving_default", False, ()),
    ]
    assert twins.find(meta(out)) == {}


def test_they_are_planned_and_calibrated_once(exported, tmp_path):
    (planned,) = planner.plan(exported, Settings()).signatures
    assert planned.name == "serving_default" and planned.label == BOTH
    from tftrt_tools.models.inputs.options import DataOptions

    name = next(iter(meta(exported).signature_def["serve"].inputs))
    np.savez(tmp_path / "rows.npz", **{name: models.rows(64)})
    settings = Settings(precision_mode="INT8", signature_keys=())
    source = TablesFrom(options=DataOptions(source=str(tmp_path / "rows.npz")))
    answer = calibrate_job.job(CalibrateRequest(source=str(exported), settings=settings, int8=source))
    assert [one.signature for one in answer.tables] == ["serving_default"] and len(answer.data) == 1


def test_the_commands_say_it_once_and_labels_are_clear(exported, tftrt, tmp_path):
    name = next(iter(meta(exported).signature_def["serve"].inputs))
    np.save(tmp_path / "source.npy", models.rows(32))
    np.save(tmp_path / "labels.npy", np.zeros(32, np.int64))
    out, rows = tmp_path / "out", tmp_path / "rows.npz"
    done = tftrt("convert", f"--model={exported}", f"--output={out}")
    assert done.returncode == 0 and BOTH in done.stdout, done.stderr
    manifest = passport.read(out, passport.MANIFEST)
    assert [one["twins"] for one in manifest["signatures"]] == [["serve"]] and manifest["engine_count"] == 1
    assert passport.signatures(manifest).keys() == {"serve", "serving_default"}
    inspected = tftrt("inspect", "--check", out)
    # Keras 3 gives the input a long name of its own, and the cell breaks.
    label = BOTH.removesuffix(" same)") if stacks.SAVED_INPUT else BOTH
    assert inspected.returncode == 0 and label in inspected.stdout, inspected.stdout
    exporting = tftrt("data", exported, tmp_path / "source.npy", f"--output={rows}")
    assert exporting.returncode == 0, exporting.stderr
    assert list(np.load(rows)) == [name]
    # The command that `tftrt data` proposes.
    verified = tftrt(
        "verify",
        exported,
        out,
        f"--data={rows}",
        f"--labels={tmp_path / 'labels.npy'}",
        "--json=-",
        "--nowrite",
        "--allow_constant_outputs",
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr
    said = json.loads(verified.stdout)
    assert [one["signature"] for one in said["comparisons"]] == ["serving_default"] and said["twins"] == {
        "serving_default": ["serve"]
    }
    assert said["accuracy"]["output"] == "serving_default/output_0"
    named = tftrt(
        "verify",
        exported,
        out,
        f"--data={rows}",
        f"--labels={tmp_path / 'labels.npy'}",
        "--label_output=serve/output_0",
        "--thresholds=serve/output_0:max_abs<=1",
        f"--shapes=serve/{name}:2x8",
        "--nowrite",
        "--allow_constant_outputs",
    )
    assert named.returncode == 0 and BOTH in named.stdout, named.stdout + named.stderr


def test_outputs_that_may_be_the_classes_are_named_as_flags_to_copy():
    answer = {"probs": np.eye(4, dtype=np.float32), "the logits": np.eye(4, dtype=np.float32)}
    with pytest.raises(errors.UsageError) as caught:
        truth.find(Labels({"": np.arange(4)}), {"serve": answer}, {}, (), "", "--label_output")
    assert caught.value.mend == "name it: --label_output=serve/probs or '--label_output=serve/the logits'"


def test_the_walk():
    walked = Once.of(["serve", "serving_default", "embed"], SAME)
    assert walked.twins == {"serving_default": ("serve",), "embed": ()} and walked.names == ["serving_default", "embed"]
    assert walked.leader("serve") == "serving_default" and walked.leader("none") == "none"
    assert walked.renamed({"serve/x": 1, "serving_default/x": 2, "embed/y": 3, "z": 4, "": 5}) == {
        "serving_default/x": 2,
        "embed/y": 3,
        "z": 4,
        "": 5,
    }
    assert walked.merged({"serve": [{"x": (1,)}], "serving_default": [{"x": (1,)}, {"x": (2,)}]}) == {
        "serving_default": [{"x": (1,)}, {"x": (2,)}]
    }
    assert walked.with_twins({"serving_default": 1, "embed": 2}) == {"serving_default": 1, "serve": 1, "embed": 2}
    # What is one function in the original, and two in the other model, is walked twice.
    assert Once.of(["serve", "serving_default"], SAME, {}).names == ["serve", "serving_default"]
    assert label("serving_default", ("serve",)) == BOTH and label("serving_default") == "serving_default"
