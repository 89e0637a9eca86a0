"""Frozen graphs and TF1 checkpoints as models: what goes in and out, what is said where that is not clear, and the same answers."""

import numpy as np
import pytest
import tensorflow as tf
from absl import flags

from tests.sources_command import run
from tftrt_tools.accuracy import verify
from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import _source_flags
from tftrt_tools.models.savedmodel import files, passport
from tftrt_tools.models.sources import graph_job, kinds, tensors
from tftrt_tools.models.sources.opened import GraphExported, GraphRequest, check, opened
from tftrt_tools.models.sources.source import Source
from tftrt_tools.tftrt.conversion import pipeline
from tftrt_tools.tftrt.conversion.settings import Settings

v1 = tf.compat.v1
IMAGES = np.random.default_rng(0).random((3, 8, 8, 3), np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """frozen.pb, unfrozen.pb, tables.pb, a checkpoint step/model.ckpt-7 of training, and what the network answers."""
    path = tmp_path_factory.mktemp("graphs")
    with tf.Graph().as_default() as graph:
        v1.set_random_seed(0)
        image, label = (
            v1.placeholder(tf.float32, [None, 8, 8, 3], name="image"),
            v1.placeholder(tf.int64, [None], name="label"),
        )
        biased = tf.nn.bias_add(
            tf.nn.conv2d(image, v1.get_variable("w", [3, 3, 3, 8]), 1, "SAME"),
            v1.get_variable("b", [8], use_resource=True),
        )
        features = tf.nn.relu(biased, name="block/features")
        logits = tf.matmul(tf.reduce_mean(features, [1, 2]), v1.get_variable("k", [8, 4]), name="logits")
        scores = tf.nn.softmax(logits, name="scores")
        tf.argmax(scores, 1, name="class")
        tf.nn.top_k(scores, 2, name="top")
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits), name="loss")
        v1.summary.scalar("loss_summary", loss)
        v1.train.AdamOptimizer().minimize(loss)
        saver = v1.train.Saver()
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            (path / "step").mkdir()
            saver.save(session, str(path / "step" / "model.ckpt"), global_step=7)
            frozen = v1.graph_util.convert_variables_to_constants(session, graph.as_graph_def(), ["class", "top"])
            (path / "frozen.pb").write_bytes(frozen.SerializeToString())
            np.savez(
                path / "answers.npz",
                features=session.run(features, {image: IMAGES}),
                scores=session.run(scores, {image: IMAGES}),
                top=session.run("top:1", {image: IMAGES}),
            )
        (path / "unfrozen.pb").write_bytes(graph.as_graph_def().SerializeToString())
    with tf.Graph().as_default() as graph:
        words = v1.placeholder(tf.string, [None], name="words")
        initializer = tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([5, 6], tf.int64))
        table = tf.lookup.StaticHashTable(initializer, -1)
        tf.identity(table.lookup(words), name="numbers")
        (path / "tables.pb").write_bytes(graph.as_graph_def().SerializeToString())
    return path


def test_a_placeholder_that_is_not_named_and_that_an_output_needs_is_named(folder, tmp_path):
    model = folder / "unfrozen.pb"
    with pytest.raises(
        errors.UsageError, match="need the placeholder 'label', which --inputs does not name"
    ) as refused:
        export(folder / "step" / "model.ckpt-7.meta", tmp_path / "out", inputs=("image",), outputs=("loss",))
    assert "--inputs=image,label" in refused.value.mend and model.exists()


def export(path, output, inputs=(), outputs=()):
    """The signature's function, and what the job says. In this process: the child adds nothing to what is tested."""
    source = Source(path=path)
    said = graph_job.job(
        GraphRequest(
            source=source.path,
            kind=kinds.kind(source.path),
            output=str(output),
            inputs=tuple(inputs),
            outputs=tuple(outputs),
        )
    )
    model = tf.saved_model.load(str(output))
    return model, said


def answers(model, **feed):
    return {name: value.numpy() for name, value in model.signatures["serving_default"](**feed).items()}


def test_a_frozen_graph_shows_its_ends(folder, tmp_path):
    model, said = export(folder / "frozen.pb", tmp_path / "m")
    assert said == GraphExported(
        inputs=("image float32[?,8,8,3]",),
        outputs=("class int64[?]", "top float32[?,2]", "top_1 (of top:1) int32[?,2]"),
        chosen=True,
    )
    found = answers(model, image=tf.constant(IMAGES))
    known = np.load(folder / "answers.npz")
    assert set(found) == {"class", "top", "top_1"}
    np.testing.assert_array_equal(found["top_1"], known["top"])
    np.testing.assert_array_equal(found["class"], known["scores"].argmax(1))


def test_a_graph_is_cut_where_the_flags_say(folder, tmp_path):
    known = np.load(folder / "answers.npz")
    model, said = export(folder / "frozen.pb", tmp_path / "inner", ["block/features=3x8x8x8"], ["scores"])
    assert not said.chosen and said.inputs == ("features (of block/features) float32[3,8,8,8]",)
    found = answers(model, features=tf.constant(known["features"]))
    np.testing.assert_allclose(found["scores"], known["scores"], rtol=1e-6)
    model, said = export(folder / "frozen.pb", tmp_path / "fixed", ["image=3x?x8x3"], ["logits"])
    assert model.signatures["serving_default"].structured_input_signature[1]["image"].shape.as_list() == [3, None, 8, 3]


@pytest.mark.parametrize(
    "name", ["step", "step/checkpoint", "step/model.ckpt-7", "step/model.ckpt-7.index", "step/model.ckpt-7.meta"]
)
def test_each_way_to_name_a_checkpoint_is_the_same(name, folder):
    source = Source(path=folder / name)
    assert kinds.kind(source.path) == kinds.CHECKPOINT and source.path == str(folder / "step" / "model.ckpt-7")
    assert files.digest(source) == files.digest(folder / "step" / "model.ckpt-7")


def test_a_checkpoint_without_a_base_name_is_its_folder(folder, tmp_path):
    for end in (".index", ".meta", ".data-00000-of-00001"):
        (tmp_path / end).write_bytes((folder / "step" / f"model.ckpt-7{end}").read_bytes())
    model, said = export(tmp_path, tmp_path / "m", outputs=["scores"])
    assert said.inputs == ("image float32[?,8,8,3]",) and said.chosen
    np.testing.assert_allclose(
        answers(model, image=tf.constant(IMAGES))["scores"], np.load(folder / "answers.npz")["scores"], rtol=1e-6
    )


def test_tables_are_filled(folder, tmp_path):
    model, said = export(folder / "tables.pb", tmp_path / "m")
    assert said.outputs == ("numbers int64[unknown rank]",)
    assert answers(model, words=tf.constant(["b", "x", "a"]))["numbers"].tolist() == [6, -1, 5]


def test_convert_and_verify_take_a_checkpoint_with_the_same_names(folder, tmp_path, capsys):
    source = Source(path=folder / "step", outputs=("scores",))
    with opened(source):
        made = pipeline.convert(source, tmp_path / "out", Settings())
        done = verify.verify(source, made.output, verify.Options())
    assert (
        "inputs image float32[?,8,8,3]; outputs scores float32[?,4]; --inputs and --outputs choose others"
        in capsys.readouterr().err
    )
    assert done.passed and [one.name for one in done.comparisons] == ["serving_default/scores"]
    assert (
        done.original_digest == passport.read(made.output, passport.MANIFEST)["source_digest"] == files.digest(source)
    )


@pytest.mark.parametrize(
    ("name", "flags", "cause", "mend"),
    [
        (
            "step",
            {},
            "which outputs? Nothing reads class int64[?], top float32[?,2]",
            "--inputs=image --outputs=class,top",
        ),
        ("unfrozen.pb", {"outputs": ["scores"]}, "is not frozen: it has variables (w and 2 more)", ".meta"),
        ("frozen.pb", {"outputs": ["skores"]}, "has no tensor 'skores'", "did you mean scores?"),
        ("frozen.pb", {"outputs": ["top:2"]}, "has no tensor 'top:2'", "numbered from 0 to 1"),
        ("frozen.pb", {"inputs": ["image", "block/features"]}, "the outputs do not depend on image", "leave it out"),
        ("frozen.pb", {"inputs": ["image=3x8"]}, "cannot have the shape that is given", "one that fits"),
        ("empty.pb", {}, "is no graph", "SavedModel directory"),
        ("no.pb", {}, "is no graph", "copy it again"),
        ("weights", {}, "holds weights only: the graph", "model.load_weights"),
        ("step2/model.ckpt-7", {}, "holds weights only: the graph", ".meta as well"),
    ],
)
def test_what_is_not_clear_is_told_with_the_flags_to_copy(name, flags, cause, mend, folder, tmp_path):
    (folder / "empty.pb").write_bytes(b"")
    (folder / "no.pb").write_bytes(b"\xff\xff\xff")
    if name == "weights":
        tf.train.Checkpoint(v=tf.Variable(1.0)).write(str(folder / "weights"))
    (folder / "step2").mkdir(exist_ok=True)
    for end in (".index", ".data-00000-of-00001"):
        (folder / "step2" / f"model.ckpt-7{end}").write_bytes((folder / "step" / f"model.ckpt-7{end}").read_bytes())
    with pytest.raises(errors.TftrtError) as refused:
        export(folder / name, tmp_path / "m", **flags)
    assert cause in refused.value.cause and mend in refused.value.mend, (refused.value.cause, refused.value.mend)


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("inputs", "a=1xb"),
        ("inputs", "a=0x2"),
        ("inputs", "a=b=c"),
        ("inputs", "=1"),
        ("outputs", "a=1"),
        ("outputs", "a:b"),
    ],
)
def test_flags_that_say_nothing_are_refused_before_any_work(flag, text, folder):
    with pytest.raises(errors.UsageError, match=f"--{flag}") as refused:
        check(Source(path=folder / "frozen.pb", **{flag: (text,)}))
    assert refused.value.mend


def test_flags_are_read():
    assert tensors.parse("inputs", ("a/b:1=?x3x-1", "c=scalar", "d")) == (
        tensors.Tensor("a/b", 1, (None, 3, None)),
        tensors.Tensor("c", 0, ()),
        tensors.Tensor("d"),
    )
    assert tensors.keys([tensors.Tensor("a/x"), tensors.Tensor("b/x"), tensors.Tensor("b/y", 1)]) == [
        "a_x",
        "b_x",
        "y_1",
    ]
    assert Source(path="m.pb", inputs=("a=1x2", "b"), outputs=("c:1",)).flag_lines() == [
        "--inputs=a=1x2,b",
        "--outputs=c:1",
    ]
    found = tensors.keys(list(tensors.parse("outputs", ("sp:1", "sp_1", "a/y", "y:0"))))
    assert found == ["sp_1_0", "sp_1_1", "a_y", "y"] and len(set(found)) == 4
    assert tensors.unique(["x", "a", "a"]) == ["x", "a_1", "a_2"]
    assert tensors.unique(["a", "a", "a_1", "a_0", "b"]) == ["a_2", "a_3", "a_1", "a_0", "b"]


def test_flags_of_graphs_have_no_effect_on_what_has_signatures(tmp_path, capsys):
    (tmp_path / "a.h5").touch()
    assert run("inspect", tmp_path / "a.h5", "--outputs=y") == errors.EXIT_USAGE
    assert "--outputs has no effect" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [("export", "--output=m.onnx"), ("inspect",)])
def test_custom_objects_have_no_effect_on_what_is_no_keras_file(argv, folder, zoo_model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command, *flags = argv
    for model, kind in (
        (zoo_model("digits_cnn"), "SavedModel"),
        (folder / "frozen.pb", "graph"),
        (folder / "step", "checkpoint"),
    ):
        assert run(command, model, "--custom_objects=module:dict", *flags) == errors.EXIT_USAGE
        assert f"is a {kind}, and they are of Keras files\n  leave it out\n" in capsys.readouterr().err
        assert run(command, model, "--allow_unsafe_deserialization", *flags) == errors.EXIT_USAGE
        said = capsys.readouterr().err
        assert (
            said.startswith("tftrt: error: --allow_unsafe_deserialization has no effect: ")
            and f"is a {kind}, and it is about code" in said
        )
    assert not list(tmp_path.iterdir())


def test_flags_of_a_file_are_not_of_the_savedmodel_beside_it(folder, zoo_model):
    graph, saved = str(folder / "frozen.pb"), str(zoo_model("digits_cnn"))
    values = flags.FlagValues()
    for name, model in {"native": graph, "candidate": saved, "original": ""}.items():
        flags.DEFINE_string(name, model, "", flag_values=values)
    _source_flags.define(values)
    values(["regress", "--inputs=image"])
    plain, read = Source(path=saved), Source(path=graph, inputs=("image",))
    assert _source_flags.read_given(values, "native", "candidate", "original") == {
        "native": read,
        "candidate": plain,
        "original": "",
    }
    assert _source_flags.read_each(values, saved, graph) == [plain, read]
    # Beside no file they say nothing of any model, and that is refused.
    with pytest.raises(errors.UsageError, match="--inputs has no effect"):
        check(_source_flags.read_each(values, saved, saved)[0])
