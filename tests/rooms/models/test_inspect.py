"""`tftrt inspect`: the plan of a SavedModel equals what the pass and the conversion do; a converted one is read without loading it."""

import collections
import dataclasses
import json
import pathlib
import shutil
import subprocess
import sys

import pytest

from tests import command_here
from tests.command_line import assert_clear
from tests.engine_files import engine_file, look
from tftrt_tools.base import errors
from tftrt_tools.base.process import child
from tftrt_tools.models.savedmodel import engine_assets, passport
from tftrt_tools.models.savedmodel.inspection import Inspection
from tftrt_tools.models.savedmodel.job import findings
from tftrt_tools.tftrt.conversion import advice, pass_log
from tftrt_tools.tftrt.conversion.pass_log import LeftOut
from tftrt_tools.tftrt.conversion.plan import Outcome, Plan, SizeResult
from tftrt_tools.tftrt.conversion.settings import Settings

ROOT = pathlib.Path(__file__).resolve().parents[3]
PASS_ENV = {"TF_CPP_VMODULE": pass_log.VMODULE, "TF_CPP_MIN_LOG_LEVEL": "0"}
SIZES = (1, 2, 3, 4, 5, 10, 20, 21, 50, 100, 400)
# A plan with more different sizes than these leaves others out.
ALWAYS = (1, 2, 3, 5, 10, 20, 50, 100)
MODELS = ("digits_cnn", "bert_encoder", "lstm_tagger", "dynamic_segmenter", "ranker", "tf1_export")
# Runs the command in one process and fails it where that process imported TensorFlow.
_WITHOUT_TENSORFLOW = (
    "import sys; from tftrt_tools.command_line import cli; code = cli.main(sys.argv[1:]); "
    "sys.exit('TensorFlow was imported' if 'tensorflow' in sys.modules else code)"
)


def tftrt_inspect(*arguments):
    """Run the command. Returns: CompletedProcess."""
    return command_here.run_tftrt("inspect", *arguments)


def inspect_alone(*arguments):
    """Run the command as a user would. Returns: CompletedProcess."""
    return subprocess.run(
        [sys.executable, "-c", _WITHOUT_TENSORFLOW, "inspect", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=240,
        check=False,
    )


# Before conversion: what the passes say, in child processes, because TF-TRT logs its reasons only where the variables were set first.


def real_passes(request):
    """In a child: {model: {signature: [[dynamic, size, engines, coverage], …]}} of real passes at all SIZES."""
    from tftrt_tools.models.savedmodel.job import loading
    from tftrt_tools.tftrt.conversion.job import graph_pass, prepare

    found = {}
    for name, path in request["models"].items():
        model = loading.load(path)
        for signature, function in model.root.signatures.items():
            for dynamic in (False, True):
                # What is written otherwise before the pass depends on the mode.
                frozen, _ = prepare.passed(signature, function, Settings(use_dynamic_shape=dynamic))
                for size in SIZES:
                    passed = graph_pass.run(frozen, Settings(use_dynamic_shape=dynamic, minimum_segment_size=size))
                    found.setdefault(name, {}).setdefault(signature, []).append(
                        [dynamic, size, len(passed.engines), passed.coverage]
                    )
    return found


def plans(request):
    """In a child: a Plan's dict for each [path, settings]."""
    from tftrt_tools.tftrt.conversion.job import planner

    return [planner.plan(path, Settings.from_dict(settings)).to_dict() for path, settings in request]


def ask_plans(*asked):
    """Plans of (path, Settings) pairs, from one child."""
    request = [[str(path), settings.to_dict()] for path, settings in asked]
    return [
        Plan.from_dict(one) for one in child.run("tests.rooms.models.test_inspect:plans", request, env=PASS_ENV).result
    ]


@pytest.fixture(scope="module")
def planned(zoo_model):
    """{(model, dynamic): Plan} of the sample models."""
    asked = [(name, dynamic) for name in MODELS for dynamic in (False, True)]
    return dict(
        zip(
            asked,
            ask_plans(*((zoo_model(name), Settings(use_dynamic_shape=dynamic)) for name, dynamic in asked)),
            strict=True,
        )
    )


@pytest.fixture(scope="module")
def passes(zoo_model):
    """What `real_passes` returns for the sample models."""
    return child.run(
        "tests.rooms.models.test_inspect:real_passes",
        {"models": {name: str(zoo_model(name)) for name in MODELS}},
        env=PASS_ENV,
    ).result


@pytest.mark.parametrize("name", MODELS)
def test_the_table_of_sizes_equals_real_passes_at_every_size(name, planned, passes):
    for signature, rows in passes[name].items():
        for dynamic, size, engines, coverage in rows:
            plan = next(one for one in planned[name, dynamic].signatures if one.name == signature)
            held = [one for one in plan.sizes if one.holds(size)]
            if not held and size not in ALWAYS:
                assert plan.sizes[0].high < size < plan.sizes[-1].low
                continue
            (row,) = held
            assert (row.engines, row.coverage) == (engines, pytest.approx(coverage, abs=1e-4)), (
                signature,
                dynamic,
                size,
            )


@pytest.mark.parametrize("name", MODELS)
def test_the_other_batch_mode_equals_its_own_pass(name, planned):
    for dynamic in (False, True):
        for one, other in zip(planned[name, dynamic].signatures, planned[name, not dynamic].signatures, strict=True):
            assert one.other == Outcome(not dynamic, len(other.segments), pytest.approx(other.coverage, abs=1e-4))


@pytest.mark.parametrize("name", ("ranker", "tf1_export", "bert_encoder"))
def test_the_plan_is_what_the_conversion_does(name, planned, converted):
    manifest = {one["name"]: one for one in passport.read(converted(name), passport.MANIFEST)["signatures"]}
    assert {one.name for one in planned[name, False].signatures} == set(manifest)
    for plan in planned[name, False].signatures:
        done = manifest[plan.name]
        assert plan.coverage == pytest.approx(done["coverage"], abs=1e-4)
        assert [(one.engine.ops, one.engine.to_dict()["inputs"]) for one in plan.segments] == [
            (one["ops"], one["inputs"]) for one in done["engines"]
        ]
        assert {(one.node, one.op) for one in plan.left_out} == {(one["node"], one["op"]) for one in done["left_out"]}


def test_every_op_is_in_a_segment_or_left_out_by_name_with_a_reason(planned):
    for plan in planned.values():
        for one in plan.signatures:
            inside = [node for segment in one.segments for node in segment.nodes]
            outside = [left.node for left in one.left_out]
            assert len(set(outside)) == len(outside)
            assert all(left.node and left.op and left.reason for left in one.left_out)
            assert not set(inside) & set(outside)
            assert one.coverage == pytest.approx(
                one.ops_in_tensorrt / (one.ops_in_tensorrt + len(outside)) if one.ops_in_tensorrt else 0
            )


def test_segments_name_what_enters_and_leaves_them(planned):
    plan = next(one for one in planned["ranker", False].signatures if one.name == "serving_default")
    by_number = {one.number: one for one in plan.segments}
    assert sorted(by_number) == list(range(len(plan.segments)))
    for one in plan.segments:
        assert len(one.feeds) == len(one.engine.inputs) and len(one.results) == len(one.engine.outputs)
        assert set(one.results) <= set(one.nodes)
    # The visitor's tower takes features of its own and the answer of the item's tower.
    last = by_number[len(plan.segments) - 1]
    assert last.feeds == ("StatefulPartitionedCall/StatefulPartitionedCall/concat", f"segment {last.number - 1}:0")


def test_flags_of_the_conversion_decide_the_plan_too(zoo_model):
    digits = zoo_model("digits_cnn")
    one, nodes, mixed, few, keys = ask_plans(
        (digits, Settings(keep_native_ops=("Softmax",))),
        (digits, Settings(keep_native_nodes=".*/conv2.*")),
        (digits, Settings(precision_mode="FP16", fp32_nodes=".*/conv2.*")),
        (zoo_model("bert_encoder"), Settings(max_engines=1)),
        (zoo_model("ranker"), Settings(signature_keys=("item_embedding",))),
    )
    assert [(left.op, left.reason) for left in one.signatures[0].left_out] == [
        ("Softmax", "kept native by --keep_native_ops")
    ]
    assert {left.reason for left in nodes.signatures[0].left_out} == {"kept native by --keep_native_nodes"}
    assert len(nodes.signatures[0].segments) == 2
    assert collections.Counter(segment.engine.precision for segment in mixed.signatures[0].segments) == {
        "FP16": 2,
        "FP32": 1,
    }
    assert all(row.low == row.high for row in mixed.signatures[0].sizes)
    assert [row.engines for row in few.signatures[0].sizes if row.high] == [1] * (len(few.signatures[0].sizes) - 1)
    assert [signature.name for signature in keys.signatures] == ["item_embedding"]


def test_a_signature_that_cannot_be_converted_does_not_hide_the_others(tmp_path):
    import tensorflow as tf

    module = tf.Module()
    module.count, module.weights = tf.Variable(0.0), tf.Variable(tf.random.normal([8, 8]))
    spec = tf.TensorSpec([None, 8], tf.float32, name="x")

    @tf.function(input_signature=[spec])
    def counts(x):
        return {"y": x + module.count.assign_add(1.0)}

    @tf.function(input_signature=[spec])
    def multiplies(x):
        return {"y": tf.nn.softmax(tf.nn.relu(x @ module.weights) @ module.weights)}

    tf.saved_model.save(module, str(tmp_path / "m"), signatures={"counts": counts, "multiplies": multiplies})
    (plan,) = ask_plans((tmp_path / "m", Settings()))
    by_name = {one.name: one for one in plan.signatures}
    assert "changes variables" in by_name["counts"].problem["cause"] and by_name["counts"].advice is None
    assert by_name["multiplies"].problem is None and by_name["multiplies"].segments


# Advice: pure functions.


def sizes(*rows):
    """SizeResults from (high, engines, ops in engines) of 100 ops."""
    lows = [1, *(high + 1 for high, _, _ in rows[:-1])]
    return tuple(
        SizeResult(low=low, high=row[0], engines=row[1], inside=row[2], coverage=row[2] / 100, smallest=None)
        for low, row in zip(lows, rows, strict=True)
    )


def advised(rows, engines, inside, other=None, left_out=(), **settings):
    return advice.advise(rows, Settings(**settings), inside / 100, engines, other, left_out)


def test_advice_drops_small_engines_that_hold_little():
    told = advised(sizes((3, 12, 65), (4, 6, 61), (23, 5, 60), (40, 4, 30), (None, 0, 0)), 12, 65)
    assert told.minimum_segment_size == 5
    assert "60% of the 65%" in told.reasons[0] and "in 5 instead of 12 engines" in told.reasons[0]


def test_advice_keeps_engines_that_hold_much():
    told = advised(sizes((7, 2, 65), (12, 1, 41), (None, 0, 0)), 2, 65)
    assert told.minimum_segment_size == 3
    assert "is right" in told.reasons[0] and "from 8 on, 24% less" in told.reasons[0]


def test_advice_never_takes_the_last_engine():
    assert advised(sizes((4, 1, 2), (None, 0, 0)), 1, 2).minimum_segment_size == 3


def test_advice_names_the_reasons_where_nothing_converts():
    left = [LeftOut(f"n{index}", "Where", "Op type Where is not supported.") for index in range(3)]
    told = advised(sizes((None, 0, 0)), 0, 0, left_out=left)
    assert told.reasons == ("Nothing would run in TensorRT; the reasons met most: 3x Op type Where is not supported.",)


def test_advice_on_a_size_that_is_too_large_or_too_small():
    rows = sizes((2, 20, 20), (26, 1, 90), (None, 0, 0))
    assert "26" not in advised(rows, 0, 0, minimum_segment_size=100).reasons[0]
    assert "=3 covers 90% in 1 engine; 100 covers 0%" in advised(rows, 0, 0, minimum_segment_size=100).reasons[0]
    assert (
        "gives 20 engines of 1.0 ops"
        in advised(sizes((2, 20, 20), (None, 0, 0)), 20, 20, minimum_segment_size=1).reasons[0]
    )


@pytest.mark.parametrize(
    "other, named",
    [
        (Outcome(True, 2, 0.98), True),
        (Outcome(True, 12, 0.66), False),
        (Outcome(True, 4, 0.65), True),
        (Outcome(True, 0, 0.0), False),
    ],
)
def test_advice_names_the_other_batch_mode_only_where_it_is_clearly_better(other, named):
    told = advised(sizes((26, 12, 65), (None, 0, 0)), 12, 65, other=other)
    assert told.use_dynamic_shape is (True if named else None)
    assert ("--use_dynamic_shape" in " ".join(told.reasons)) is named


def test_advice_for_bert_and_an_lstm(planned):
    bert, lstm = planned["bert_encoder", False].signatures[0], planned["lstm_tagger", False].signatures[0]
    assert bert.advice.use_dynamic_shape is True and lstm.advice.use_dynamic_shape is True
    assert (
        lstm.advice.reasons[0].startswith("Nothing would run in TensorRT")
        and "--use_dynamic_shape" in lstm.advice.reasons[1]
    )
    assert planned["bert_encoder", True].signatures[0].advice.use_dynamic_shape is None


# The command.


def test_the_command_prints_a_screenful_and_writes_everything(zoo_model, tmp_path):
    done = inspect_alone(zoo_model("bert_encoder"), f"--json={tmp_path / 'plan.json'}")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) < 60
    assert (
        max(map(len, done.stdout.splitlines()[1:-1])) <= 140
    )  # the first line is the model's path, the last one the next command
    # With profiles it covers 99% instead of 34%, and says so.
    last = done.stdout.splitlines()[-1]
    assert last.startswith("next: tftrt convert ") and last.endswith(" --precision=FP16 --use_dynamic_shape")
    plan = json.loads((tmp_path / "plan.json").read_text())
    (signature,) = plan["signatures"]
    assert plan["kind"] == "plan" and signature["ops"] == signature["ops_in_tensorrt"] + len(signature["left_out"])
    whole = tftrt_inspect(zoo_model("bert_encoder"), "--all").stdout
    assert all(one["node"] in whole for one in signature["left_out"])
    assert "--all" in done.stdout and "--all" not in whole


def test_json_on_stdout_is_nothing_but_json(zoo_model):
    done = tftrt_inspect(zoo_model("lstm_tagger"), "--json=-", "--check")
    assert json.loads(done.stdout)["signatures"][0]["segments"] == []
    assert done.returncode == errors.EXIT_CHECK and "Nothing would run in TensorRT" in done.stderr


@pytest.mark.parametrize(
    "make, code, words",
    [
        (lambda path: path / "none", 2, "no such file or directory"),
        (lambda path: path, 2, "holds no saved_model.pb"),
        (lambda path: _file(path / "model.keras", b"x"), 1, "not a Keras model file"),
        (lambda path: _file(path / "model.txt", b"x"), 2, "model.txt is a file of no kind taken here"),
        (lambda path: _file(path / "m" / "saved_model.pb", b"\x08\x01\x12\xff").parent, 1, "truncated or damaged"),
    ],
)
def test_bad_input_is_one_line_of_cause_and_one_of_mend(make, code, words, tmp_path):
    done = tftrt_inspect(make(tmp_path))
    assert done.returncode == code and words in done.stderr.splitlines()[0]
    assert len(done.stderr.splitlines()) == 2 and "Traceback" not in done.stderr


def _file(path, content):
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path


# After conversion: files are read in this process, nothing is loaded.


def found(path):
    """{about: text} of what disagrees."""
    return {one.about: one.text for one in look(path).findings}


def edit(path, change):
    """Apply change(GraphDef) to saved_model.pb. Returns: `path`."""
    from tftrt_tools.models.savedmodel.job import protos

    proto = protos.read(path)
    change(proto.meta_graphs[0].graph_def)
    (path / "saved_model.pb").write_bytes(proto.SerializeToString())
    return path


def engine_nodes(graph_def):
    from tftrt_tools.models.savedmodel.job import graph

    return list(graph.engine_nodes(graph_def))


def set_engine(**attributes):
    """A change that sets attributes of every engine op, to a bool or a string."""
    from tftrt_tools.models.savedmodel.job import graph

    return lambda graph_def: graph.set_on_engines(graph_def, **attributes)


@pytest.fixture
def digits(converted, tmp_path):
    """A converted model without engines, to be changed."""
    return pathlib.Path(shutil.copytree(converted("digits_cnn", "--precision=FP16"), tmp_path / "digits"))


@pytest.fixture
def built(built_once, tmp_path):
    """A copy of `built_once` to be changed, and its engine's name."""
    return pathlib.Path(shutil.copytree(built_once[0], tmp_path / "built")), built_once[1]


@pytest.mark.parametrize("name", ("ranker", "tf1_export", "bert_encoder"))
def test_engines_signatures_and_coverage_are_those_of_the_conversion(name, converted):
    seen = look(converted(name))
    assert seen.findings == ()
    for done in seen.manifest["signatures"]:
        one = next(signature for signature in seen.signatures if signature.name == done["name"])
        assert set(one.engines) == {engine["name"] for engine in done["engines"]}
        assert one.coverage == pytest.approx(done["coverage"], abs=1e-4)
        assert collections.Counter(node.op for node in one.native) == done["native_ops"]
    assert all(len(seen.signatures_of(engine.name)) == 1 for engine in seen.engines)


def test_signature_keys_restrict_what_is_shown(converted):
    seen = look(converted("ranker"), signature_keys=("user_embedding",))
    assert [one.name for one in seen.signatures] == ["user_embedding"] and seen.findings == ()
    assert {one.name for one in seen.engines} == set(seen.signatures[0].engines) != set()


@pytest.mark.parametrize(
    "settings, words", [({"signature_keys": ("none",)}, "no signature 'none'"), ({"tags": ("none",)}, "no MetaGraph")]
)
def test_an_unknown_signature_or_tag_is_named(converted, settings, words):
    with pytest.raises(errors.UsageError, match=words):
        look(converted("ranker"), **settings)


@pytest.mark.parametrize(
    "flags",
    [
        ("--shapes=image:1x8x8x1",),
        ("--shapes=nothing:1x8",),
        ("--shapes=image:axb",),
        ("--shapes=image:1x8", "--use_dynamic_shape"),
        ("--minimum_segment_size=4",),
        ("--precision=INT8",),
    ],
)
def test_flags_of_a_conversion_are_refused_where_it_is_done(tftrt, converted, flags):
    done = tftrt("inspect", converted("digits_cnn", "--precision=FP16"), *flags)
    assert_clear(done, 2, f"{flags[0].partition('=')[0]} has no effect: the model is converted already")


def test_saved_engines_are_read_without_being_loaded(built):
    path, engine = built
    seen = look(path)
    assert seen.findings == () and seen.loads == {engine: 2}
    assert [(asset.input_shapes, asset.bytes) for asset in seen.assets(engine)] == [
        (((1, 8, 8, 1),), 1000),
        (((8, 8, 8, 1),), 1000),
    ]
    done = tftrt_inspect(path)
    assert done.returncode == 0 and "2 saved engines" in done.stdout and "8,8,8,1" in done.stdout
    assert "nothing disagrees" in done.stdout


def test_engines_are_compared_with_the_tensorrt_that_tensorflow_loads_whatever_wheel_it_is_of(built):
    from tftrt_tools.base import tf_private

    path, _ = built
    manifest = passport.read(path, passport.MANIFEST)
    assert not any("here is" in one.text for one in look(path).findings)
    manifest["versions"]["tensorrt"] = "8.4.3"
    passport.write(path, passport.MANIFEST, manifest)
    here = f"built with TensorRT 8.4.3; here is {tf_private.tensorrt_versions()[1]}"
    assert any(here in one.text for one in look(path).findings)


def test_a_model_with_saved_engines_runs_natively_in_both_loaders_where_no_gpu_is(built_once, zoo_model, tmp_path):
    import numpy as np
    import tensorflow as tf

    from tests import server_log
    from tftrt_tools.base.logs import load_failure
    from tftrt_tools.models.execution.job import native_copy
    from tftrt_tools.servers.serving.local.failure import Failure
    from tftrt_tools.servers.serving.local.session import Session

    model, engine = built_once
    with pytest.raises(Failure, match="No OpKernel was registered to support Op 'CreateTRTResourceHandle'") as raised:
        Session(model)  # what TensorFlow Serving says there
    assert load_failure.explain(raised.value.to_text()) == load_failure.explain(server_log.NO_KERNEL)
    assert native_copy.write(model, tmp_path / "native") == [engine]
    image = np.random.default_rng(0).random((3, 8, 8, 1), np.float32)
    wanted = (
        tf.saved_model.load(str(zoo_model("digits_cnn")))
        .signatures["serving_default"](image=image)["probabilities"]
        .numpy()
    )
    got = (
        tf.saved_model.load(str(tmp_path / "native"))
        .signatures["serving_default"](image=image)["probabilities"]
        .numpy()
    )
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-7)
    session = Session(tmp_path / "native")
    signature = session.signatures["serving_default"]
    (served,) = session.run({signature.inputs["image"].name: image}, [signature.outputs["probabilities"].name])
    np.testing.assert_allclose(served, wanted, rtol=1e-5, atol=1e-7)


def test_the_development_server_names_engines_that_this_tensorrt_does_not_load(built, tmp_path, caplog):
    from tftrt_tools.servers.serving.local import loader

    path, _ = built
    manifest = passport.read(path, passport.MANIFEST)
    for version, named in (("8.4.3", True), (manifest["versions"]["tensorrt"], False)):
        manifest["versions"]["tensorrt"] = version
        passport.write(path, passport.MANIFEST, manifest)
        caplog.clear()
        loader._runnable(str(path), tmp_path / version)
        assert ("has those of 8.4.3, and" in caplog.text) == named and "runs natively" in caplog.text


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda file: file.write_bytes(file.read_bytes()[:-30]), "truncated"),
        (
            lambda file: file.write_bytes(file.read_bytes()[:500] + b"X" + file.read_bytes()[501:]),
            "a checksum is wrong",
        ),
        (lambda file: file.write_bytes(b""), "its engine file holds no engine"),
        (lambda file: file.unlink(), "the file is missing"),
        (lambda file: engine_file(file, (1, 9, 9, 1), (8, 8, 8, 1)), "1,9,9,1"),
        (
            lambda file: engine_file(file, (1, 8, 8, 1)),
            "the manifest says 2 engines (2 kB) built and saved, the model holds 1 engine (1 kB)",
        ),
        (lambda file: engine_file(file, (1, 8, 8, 1), (8, 8, 8, 1), (9, 8, 8, 1)), "3 engines are saved and 2 fit"),
    ],
)
def test_a_broken_engine_file_is_found(built, change, words):
    path, engine = built
    change(path / "assets" / (engine_assets.PREFIX + engine))
    about = [one for one in look(path).findings if words in one.text]
    assert [one.about for one in about] == [engine] and about[0].mend


def test_an_engine_file_that_belongs_to_nothing_is_found(built):
    path, engine = built
    engine_file(path / "assets" / (engine_assets.PREFIX + "TRTEngineOp_other"), (1, 8, 8, 1))
    assert found(path) == {"TRTEngineOp_other": "an engine file is named after it, and no engine op has this name"}


def test_an_engine_file_that_nothing_loads_is_found(digits):
    (engine,) = look(digits).engines
    (digits / "assets").mkdir(exist_ok=True)
    engine_file(digits / "assets" / (engine_assets.PREFIX + engine.name), (1, 8, 8, 1))
    texts = [one.text for one in look(digits).findings]
    assert any("never loaded" in text for text in texts) and any(
        "the manifest says no engine built" in text for text in texts
    )


def test_engines_of_another_machine_are_found(built):
    path, _ = built
    seen = look(path)
    other = [one.text for one in findings.find(seen, "10.0.1.6", ("7.5",))]
    assert "TensorRT" in other[0] and "10.0.1.6" in other[0]
    assert "compute capability 9.0" in other[1] and "7.5" in other[1]
    same = seen.manifest["versions"]["tensorrt"]
    assert findings.find(seen, same + ".1", ("9.0",)) == ()
    assert findings.find(seen) == ()


def test_a_table_of_another_tensorrt_is_found(digits):
    table = "TRT-8503-EntropyCalibration2\nTensorRTInputPH_0: 3c03156f\n"
    seen = look(edit(digits, set_engine(precision_mode="INT8", use_calibration=True, calibration_data=table)))
    assert [one.table_tensorrt for one in seen.engines] == ["8.5.3"]
    (other,) = set(findings.find(seen, "8.6.1")) - set(findings.find(seen))
    assert "for TensorRT 8.5.3; here is 8.6.1" in other.text and "--calibration_table" in other.mend
    assert set(findings.find(seen, "8.5.3.1")) == set(findings.find(seen))
    assert "model.export" not in other.mend
    # A Keras file becomes another graph in the Keras that comes with another TensorRT, and its table fits none.
    of_file = dataclasses.replace(seen, manifest={**seen.manifest, "source": "/models/digits.h5"})
    (other,) = set(findings.find(of_file, "8.6.1")) - set(findings.find(of_file))
    assert "--calibration_table" in other.mend and "model.export('DIR')" in other.mend and "digits.h5" in other.mend


def test_graph_and_manifest_that_disagree_are_found(digits):
    (engine,) = look(digits).engines
    assert found(edit(digits, set_engine(precision_mode="FP32"))) == {
        engine.name: "precision: the manifest says FP16, the graph FP32"
    }

    def rename(graph_def):
        for node in engine_nodes(graph_def):
            node.name = "TRTEngineOp_new"

    names = found(edit(digits, rename))
    assert "no such engine op" in names[engine.name] and "does not list it" in names["TRTEngineOp_new"]


@pytest.mark.parametrize(
    "attributes, words",
    [
        ({"precision_mode": "INT8", "use_calibration": True}, "calibrate in production"),
        ({"_allow_build_at_runtime": False}, "runs natively, always"),
    ],
)
def test_engine_ops_that_can_never_work_are_found(digits, attributes, words):
    assert any(words in one.text for one in look(edit(digits, set_engine(**attributes))).findings)


def test_an_engine_that_the_build_left_out_and_named_is_no_finding(digits):
    said = passport.read(digits, passport.MANIFEST)
    (engine,) = look(edit(digits, set_engine(_allow_build_at_runtime=False))).engines
    said["signatures"][0]["engines"][0]["allow_build_at_runtime"] = False
    said["signatures"][0]["unbuilt"] = [
        {"name": engine.name, "reason": "not ready when --max_build_minutes=1 were over"}
    ]
    passport.write(digits, passport.MANIFEST, said)
    assert not look(digits).findings


def test_what_the_build_left_to_tensorflow_is_shown_with_its_reason(digits):
    said = passport.read(digits, passport.MANIFEST)
    (engine,) = look(digits).engines
    said["signatures"][0]["refused_nodes"] = [
        {"node": "conv/crop", "op": "StridedSlice", "reason": "TensorRT refuses this node (SLICE)"}
    ]
    said["signatures"][0]["unbuilt"] = [{"name": engine.name, "reason": "not built: out of memory", "refused": True}]
    passport.write(digits, passport.MANIFEST, said)
    shown = " ".join(tftrt_inspect(digits).stdout.split())
    assert "node conv/crop (StridedSlice) stays in TensorFlow: TensorRT refuses this node (SLICE)" in shown
    assert f"{engine.name} has no engine and runs in TensorFlow: not built: out of memory" in shown


def test_a_calibrated_engine_is_not_complained_about(digits):
    edit(digits, set_engine(precision_mode="INT8", use_calibration=True, calibration_data="table"))
    assert not any("calibrate" in one.text for one in look(digits).findings)


def test_a_removed_native_segment_is_found(digits):
    def remove(graph_def):
        kept = [one for one in graph_def.library.function if not one.signature.name.endswith("_native_segment")]
        del graph_def.library.function[:]
        graph_def.library.function.extend(kept)

    assert any("native segment was removed" in one.text for one in look(edit(digits, remove)).findings)


def test_one_name_for_two_segments_is_found(converted, tmp_path):
    path = pathlib.Path(shutil.copytree(converted("ranker"), tmp_path / "ranker"))

    def merge(graph_def):
        for node in engine_nodes(graph_def):
            node.name = (
                node.name.rsplit("/", 1)[0] + "/TRTEngineOp_000_000" if "/" in node.name else "TRTEngineOp_000_000"
            )

    seen = look(edit(path, merge))
    assert seen.ambiguous == ("TRTEngineOp_000_000",)
    assert any("share this name" in one.text for one in seen.findings)


def test_an_engine_that_no_signature_reaches_is_found(digits):
    from tftrt_tools.models.savedmodel.job import protos

    proto = protos.read(digits)
    functions = proto.meta_graphs[0].graph_def.library.function
    extra = functions.add()
    extra.CopyFrom(next(one for one in functions if any(node.op == "TRTEngineOp" for node in one.node_def)))
    extra.signature.name = "nobody_calls_me"
    for node in extra.node_def:
        node.name = node.name.replace("TRTEngineOp", "TRTEngineOp_lost")
    (digits / "saved_model.pb").write_bytes(proto.SerializeToString())
    assert any(
        one.about.startswith("TRTEngineOp_lost") and "no signature reaches it" in one.text
        for one in look(digits).findings
    )


def test_a_verification_of_other_files_is_found(digits):
    from tftrt_tools.models.savedmodel import files

    document = {"passed": True, "converted_digest": files.digest(digits), "created": "then", "mode": "gpu"}
    passport.write(digits, passport.VERIFY, document)
    assert found(digits) == {}
    (digits / "assets").mkdir(exist_ok=True)
    (digits / "assets" / "new.txt").write_text("x")
    assert "have changed" in found(digits)["verify.json"]
    document |= {"converted_digest": files.digest(digits), "passed": False, "problems": ["too far"]}
    passport.write(digits, passport.VERIFY, document)
    assert "too far" in found(digits)["verify.json"]


def test_a_damaged_manifest_is_a_finding_and_check_makes_it_an_error(digits):
    (passport.folder(digits) / passport.MANIFEST).write_text("{")
    assert "damaged" in found(digits)[passport.MANIFEST]
    (passport.folder(digits) / passport.MANIFEST).write_text('{"signatures": [{}]}')
    assert found(digits)[passport.MANIFEST].endswith("is damaged: it has no 'name'")
    assert tftrt_inspect(digits).returncode == errors.EXIT_DONE
    done = tftrt_inspect(digits, "--check")
    assert done.returncode == errors.EXIT_CHECK and "is damaged" in " ".join(done.stdout.split())


def test_a_model_of_tensorflows_own_converter_is_understood(zoo_model, tmp_path, monkeypatch):
    import types

    from tensorflow.python.compiler.tensorrt import trt_convert

    from tftrt_tools.base import tf_private

    # TensorFlow's converter refuses to start where its tensors would lie on a CPU; nothing else in it needs a GPU.
    monkeypatch.setattr(trt_convert.array_ops, "zeros", lambda shape: types.SimpleNamespace(device="GPU:0"))
    # It does not know the user's word that an older patch of TensorRT may stand in.
    with tf_private._own_version_rule():
        converter = trt_convert.TrtGraphConverterV2(
            input_saved_model_dir=str(zoo_model("digits_cnn")),
            precision_mode="FP16",
            use_dynamic_shape=True,
            dynamic_shape_profile_strategy="Range",
        )
    converter.convert()
    monkeypatch.undo()
    converter.save(str(tmp_path / "stock"))
    seen = look(tmp_path / "stock")
    (engine,) = seen.engines
    assert (engine.precision, engine.implicit_batch, engine.profile_strategy) == ("FP16", False, "Range")
    assert seen.signatures[0].coverage == 1.0 and seen.manifest is None and seen.findings == ()


def test_the_result_survives_the_process_border(built, planned):
    seen = look(built[0])
    assert Inspection.from_dict(json.loads(json.dumps(seen.to_dict()))) == seen
    plan = planned["ranker", True]
    again = Plan.from_dict(json.loads(json.dumps(plan.to_dict())))
    assert (
        dataclasses.replace(again, signatures=()) == dataclasses.replace(plan, signatures=())
        and again.to_dict() == plan.to_dict()
    )
