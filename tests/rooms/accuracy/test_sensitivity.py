"""Which nodes hurt when a model goes to INT8 or FP16."""

import json
import math
import re

import numpy as np
import pytest
import tensorflow as tf

from tests import measured_jobs, quantized
from tests.sensitive_models import kernels, rows, saved_chain, saved_function, two_layers
from tests.stacks import WORST
from tests.zoo import zoo_inputs
from tftrt_tools.accuracy import harm, measurement, metrics, sensitivity, simulation_job, thresholds
from tftrt_tools.accuracy.simulating import SimulateRequest
from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import sensitivity as sensitivity_command
from tftrt_tools.command_line.report import pictures, sensitivity_plot
from tftrt_tools.models.execution import arrays as array_reader
from tftrt_tools.models.execution import run
from tftrt_tools.models.inputs import cutting
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.savedmodel import shapes as shape_grammar
from tftrt_tools.tftrt.conversion.converting import TablesFrom
from tftrt_tools.tftrt.conversion.settings import Settings

INT8 = Settings(precision_mode="INT8", calibration_method="max")


def simulated(model, path, settings=INT8, batch_size=32, **request):
    """The only SignatureHarm of a simulation in this process."""
    import tempfile

    specs = {"serving_default": [shape_grammar.InputSpec("x", "float32", (None, 16))]}
    calls, _ = cutting.calls_of_arrays(array_reader.load(path), specs, range(batch_size, 0, -1))
    with tempfile.TemporaryDirectory() as folder:
        saved = {name: [one for _, one in run.save_calls(made, folder)] for name, made in calls.items()}
        request = SimulateRequest(model=str(model), settings=settings, calls=saved, **request)
        (signature,) = simulation_job.job(request).signatures
    return harm.SignatureHarm.from_dict(signature.to_dict())


@pytest.fixture(scope="module")
def spread(zoo_model, tmp_path_factory):
    """(model, path of images) of the sample network with badly spread channels."""
    from saved_models import spread_cnn

    path = tmp_path_factory.mktemp("spread") / "images.npz"
    np.savez(path, image=spread_cnn.held_back()[0][:128])
    return zoo_model("spread_cnn"), str(path)


@pytest.fixture(scope="module")
def studied(tftrt, spread, tmp_path_factory):
    """(the command's output, its JSON, its folder) for that network in INT8."""
    model, path = spread
    folder = tmp_path_factory.mktemp("studied")
    done = tftrt(
        "sensitivity",
        model,
        f"--data={path}",
        "--calibration_method=max",
        "--json=a.json",
        "--html=a.html",
        "--plot=a.png",
        cwd=folder,
        env={"CUDA_VISIBLE_DEVICES": "-1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads((folder / "a.json").read_text()), folder


def test_badly_spread_channels_come_out_on_top_and_keeping_their_nodes_high_restores_the_answers(studied):
    _, found, _ = studied
    (signature,) = found["signatures"]
    first, second, third = signature["nodes"][:3]
    assert {"/".join(one["name"].split("/")[-3:]) for one in (first, second)} == WORST
    assert second["snr_db"] < 10 < 30 < third["snr_db"]
    assert first["share"] + second["share"] > 0.99
    assert signature["snr_db"] < 5 and signature["total"][0]["top1"] < 0.5
    assert signature["suggested_nodes"] == [first["name"], second["name"]]
    kept = {one["nodes"]: one for one in signature["kept"]}
    assert kept[2]["snr_db"] > 30 and kept[2]["effects"][0]["top1"] > 0.97


def test_the_suggested_flag_does_in_a_conversion_what_the_simulation_says(spread, studied):
    model, path = spread
    _, found, _ = studied
    name, pattern = re.fullmatch(r"--(\w+)='(.*)'", found["flag"]).groups()
    assert name == "high_precision_nodes"
    again = sensitivity.study(model, Settings(**{**INT8.to_dict(), name: pattern}), sensitivity.Options(data=path))
    (signature,) = again.signatures
    kept = found["signatures"][0]["kept"][1]["snr_db"]
    assert harm.worst(signature.total).snr_db == pytest.approx(kept, abs=0.5)
    assert set(found["signatures"][0]["suggested_nodes"]) <= set(signature.unrounded)


def test_what_is_printed_and_written(studied):
    printed, found, folder = studied
    assert all(name in printed for name in WORST) and "suggestion: " + found["flag"] in printed
    assert "the 2 worst nodes, as suggested" in printed and "simulated only: no GPU is visible here" in printed
    assert "by max of the scored data itself, for want of --calibration_data" in printed
    assert (folder / "a.png").read_bytes().startswith(b"\x89PNG")
    page = (folder / "a.html").read_text()
    assert "<svg" in page and all(name in page for name in WORST) and found["model_digest"] in page
    back = harm.Sensitivity.from_dict(found)
    assert back.signatures[0].to_dict() == found["signatures"][0] and back.flag == found["flag"]


def test_a_layer_with_one_huge_weight_that_hardly_counts_comes_first(tmp_path, monkeypatch):
    made = kernels()
    made[2][0, :] = 1000.0
    made[1][:, 0] = 1e-6
    signature = simulated(saved_chain(tmp_path / "model", made), rows(tmp_path / "x.npz"))
    assert signature.nodes[0].name.endswith("layer2") and signature.nodes[0].share > 0.9
    assert signature.suggested_nodes == (signature.nodes[0].name,)
    plot = sensitivity_plot.bars([signature], "INT8").decode()
    assert "suggested for a higher precision" in plot and ">0%<" in plot, "a bar's length is a share, and begins at 0"
    monkeypatch.setattr(harm.SignatureHarm, "suggested_nodes", ())
    none = sensitivity_plot.bars([signature], "INT8").decode()
    assert "suggested" not in none and "everything rounded" in none, "no legend without its mark"


def test_a_layer_whose_input_holds_one_huge_channel_comes_first(tmp_path):
    made = kernels()
    made[1][:, 3] *= 1000.0
    made[2][3, :] /= 1000.0
    signature = simulated(saved_chain(tmp_path / "model", made), rows(tmp_path / "x.npz"))
    assert signature.nodes[0].name.endswith("layer2") and signature.nodes[0].share > 0.9


@pytest.mark.parametrize("settings", [INT8, Settings(precision_mode="FP16")], ids=lambda one: one.precision_mode)
def test_small_noises_of_single_nodes_sum_to_about_that_of_all(settings, tmp_path):
    signature = simulated(saved_chain(tmp_path / "model", kernels()), rows(tmp_path / "x.npz", 512), settings)
    alone, together = sum(node.worst.noise for node in signature.nodes), harm.worst(signature.total).noise
    assert 0.6 < alone / together < 1.7
    assert sum(node.share for node in signature.nodes) == pytest.approx(1)
    assert [node.worst.noise for node in signature.nodes] == sorted(
        (node.worst.noise for node in signature.nodes), reverse=True
    )
    assert len(signature.nodes) == 4


def test_values_that_half_precision_cannot_hold_come_first(tmp_path):
    made = kernels()
    made[1] *= 1e5
    made[2] /= 1e5
    signature = simulated(
        saved_chain(tmp_path / "model", made), rows(tmp_path / "x.npz"), Settings(precision_mode="FP16")
    )
    worst = signature.nodes[0]
    assert worst.worst.nonfinite and worst.worst.snr_db == -math.inf and worst.share == 1
    assert {node.name[-6:] for node in signature.nodes if node.worst.nonfinite} == {"layer1", "layer2"}
    assert len(signature.suggested_nodes) == 2 and signature.to_dict()["nodes"][0]["snr_db"] == "-inf"


@pytest.mark.parametrize("broken", [3, slice(None)], ids=["some", "all"])
def test_weights_that_are_not_finite_are_told_as_by_verify(broken, tftrt, tmp_path):
    made = kernels()
    made[3][:, broken] = math.nan
    model, path = saved_chain(tmp_path / "model", made), rows(tmp_path / "x.npz")
    done = tftrt(
        "sensitivity",
        model,
        f"--data={path}",
        "--precision=FP16",
        "--minimum_segment_size=1",
        f"--json={tmp_path / 's.json'}",
    )
    assert done.returncode == 0, done.stderr
    (text,) = json.loads((tmp_path / "s.json").read_text())["not_finite"]
    assert (
        "NaN or Inf of" in text and f"answers are not finite: {text}: check the inputs and the weights\n" in done.stdout
    )
    assert (
        "suggestion: none; no precision fixes answers that are not finite\n" in done.stdout
        and "next:" not in done.stdout
    )
    converted = tmp_path / "converted"
    done = tftrt("convert", f"--model={model}", f"--output={converted}", "--precision=FP16", "--minimum_segment_size=1")
    done = tftrt("verify", model, converted, f"--data={path}")
    assert done.returncode == 3 and "itself: check the inputs and the weights)" in done.stdout


def test_nodes_that_the_settings_keep_in_fp32_are_not_rounded(tmp_path):
    made = kernels()
    made[1] *= 1e5
    made[2] /= 1e5
    settings = Settings(precision_mode="FP16", fp32_nodes=".*(layer[12]|Relu_1)", minimum_segment_size=1)
    signature = simulated(saved_chain(tmp_path / "model", made), rows(tmp_path / "x.npz"), settings)
    assert {node.name[-6:] for node in signature.nodes} == {"layer0", "layer3"}
    assert harm.worst(signature.total).snr_db > 50


def test_only_the_nodes_that_are_asked_for_are_rounded_alone(tmp_path):
    signature = simulated(saved_chain(tmp_path / "model", kernels()), rows(tmp_path / "x.npz"), nodes=".*layer[12]")
    assert {node.name[-6:] for node in signature.nodes} == {"layer1", "layer2"} and signature.other_nodes == 2


def test_batches_of_any_size_give_the_same_harm(tmp_path):
    model, path = saved_chain(tmp_path / "model", kernels()), rows(tmp_path / "x.npz", 48)
    found = [simulated(model, path, batch_size=size) for size in (48, 7)]
    assert [one.rows for one in found] == [48, 48]
    for first, second in zip(found[0].nodes, found[1].nodes, strict=True):
        assert first.name == second.name and first.worst.snr_db == pytest.approx(second.worst.snr_db, abs=0.5)


def test_calibration_data_gives_the_ranges(tmp_path):
    model, path = saved_chain(tmp_path / "model", kernels()), rows(tmp_path / "x.npz")
    small = rows(tmp_path / "small.npz", x=np.float32(0.01) * np.load(path)["x"])
    narrow, own = (simulated(model, path, int8=TablesFrom(options=DataOptions(source=one))) for one in (small, path))
    assert harm.worst(narrow.total).snr_db < 3 < 25 < harm.worst(own.total).snr_db
    scored = simulated(model, path)
    assert [node.effects for node in own.nodes] == [node.effects for node in scored.nodes], (
        "without any, the scored data gives them"
    )


def test_every_signature_that_the_data_fills_is_studied(zoo_model, tmp_path):
    inputs = zoo_inputs("ranker", batch=8)
    known = {f"item_embedding/{name}": value for name, value in inputs["item_embedding"].items()}
    np.savez(
        tmp_path / "x.npz",
        **{name: value.astype("S") if value.dtype == object else value for name, value in known.items()},
    )
    done = sensitivity.study(zoo_model("ranker"), INT8, sensitivity.Options(data=str(tmp_path / "x.npz")))
    assert [one.name for one in done.signatures] == ["item_embedding"] and list(done.settings["signature_keys"]) == [
        "item_embedding"
    ]


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """(model, path of its data)."""
    folder = tmp_path_factory.mktemp("chain")
    return saved_chain(folder / "model", kernels()), rows(folder / "x.npz")


@pytest.mark.parametrize(
    ("settings", "options", "says"),
    [
        (INT8, {"data": ""}, "--data is missing"),
        (Settings(), {}, "FP32 rounds nothing"),
        (INT8, {"nodes": "("}, "no regular expression"),
        (INT8, {"batch_size": 0}, "--batch_size is 0"),
        (Settings(precision_mode="INT8", calibrator="tensorrt"), {}, "needs --calibration_data"),
        (INT8, {"measure": "maybe"}, "--measure=maybe"),
    ],
)
def test_what_can_never_work_is_refused_before_anything_runs(settings, options, says, chain):
    model, path = chain
    with pytest.raises(errors.UsageError, match=says):
        sensitivity.study(model, settings, sensitivity.Options(**{"data": path, **options}))


def test_nodes_that_are_not_there_are_refused_with_some_that_are(chain):
    with pytest.raises(errors.UsageError, match="--nodes=conv.* matches no node") as caught:
        simulated(*chain, nodes="conv.*")
    assert "layer0" in caught.value.mend


def test_a_model_without_engines_is_refused(chain):
    with pytest.raises(errors.TftrtError, match="no segment of signature 'serving_default'"):
        simulated(*chain, Settings(precision_mode="INT8", minimum_segment_size=1000))


def test_measuring_is_refused_where_no_gpu_is(chain, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with pytest.raises(errors.TftrtError, match="--measure=gpu builds engines"):
        sensitivity.study(chain[0], INT8, sensitivity.Options(data=chain[1], measure="gpu"))


def test_a_converted_model_is_refused(converted, chain):
    with pytest.raises(errors.UsageError, match="is a converted model"):
        sensitivity.study(converted("digits_cnn"), INT8, sensitivity.Options(data=chain[1]))


def test_a_quantization_aware_model_is_refused(tmp_path):
    quantized.build(tmp_path / "model", "FakeQuantWithMinMaxVars")
    np.savez(tmp_path / "x.npz", image=np.zeros((4, 8, 8, 3), "float32"))
    with pytest.raises(errors.UsageError, match="quantization-aware"):
        sensitivity.study(tmp_path / "model", INT8, sensitivity.Options(data=str(tmp_path / "x.npz")))


def test_a_model_without_float_outputs_is_refused(tmp_path):
    model = saved_function(tmp_path / "model", lambda x: {"class": tf.argmax(two_layers(x), -1)})
    with pytest.raises(errors.TftrtError, match="has no float output"):
        simulated(model, rows(tmp_path / "x.npz"))


def test_a_model_that_draws_random_numbers_is_refused(tmp_path):
    model = saved_function(tmp_path / "model", lambda x: {"y": two_layers(x + tf.random.normal(tf.shape(x)))})
    with pytest.raises(errors.TftrtError, match="does not answer like the model"):
        simulated(model, rows(tmp_path / "x.npz"))


def test_a_picture_of_an_unknown_kind_is_refused():
    with pytest.raises(errors.UsageError, match="--plot=a.gif"):
        pictures.check("a.gif")


def test_calibration_data_where_nothing_is_calibrated_is_refused(tftrt, chain):
    model, path = chain
    done = tftrt("sensitivity", model, f"--data={path}", "--precision=FP16", f"--calibration_data={path}")
    assert done.returncode == errors.EXIT_USAGE and "no effect" in done.stderr


def effects(snr_db, top1=None):
    return (harm.Effect(output="y", noise=10 ** (-snr_db / 10), top1=top1, nonfinite=0),)


def signature_of(total, *kept):
    nodes = tuple(harm.Node(name=f"n{number}", op="Conv2D", engine="e", effects=effects(10)) for number in range(9))
    return harm.SignatureHarm(
        name="s",
        rows=1,
        nodes=nodes,
        total=effects(total),
        kept=tuple(harm.Kept(number, effects(snr)) for number, snr in enumerate(kept, 1)),
        unrounded=(),
        other_nodes=0,
        fidelity_db=math.inf,
    )


@pytest.mark.parametrize(
    ("total", "kept", "suggested"),
    [
        (0, (1, 2, 36, 38), 3),
        (0, (30, 31, 32), 1),
        (10, (20, 29, 37, 38), 3),
        (30, (33, 36, 39), 0),
        (10, (), 0),
        (0, (7, 7, 7), 1),
        (20, (19, 30, 25), 2),
    ],
)
def test_nodes_are_suggested_up_to_the_last_that_gains_much(total, kept, suggested):
    signature = signature_of(total, *kept)
    assert len(signature.suggested_nodes) == suggested


def bounded(snr_db, bound=30):
    """Effects that miss verify's bound below `bound` dB."""
    return (
        harm.Effect(
            output="y",
            noise=10 ** (-snr_db / 10),
            top1=None,
            nonfinite=0,
            missed=() if snr_db >= bound else ("y: snr_db is too low",),
        ),
    )


@pytest.mark.parametrize(
    ("total", "kept", "suggested"),
    [
        (
            0,
            {1: 10, 2: 29.1, 3: 29.5, 8: 29.9, 16: 34, 12: 31, 10: 30.2},
            10,
        ),  # two stand out, and the bound asks for ten
        (0, {1: 10, 2: 29.1, 3: 29.2, 4: 29.3}, None),  # none was found
        (-200, {1: -200, 2: 29.1, 3: 30.1}, 3),  # NaN until two are kept
        (26, {1: 27, 2: 28, 16: 30.5}, 16),  # nothing stands out, and the bound is kept in the end
        (31, {1: 32, 2: 33}, None),
        (31, {1: 38, 2: 38.5}, 1),
        (0, {1: 10, 2: 35}, 2),
    ],
)
def test_what_is_suggested_keeps_verifys_bounds(total, kept, suggested):
    found = tuple(harm.Kept(number, bounded(kept[number])) for number in sorted(kept))
    nodes = tuple(harm.Node(name=f"n{number}", op="Conv2D", engine="e", effects=bounded(10)) for number in range(40))
    signature = harm.SignatureHarm(
        name="s",
        rows=1,
        nodes=nodes,
        total=bounded(total),
        kept=found,
        unrounded=(),
        other_nodes=0,
        fidelity_db=math.inf,
    )
    assert len(signature.suggested_nodes) == (suggested or 0)
    done = harm.Sensitivity(
        model="m",
        model_digest="",
        precision="FP16",
        settings={},
        data="x",
        ranges="",
        signatures=(signature,),
        gpu=None,
        seconds=0.0,
    )
    assert bool(done.missed) == (suggested is None and total < 30) and bool(done.flag) == bool(suggested)
    assert harm.SignatureHarm.from_dict(signature.to_dict()) == signature


@pytest.mark.parametrize(
    ("levels", "kept", "flag"),
    [
        ({"entropy": 3.3, "percentile 99.99": 21.3, "max": 19.1}, 15, "--calibration_method=percentile"),
        (
            {"entropy": 3.3, "percentile 99.9": 21.3},
            15,
            "--calibration_method=percentile --calibration_percentile=99.9",
        ),
        ({"entropy": 3.3, "mse": 14.0}, 15, "--high_precision_nodes='n0'"),
        ({"entropy": 3.3, "mse": 4.0}, 4, ""),
        ({}, 15, "--high_precision_nodes='n0'"),
    ],
)
def test_a_method_that_gives_more_than_nodes_is_named_first(levels, kept, flag):
    nodes = tuple(harm.Node(name=f"n{number}", op="Conv2D", engine="e", effects=bounded(10)) for number in range(4))
    signature = harm.SignatureHarm(
        name="s",
        rows=1,
        nodes=nodes,
        total=bounded(3.3, 15),
        kept=(harm.Kept(1, bounded(kept, 15)),),
        unrounded=(),
        other_nodes=0,
        fidelity_db=math.inf,
        method="entropy",
        methods=tuple(harm.ByMethod(method, bounded(level, 15)) for method, level in levels.items()),
    )
    done = harm.Sensitivity(
        model="m",
        model_digest="",
        precision="INT8",
        settings={},
        data="x",
        ranges="by entropy",
        signatures=(signature,),
        gpu=None,
        seconds=0.0,
    )
    assert done.flag == flag and harm.Sensitivity.from_dict(json.loads(json.dumps(done.to_dict()))).flag == flag


def test_nodes_are_tried_until_verifys_bound_is_kept(tmp_path, monkeypatch):
    """Products in a row, of which each costs as much: no few stand out, and the bound asks for some."""
    made = [np.random.default_rng(number).normal(size=(16, 16)).astype("float32") / 3 for number in range(24)]
    model, path = saved_chain(tmp_path / "model", made), rows(tmp_path / "x.npz")
    bound = 20.5  # all of them leave 18.9 dB
    monkeypatch.setitem(thresholds.DEFAULTS, "INT8", {"snr_db": bound})
    signature = simulated(model, path)
    assert harm.worst(signature.total).snr_db < bound
    suggested = signature.suggested
    assert suggested and suggested.holds and harm.worst(suggested.effects).snr_db >= bound
    fewer = [one for one in signature.kept if one.nodes == suggested.nodes - 1]
    assert not fewer or not fewer[0].holds


@pytest.mark.parametrize(
    ("levels", "tried"),
    [
        ([], 8),
        ([20] * 3, 8),
        ([20] * 50, 8),
        ([10] * 9 + [34] * 50, 9),
        ([10] * 9 + [14] * 50, 8),
        ([0] * 2 + [30] * 9 + [40] * 50, 8),
        ([0] * 12 + [30] * 9 + [40] * 50, 12),
        ([0] * 32 + [30], 32),
        ([0] * 33 + [30] * 9, 8),
        ([-math.inf] * 10 + [30] * 9, 10),
        ([30] * 10 + [math.inf] * 9, 10),
    ],
)
def test_as_many_nodes_are_tried_as_stand_before_the_widest_gap(levels, tried):
    nodes = [
        harm.Node(
            name="n",
            op="Mul",
            engine="e",
            effects=(harm.Effect(output="y", noise=10 ** (-level / 10), top1=None, nonfinite=0),),
        )
        for level in levels
    ]
    assert harm.tried(nodes) == tried


def test_the_effect_of_a_comparison():
    compared = metrics.Accumulator("s", "logits")
    reference = np.float32([[3, 0], [0, 4]])
    compared.add(reference, reference + np.float32([[0.5, 0], [0, 0]]))
    effect = harm.Effect.of(compared.result())
    assert effect.noise == pytest.approx(0.25 / 25) and effect.snr_db == pytest.approx(20) and effect.top1 == 1
    assert harm.Effect.from_dict(effect.to_dict()) == effect
    equal = metrics.Accumulator("s", "y")
    equal.add(reference, reference)
    assert harm.Effect.of(equal.result()).noise == 0 and harm.Effect.of(equal.result()).to_dict()["snr_db"] == "inf"


def test_the_rank_is_that_of_the_worst_output():
    def node(name, first, second):
        return harm.Node(
            name=name,
            op="Conv2D",
            engine="e",
            effects=(
                harm.Effect(output="a", noise=first, top1=None, nonfinite=0),
                harm.Effect(output="b", noise=second, top1=None, nonfinite=0),
            ),
        )

    ranked = harm.ranked([node("even", 0.2, 0.2), node("one", 0.0, 0.6), node("broken", 0.01, math.inf)])
    assert [one.name for one in ranked] == ["broken", "one", "even"] and ranked[0].share == 1
    ranked = harm.ranked([node("even", 0.2, 0.2), node("one", 0.0, 0.6)])
    assert [one.share for one in ranked] == pytest.approx([0.75, 1.0])


def test_a_measured_gain_is_that_of_the_output_that_was_worst():
    baseline = (
        harm.Effect(output="a", noise=0.001, top1=None, nonfinite=0),
        harm.Effect(output="b", noise=0.1, top1=0.8, nonfinite=0),
    )
    gained = harm.Measured.of(
        (
            harm.Effect(output="a", noise=0.01, top1=None, nonfinite=0),
            harm.Effect(output="b", noise=0.01, top1=0.9, nonfinite=0),
        ),
        baseline,
    )
    assert (
        gained.gain_db == pytest.approx(10) and gained.gain_top1 == pytest.approx(0.1) and gained.effect.output == "b"
    )
    assert harm.Measured.from_dict(gained.to_dict()) == gained
    failed = harm.Measured(None, None, None, "it did not build")
    assert harm.Measured.from_dict(failed.to_dict()) == failed


def test_the_shapes_of_the_scored_data_are_those_that_engines_are_built_for():
    calls = {
        "s": [run.Call("s", {"x": np.zeros((8, 3)), "n": np.zeros(())})] * 2
        + [run.Call("s", {"x": np.zeros((5, 3)), "n": np.zeros(())})]
    }
    specs = {"s": [shape_grammar.InputSpec("x", "float32", (None, 3)), shape_grammar.InputSpec("n", "float32", ())]}
    declared = {
        dynamic: shape_grammar.calls(shape_grammar.parse(measurement.shapes_flag(calls, dynamic)), specs)
        for dynamic in (True, False)
    }
    assert declared == {
        True: {"s": [{"x": (8, 3), "n": ()}, {"x": (5, 3), "n": ()}]},
        False: {"s": [{"x": (8, 3), "n": ()}]},
    }


def test_a_node_is_excluded_besides_those_that_were_already():
    once = measurement.excluding(INT8, "a/b.c")
    assert re.fullmatch(once.high_precision_nodes, "a/b.c") and not re.fullmatch(once.high_precision_nodes, "a/bxc")
    twice = measurement.excluding(once, "d")
    assert all(re.fullmatch(twice.high_precision_nodes, name) for name in ("a/b.c", "d"))
    assert measurement.excluding(Settings(precision_mode="FP16"), "d").fp32_nodes == "d"


def test_engines_are_built_in_one_process_and_another_takes_over_where_it_dies(monkeypatch):
    monkeypatch.setattr(measurement, "measure", measured_jobs.work)
    requests = [{"do": what} for what in ("answer", "refuse", "abort", "answer", "answer")]
    first, second, died, after, last = measurement._outcomes(requests)
    assert isinstance(second, errors.TftrtError) and "SIGABRT" in died.cause
    assert after["pid"] == last["pid"] != first["pid"] and (after["calls"], last["calls"]) == (1, 2)


def test_without_the_model_with_everything_rounded_nothing_else_is_built(monkeypatch):
    monkeypatch.setattr(measurement, "measure", measured_jobs.work)
    assert len(measurement._outcomes([{"do": "refuse"}, {"do": "answer"}])) == 1


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["INT8", "FP16"])
def test_without_a_gpu_everything_about_measuring_but_the_engines_works(precision, chain, tmp_path, monkeypatch):
    # Engines that are not built run natively, and natively nothing is rounded.
    monkeypatch.setattr(measurement, "shapes_flag", lambda calls, dynamic: "")
    model, path = chain
    settings = Settings(
        **{
            **INT8.to_dict(),
            "precision_mode": precision,
            "signature_keys": ("serving_default",),
            "minimum_segment_size": 1,
        }
    )
    specs = {"serving_default": [shape_grammar.InputSpec("x", "float32", (None, 16))]}
    calls, _ = cutting.calls_of_arrays(array_reader.load(path), specs, range(32, 0, -1))
    saved = {name: [one for _, one in run.save_calls(made, tmp_path / "in")] for name, made in calls.items()}
    answer = simulation_job.job(SimulateRequest(model=str(model), settings=settings, calls=saved))
    given = measurement.calibration(answer.tables, answer.method) if answer.tables else None
    (signature,) = measurement.measured(model, settings, given, calls, saved, answer.signatures, 2, str(tmp_path))
    assert harm.worst(signature.measured).snr_db > 100
    assert [node.measured is not None for node in signature.nodes] == [True, True, False, False]
    assert all(node.measured.problem == "" and node.measured.gain_db is not None for node in signature.nodes[:2])
    assert harm.SignatureHarm.from_dict(json.loads(json.dumps(signature.to_dict()))) == signature


@pytest.mark.gpu
@pytest.mark.gpu_alone
@pytest.mark.parametrize("precision", ["INT8", "FP16"])
def test_the_worst_nodes_are_measured_with_engines(precision, spread):
    model, path = spread
    settings = Settings(precision_mode=precision, calibration_method="max")
    done = sensitivity.study(model, settings, sensitivity.Options(data=path, measure="gpu", measure_nodes=2))
    (signature,) = done.signatures
    assert signature.measured and done.measured_problem == ""
    measured = [node.measured for node in signature.nodes if node.measured]
    assert len(measured) == 2 and not any(one.problem for one in measured)
    if precision == "INT8":
        assert max(one.gain_db for one in measured) > 1, (signature.measured, measured)


@pytest.mark.parametrize(("total", "suggested"), [(62, 0), (31, 1)])
def test_answers_that_are_good_enough_need_no_node_in_a_higher_precision(total, suggested):
    found = (harm.Kept(1, bounded(total + 10)),)
    nodes = (harm.Node(name="n", op="Conv2D", engine="e", effects=bounded(10)),) * 3
    signature = harm.SignatureHarm(
        name="s",
        rows=1,
        nodes=nodes,
        total=bounded(total),
        kept=found,
        unrounded=(),
        other_nodes=0,
        fidelity_db=math.inf,
    )
    assert len(signature.suggested_nodes) == suggested
    done = harm.Sensitivity(
        model="m",
        model_digest="",
        precision="FP16",
        settings={},
        data="x",
        ranges="",
        signatures=(signature,),
        gpu=None,
        seconds=0.0,
    )
    assert (sensitivity_command._suggestion(done) == "none; verify's bounds hold already") == (not suggested)
