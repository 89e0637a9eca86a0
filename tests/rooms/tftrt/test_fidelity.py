"""Everything of a signature and of a MetaGraph comes out of `convert` and of `build` as it went in; what does not is named."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tests import signature_models as models
from tests import stacks
from tests.meta_graphs import converted, meta, stripped
from tftrt_tools.base import errors
from tftrt_tools.models.execution.job import native_copy
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.models.savedmodel.job import detach, fidelity, inline, loading, protos, rounding
from tftrt_tools.tftrt.calibration.job import collect, rounded
from tftrt_tools.tftrt.conversion import inspect_job
from tftrt_tools.tftrt.conversion.inspecting import InspectRequest
from tftrt_tools.tftrt.conversion.job import engine_inputs, graph_pass
from tftrt_tools.tftrt.conversion.settings import Settings

ODD_NAMES = ("img-input", "2d", "input.1", "input/2", "class")


@pytest.fixture
def kept(tmp_path):
    """A function (source, **settings) -> [its MetaGraphDef, that of the converted model, that of the converted model built again]."""

    def get(source, **settings):
        out = converted(source, tmp_path / "out", **settings)
        return [meta(one) for one in (source, out, stripped(out, tmp_path / "built"))]

    return get


def answers(path, feed, folder):
    """[answers in a session, answers through tf.saved_model.load] of a model, without TensorRT."""
    copy = folder / (path.name + "-native")
    native_copy.write(path, copy) or shutil.copytree(path, copy, dirs_exist_ok=True)
    loaded = loading.load(copy)
    feed_tensors = {name: tf.constant(value) for name, value in feed.items()}
    return [
        models.answers_of_session(copy, feed),
        loading.answers(loaded.root.signatures["serving_default"], feed_tensors),
    ]


def assert_same_answers(source, names, tmp_path):
    feed = {name: models.rows(seed=number) for number, name in enumerate(names)}
    expected = models.answers_of_session(source, feed)
    for one in (tmp_path / "out", tmp_path / "built"):
        for answer in answers(one, feed, tmp_path):
            np.testing.assert_allclose(answer["scores"], expected["scores"], rtol=1e-5)
            np.testing.assert_array_equal(answer["the class/0"], expected["the class/0"])


# Two names whose order is another once TensorFlow has made Python's names of them; and others that are none.
NAMES = {
    "alias": {"features": "in"},
    "exchanged": {"zeta": "a_in", "alpha": "b_in"},
    "order": {"a_a": "x", "a-b": "y"},
    "odd": {name: f"in{number}" for number, name in enumerate(ODD_NAMES)},
    "impossible in TF2": {"x:0": "x", "a b": "y", "_under": "z", "größe": "g"},
    "one name to TF2": {"input.1": "x", "input/1": "y"},
}


@pytest.mark.parametrize("case", NAMES)
def test_a_tf1_export_keeps_its_names_and_each_input_its_tensor(case, kept, tmp_path):
    source = models.tf1(tmp_path / "in", NAMES[case])
    for one in kept(source):
        assert set(one.signature_def["serving_default"].inputs) == set(NAMES[case])
        assert set(one.signature_def["serving_default"].outputs) == {"scores", "the class/0"}
    assert_same_answers(source, NAMES[case], tmp_path)


@pytest.mark.parametrize("names", [("zeta", "alpha"), ("a_a", "a-b"), (*ODD_NAMES[:-1], stacks.KEYWORD)])
def test_a_tf2_export_keeps_its_names_and_each_input_its_tensor(names, kept, tmp_path):
    source = models.tf2(tmp_path / "in", names)
    for one in kept(source):
        assert set(one.signature_def["serving_default"].inputs) == set(names)
    assert_same_answers(source, names, tmp_path)


@pytest.mark.parametrize(
    "make, names", [(models.tf1, {"a_a": "x", "a-b": "y", "2d": "z"}), (models.tf2, ("a_a", "a-b", "2d"))]
)
def test_what_calls_a_frozen_signature_pairs_names_with_tensors(make, names, tmp_path):
    """Calibration, the shapes of engines and the simulation call it with tensors in an order."""
    model = loading.load(make(tmp_path / "in", names))
    function = model.root.signatures["serving_default"]
    assert {spec.name for spec in loading.input_specs(function)} == set(names)
    settings = Settings(minimum_segment_size=1, use_dynamic_shape=True)
    frozen = graph_pass.freeze("serving_default", function)
    graph_def = graph_pass.run(frozen, settings).graph_def
    feed = {name: models.rows(number + 1) * 10**number for number, name in enumerate(names)}
    placeholders = dict(zip(frozen.input_names, frozen.inputs, strict=True))
    inlined, _ = inline.inline_segments(graph_def)
    found = collect.collect(
        frozen, inlined, list(placeholders.values()), [{name: one[:1] for name, one in feed.items()}]
    )
    for name, one in feed.items():
        assert found[placeholders[name]].absmax == pytest.approx(np.abs(one[:1]).max())
    shapes = engine_inputs.of_calls(
        frozen, graph_def, loading.input_specs(function), [{name: (2, models.WIDTH) for name in names}]
    ).feeds
    assert all(fed.shape[0] == 2 for calls in shapes.values() for call in calls for fed in call)
    simulated = rounded.Simulated("serving_default", frozen, rounding.add_int8(inlined, ()))
    rows = {name: tf.constant(one[:1]) for name, one in feed.items()}
    answers = simulated.answers(np.zeros(0, bool), np.zeros(0, np.float32), rows)
    np.testing.assert_allclose(answers["scores"], loading.answers(function, rows)["scores"], rtol=1e-5)


@pytest.mark.parametrize("method", ["classify", "regress"])
def test_the_method_of_a_signature(method, kept, tmp_path):
    for one in kept(models.tf1(tmp_path / "in", {"inputs": "x"}, f"tensorflow/serving/{method}")):
        assert one.signature_def["serving_default"].method_name == f"tensorflow/serving/{method}"


def test_declared_shapes_of_inputs_and_outputs(kept, tmp_path):
    source = models.tf1(tmp_path / "in", {"x": "x"})
    proto = protos.read(source)
    signature = proto.meta_graphs[0].signature_def["serving_default"]
    signature.inputs["x"].tensor_shape.dim[0].size = 4
    signature.outputs["scores"].tensor_shape.dim[0].size = 4
    (source / "saved_model.pb").write_bytes(proto.SerializeToString())
    for one in kept(source):
        kept_signature = one.signature_def["serving_default"]
        for tensors in (kept_signature.inputs, kept_signature.outputs):
            assert [tensor.tensor_shape.dim[0].size for name, tensor in tensors.items() if name in ("x", "scores")] == [
                4
            ]


@pytest.mark.parametrize("make", [models.default_of_tf1, models.default_of_tf2])
def test_an_input_that_need_not_be_fed(make, kept, tmp_path):
    source = make(tmp_path / "in")
    metas = kept(source)
    for one in metas:
        assert one.signature_def["serving_default"].defaults == metas[0].signature_def["serving_default"].defaults
    rows = models.rows()
    expected = models.answers_of_session(source, {"x": rows})["y"]
    native_copy.write(tmp_path / "built", tmp_path / "native")
    np.testing.assert_allclose(models.answers_of_session(tmp_path / "native", {"x": rows})["y"], expected, rtol=1e-6)


def test_tags_and_what_the_user_wrote_into_the_meta_graph(kept, tmp_path):
    source = models.tf1(tmp_path / "in", {"x": "x"}, collections={"words": [b"one", b"two"], "numbers": [3, 4]})
    proto = protos.read(source)
    info = proto.meta_graphs[0].meta_info_def
    info.tags.append("gpu")
    info.meta_graph_version = "v7"
    info.any_info.type_url, info.any_info.value = "type.googleapis.com/mine", b"of mine"
    (source / "saved_model.pb").write_bytes(proto.SerializeToString())
    for one in kept(source):
        assert list(one.meta_info_def.tags) == ["serve", "gpu"]
        assert one.meta_info_def.meta_graph_version == "v7" and one.meta_info_def.any_info.value == b"of mine"
        assert list(one.collection_def["words"].bytes_list.value) == [b"one", b"two"]
        assert list(one.collection_def["numbers"].int64_list.value) == [3, 4]
    assert set(models.answers_of_session(tmp_path / "in", {"x": models.rows()}, tags=("serve", "gpu"))) == {
        "scores",
        "the class/0",
    }


def test_a_meta_graph_that_stays_behind_is_named(tmp_path):
    source = models.tf1(tmp_path / "in", {"x": "x"})
    proto = protos.read(source)
    more = proto.meta_graphs.add()
    more.CopyFrom(proto.meta_graphs[0])
    more.meta_info_def.tags[:] = ["serve", "gpu"]
    (source / "saved_model.pb").write_bytes(proto.SerializeToString())
    assert loading.load(source).other_tags == ("serve,gpu",) and loading.load(source, ("serve", "gpu")).other_tags == (
        "serve",
    )


def test_files_beside_the_graph(kept, tmp_path):
    source = models.tf1(tmp_path / "in", {"x": "x"})
    for name in ("assets/labels.txt", "assets.extra/mine/notes.txt"):
        (source / name).parent.mkdir(parents=True)
        (source / name).write_text("one\ntwo\n")
    kept(source)
    for name in ("assets/labels.txt", "assets.extra/mine/notes.txt"):
        assert (tmp_path / "built" / name).read_text() == "one\ntwo\n"


def test_tables_that_an_init_op_fills(kept, zoo_model, tmp_path):
    source = zoo_model("tf1_export")
    metas = kept(source)
    # A TF1 export names its assets in a collection.
    assert [[asset.filename for asset in one.asset_file_def] for one in metas] == [[], ["colours.txt"], ["colours.txt"]]
    feed = {"image": np.zeros((2, 16, 16, 3), np.float32), "colour": np.array([b"blue", b"mauve"], object)}
    native_copy.write(tmp_path / "built", tmp_path / "native")
    assert list(models.answers_of_session(tmp_path / "native", feed)["colour_index"]) == [2, -1]


def test_a_local_variable_that_an_init_op_sets(kept, tmp_path):
    source = models.set_by_init_op(tmp_path / "in")
    kept(source)
    native_copy.write(tmp_path / "built", tmp_path / "native")
    found = [models.answers_of_session(one, {"x": models.rows()})["y"] for one in (source, tmp_path / "native")]
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)
    assert np.abs(found[0]).max() > 0


def test_signatures_that_are_not_converted_and_all_of_the_root(kept, tmp_path):
    source = models.with_a_root(tmp_path / "in")
    metas = kept(source, signature_keys=("serving_default",))
    assert [sorted(name for name in one.signature_def if name[0] != "_") for one in metas] == [
        ["other", "serving_default"]
    ] * 3
    assert set(metas[2].signature_def["other"].inputs) == {"img-input"}
    root = loading.load(tmp_path / "built").root
    assert (
        root.scaled(tf.constant(3), double=True).numpy() == 6 and root.scaled(tf.constant(3), double=False).numpy() == 3
    )
    assert root.parts[1]["inner"].numpy() == 2.5


@pytest.mark.parametrize("make", [models.ragged_output, models.sparse_output, models.sparse_input])
def test_tensors_of_several_parts(make, kept, tmp_path):
    source = make(tmp_path / "in")
    encodings = [
        {
            name: tensor.WhichOneof("encoding")
            for tensors in (one.signature_def["serving_default"].inputs, one.signature_def["serving_default"].outputs)
            for name, tensor in tensors.items()
        }
        for one in kept(source)
    ]
    assert encodings[0] == encodings[1] == encodings[2] and set(encodings[0].values()) != {"name"}


# Each takes something away from a converted model.
def _rename_input(proto):
    inputs = proto.signature_def["serving_default"].inputs
    inputs["x"].CopyFrom(inputs.pop("features"))


def _of_signature(change):
    return lambda proto: change(proto.signature_def["serving_default"])


def _less(node):
    del node.children[:]


LOSSES = {
    "signature 'serving_default' is gone": lambda proto: proto.signature_def.pop("serving_default"),
    "signature 'more' is new": lambda proto: proto.signature_def["more"].inputs["x"],
    "signature 'serving_default' lost its input 'features'": _rename_input,
    "signature 'serving_default' has a new input 'x'": _rename_input,
    "signature 'serving_default' lost its output 'scores'": _of_signature(lambda one: one.outputs.pop("scores")),
    "the method of signature 'serving_default' is m, it was": _of_signature(
        lambda one: setattr(one, "method_name", "m")
    ),
    "input 'features' of signature 'serving_default' is int32[?,8]": _of_signature(
        lambda one: setattr(one.inputs["features"], "dtype", 3)
    ),
    "output 'scores' of signature 'serving_default' is float32[4]": _of_signature(
        lambda one: one.outputs["scores"].tensor_shape.dim.pop(0)
    ),
    "its tags are none": lambda proto: proto.meta_info_def.tags.pop(),
    "the meta_graph_version of its MetaGraph is another": lambda proto: setattr(
        proto.meta_info_def, "meta_graph_version", "2"
    ),
    "its collection 'words' is gone": lambda proto: proto.collection_def.pop("words"),
    "a variable float32": lambda proto: _less(proto.object_graph_def.nodes[0]),
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """(A small model, the same converted), not to be changed."""
    folder = tmp_path_factory.mktemp("pair")
    source = models.tf1(folder / "source", {"features": "x"}, collections={"words": [b"one"]})
    return source, converted(source, folder / "out")


@pytest.mark.parametrize("words", [words for words in LOSSES if "variable" not in words])
def test_each_loss_is_named(words, pair):
    source, out = pair
    proto = meta(out)
    assert fidelity.differences(source, meta(source), out, proto) == ()
    LOSSES[words](proto)
    assert any(words in one for one in fidelity.differences(source, meta(source), out, proto))
    with pytest.raises(errors.TftrtError, match="would lose something"):
        fidelity.check(source, meta(source), out, proto)


def test_a_lost_object_is_named(tmp_path):
    source = models.with_a_root(tmp_path / "in")
    proto = meta(source)
    LOSSES["a variable float32"](proto)
    assert "kernel (a variable float32[8,4]) is gone" in fidelity.differences(source, meta(source), source, proto)


def test_a_lost_default_and_lost_files_are_named(tmp_path):
    source = models.default_of_tf2(tmp_path / "in")
    proto = meta(source)
    proto.signature_def["serving_default"].defaults.clear()
    (tmp_path / "out").mkdir()
    (source / "assets.extra").mkdir()
    (source / "assets.extra" / "notes.txt").write_text("mine")
    assert fidelity.differences(source, meta(source), tmp_path / "out", proto) == (
        "input 'scale' of signature 'serving_default' has another default value, or none",
        "its file assets.extra/notes.txt is gone",
    )


def test_a_loss_ends_the_conversion_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "tftrt_tools.models.savedmodel.job.declarations.restore", lambda path, declared, renamed: meta(path)
    )
    with pytest.raises(errors.TftrtError, match="is tensorflow/serving/predict, it was tensorflow/serving/classify"):
        converted(models.tf1(tmp_path / "in", {"inputs": "x"}, "tensorflow/serving/classify"), tmp_path / "out")


def test_inspect_says_what_a_converted_model_lost_of_its_source(pair, tmp_path):
    source, out = tmp_path / "source", tmp_path / "out"
    shutil.copytree(pair[0], source)
    shutil.copytree(pair[1], out)
    from tftrt_tools.models.savedmodel import files

    passport.write(
        out, passport.MANIFEST, {"source": str(source), "source_digest": files.digest(source), "settings": {}}
    )
    request = InspectRequest(model=str(out), settings=Settings())

    def lost():
        return [one.text for one in inspect_job.job(request).inspection.findings if "source" in one.about]

    assert lost() == []
    proto = protos.read(out)
    _rename_input(proto.meta_graphs[0])
    (out / "saved_model.pb").write_bytes(proto.SerializeToString())
    assert lost() == [
        "signature 'serving_default' lost its input 'features'",
        "signature 'serving_default' has a new input 'x'",
    ]
    (source / "saved_model.pb").write_bytes((source / "saved_model.pb").read_bytes() + b"")
    (source / "variables" / "more").write_text("the source has changed since")
    assert lost() == []


def test_engines_come_and_go_and_are_no_loss(pair):
    source, out = pair
    proto = meta(source)
    proto.object_graph_def.nodes.add().children.add(local_name=detach.RESOURCES, node_id=0)
    assert fidelity.differences(source, proto, out, meta(out)) == ()


def test_json_of_convert_names_inputs_as_the_signature_does(tftrt, tmp_path):
    source = models.tf1(tmp_path / "in", {"img-input": "x"})
    done = tftrt("convert", f"--model={source}", f"--output={tmp_path / 'out'}", "--json=-", "--minimum_segment_size=1")
    assert done.returncode == 0, done.stderr
    assert [spec["name"] for spec in json.loads(done.stdout)["signatures"][0]["inputs"]] == ["img-input"]
    verified = tftrt("verify", source, tmp_path / "out")
    assert verified.returncode == 0, verified.stdout + verified.stderr
