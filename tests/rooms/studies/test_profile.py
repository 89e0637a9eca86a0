"""The profile of a model: recordings of an H100 taken apart, the document and where it is kept, the tables, pages and files that are made of
it, and the whole command where there is no GPU."""

import dataclasses
import gzip
import json
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

from tests import doubles, timelines
from tests.command_line import assert_clear
from tests.conftest import ROOT
from tftrt_tools.base import errors
from tftrt_tools.base.process import child
from tftrt_tools.studies.profiling import (
    calls,
    chrome,
    comparison,
    cupti,
    engine_profile,
    layer_tracks,
    measure,
    overlap,
    profile,
    rows,
    stored,
    traces,
)

DATA = pathlib.Path(__file__).parents[2] / "data/calls"


def recorded(name):
    """measure.Measured of a recording."""
    folder = DATA / name
    facts, manifest = (
        json.loads(gzip.decompress((folder / f"{one}.json.gz").read_bytes())) for one in ("facts", "manifest")
    )
    return measure.of_recording(
        facts, folder, [measure.Named(name, "sha256:1"), measure.Named("original", "sha256:2")], manifest, True
    )


@pytest.fixture(scope="module")
def resnet():
    return recorded("resnet50_fp16").profile


@pytest.fixture(scope="module")
def digits():
    return recorded("digits_fp16").profile


@pytest.fixture(scope="module")
def fer():
    """What `tftrt profile` wrote on an H100 of a model that others have trained, its engines included."""
    return profile.Profile.from_dict(
        json.loads(gzip.decompress((DATA.parent / "profiles/fer_fp16.json.gz").read_bytes()))
    )


def part(call, group, device):
    return sum(one.seconds for one in call.parts if (one.group, one.device) == (group, device))


# --- recordings of an H100


def test_parts_of_recorded_calls_add_up_to_the_measured_latency_and_little_is_unplaced(resnet, digits):
    every = [call for found in (resnet, digits) for side in (found.model, found.original) for call in side.calls]
    assert len(every) == 6
    for call in every:
        assert sum(one.seconds for one in call.parts) == pytest.approx(call.latency.p50)
        assert min(one.seconds for one in call.parts) >= 0 and call.unplaced_share < calls.UNPLACED
        assert call.gpu_seconds + call.idle_seconds == pytest.approx(call.latency.p50)
        assert sum(one.traced_seconds for one in call.parts) == pytest.approx(call.traced_seconds)
        assert call.timeline[0].start == 0 and call.timeline[-1].end > 0.5 * call.traced_seconds


def test_an_engine_of_resnet50_has_its_kernels_and_the_original_its_ops(resnet):
    call, original = resnet.model.calls[0], resnet.original.calls[0]
    (engine,) = call.engines
    assert (engine.runs, engine.kernels, engine.fallbacks, engine.builds) == (1, 62, 0, 0)
    assert engine.arithmetic["FP16"] > 0.9 * sum(engine.arithmetic.values())
    assert (
        part(call, "engine", "GPU") == pytest.approx(engine.gpu_seconds)
        and not part(call, "op", "GPU")
        and not call.ops
    )
    assert not original.engines and part(original, "op", "GPU") == pytest.approx(
        sum(one.gpu_seconds for one in original.ops), rel=0.02
    )
    assert sum(one.type == "Conv2D" for one in original.ops) == 53


def test_copies_have_bytes_and_stages(resnet):
    batch = resnet.model.calls[1]
    assert {(one.kind, one.group): one.bytes for one in batch.copies} == {
        ("host to GPU", "input"): 32 * 224 * 224 * 3 * 4,
        ("GPU to host", "output"): 32 * 1000 * 4,
    }
    assert part(batch, "input", "GPU") > 0.001, "19 MB take more than a millisecond"


def test_a_shape_without_an_engine_is_told(digits):
    call = digits.model.calls[1]
    assert call.shapes == {"image": (4, 8, 8, 1)} and sum(one.fallbacks for one in call.engines) == 1
    assert call.later.fallback and any("has no engine for this shape" in note for note in call.notes)
    assert {one.type for one in call.ops} >= {"Conv2D", "MatMul", "Softmax"}, "the native segment's ops"


def test_several_callers_of_one_stream_never_overlap_on_the_gpu(resnet):
    one, two, four = resnet.model.calls[0].callers
    assert (one.callers, two.callers, four.callers) == (1, 2, 4) and one.overlap is None
    assert two.overlap.streams == 1 and two.overlap.kernels_at_once == 0 and 1.5 < two.overlap.calls_under_way <= 2
    assert two.overlap.gpu_busy < four.overlap.gpu_busy < 0.5


def test_what_the_machine_was_is_in_the_profile(resnet):
    assert (
        resnet.on_gpu
        and resnet.machine.gpu["compute_capability"] == "9.0"
        and resnet.machine.gpus[0].power_limit_w == 700
    )
    assert resnet.settings["precision_mode"] == "FP16" and resnet.signatures[0].compute_ops == (177, 177)
    assert resnet.model.calls[0].memory.highest > resnet.model.calls[0].memory.lowest > 200e6


def test_a_recording_without_a_trace_gives_a_note_and_not_an_end():
    folder = DATA / "digits_fp16"
    facts = json.loads(gzip.decompress((folder / "facts.json.gz").read_bytes()))
    del facts["calls"][0]["trace"]
    facts["failed"] = {"tracing the model at shape 1": errors.TftrtError("CUPTI is busy", "").to_dict()}
    found = measure.of_recording(facts, folder, [measure.Named("m", "d"), measure.Named("o", "d")], None, True).profile
    assert len(found.model.calls) == 1 and found.original.calls
    assert "CUPTI is busy" in found.notes[0] and any("was traced" in note for note in found.notes)


def test_calls_whose_gpu_was_not_traced_say_why(tmp_path):
    folder = DATA / "digits_fp16"
    facts = json.loads(gzip.decompress((folder / "facts.json.gz").read_bytes()))["calls"][0]
    data = json.loads(gzip.decompress((folder / facts["trace"]).read_bytes()))
    data["tracks"] = [track for track in data["tracks"] if not track["gpu"]]
    (tmp_path / facts["trace"]).write_bytes(gzip.compress(json.dumps(data).encode()))
    found = calls.of(
        {
            **facts,
            "callers": [],
            "trace_log": ["function cupti_interface_ failed with error CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"],
        },
        tmp_path,
        on_gpu=True,
    )
    assert "only administrators" in found.notes[0] and "--cap-add=SYS_ADMIN" in found.notes[0]
    assert sum(one.seconds for one in found.parts) == pytest.approx(found.latency.p50)


@pytest.mark.parametrize(
    "line, says",
    [
        ("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES", "only administrators"),
        ("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED", "another profiler"),
        ("CUPTI could not be loaded or symbol could not be found.", "cannot be loaded"),
        ("", "does not say why"),
    ],
)
def test_why_cupti_saw_nothing(line, says):
    assert says in cupti.why([line])


def test_a_damaged_trace_is_an_error_in_one_line(tmp_path):
    path = tmp_path / "one.trace.json.gz"
    for content in (
        b"no gzip",
        gzip.compress(b"{"),
        gzip.compress(b'{"tracks": [{"name": 1}]}'),
        gzip.compress(b'{"tracks": [{"name": "a", "gpu": true, "names": ["a"], "events": [[0, 1.0, 1.0, 0.5]]}]}'),
        gzip.compress(b"{}" * 99)[:10] + b"\xff" * 20,
    ):
        path.write_bytes(content)
        with pytest.raises(errors.TftrtError, match="is damaged"):
            traces.read(path)


def test_a_whole_profile_of_a_trained_model_fits_together(fer):
    assert not fer.notes and fer.on_gpu and len(fer.engines) == 2
    for call, original, engine in zip(fer.model.calls, fer.original.calls, fer.engines, strict=True):
        assert (
            sum(one.seconds for one in call.parts) == pytest.approx(call.latency.p50)
            and call.unplaced_share < calls.UNPLACED
        )
        (run,) = call.engines
        assert run.name == engine.engine and call.later.engine == {run.name: 1}
        assert run.kernels == sum(len(layer.kernels) for layer in engine.layers), (
            "the engine launches the same kernels alone"
        )
        assert run.gpu_seconds == pytest.approx(engine.kernel_seconds, rel=0.05), "and they take as long"
        every = [op for op in original.ops if op.type == "Conv2D"]
        assert len(every) > 10 and all(op.host_seconds > 0 and op.gpu_seconds > 0 for op in every)
    assert {node.engine for node in fer.model.graph["serving_default"]} == {fer.engines[0].engine}


def test_its_page_and_its_tables_have_the_engines(fer, tmp_path, tftrt):
    from tftrt_tools.command_line.report import profile as report

    report.write_page(fer, str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") == 2 * 2 + 2 * 2 + 1 + 1, "parts and timelines, layers and rooflines, memory, the graph"
    assert "Roofline" in page and "15 of 15 groups" in page and "a CUDA graph takes" in page
    (tmp_path / "p.json").write_text(json.dumps(fer.to_dict()))
    done = tftrt("profile", tmp_path / "p.json", "--top=3")
    assert done.returncode == 0 and "conv2d_7/Conv2D-conv" in done.stdout and "more (--top)" in done.stdout
    found = comparison.compare(fer, fer)
    assert len(found.engines) == 2 and all(row.difference == 0 for engine in found.engines for row in engine.rows)
    assert all(one.one_shapes == one.other_shapes for one in found.engines)


# --- the document


def test_a_profile_is_written_and_read_back(resnet, digits):
    for found in (resnet, digits):
        assert profile.Profile.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_a_profile_file_is_read_and_anything_else_refused(tmp_path, resnet):
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(resnet.to_dict()))
    assert stored.read(str(path)).profile == resnet
    path.write_text("{")
    with pytest.raises(errors.TftrtError, match="is damaged"):
        stored.read(str(path))
    path.write_text('{"kind": "conversion"}')
    with pytest.raises(errors.UsageError, match="no profile"):
        stored.read(str(path))
    path.write_text('{"kind": "profile", "model": 3}')
    with pytest.raises(errors.TftrtError, match="is damaged"):
        stored.read(str(path))
    with pytest.raises(errors.UsageError, match="no such file"):
        stored.read(str(tmp_path / "other.json"))


def _set(document, path, value):
    *outer, last = path
    for key in outer:
        document = document[key]
    document[last] = value


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("model", "graph"), None, ""),
        (("machine", "versions"), [], ""),
        (("model", "calls", 0, "shapes"), None, ""),
        (("model", "calls", 0, "first", "fallback"), [], ""),
        (("model", "calls"), [], "no call"),
        (("model", "calls", 0, "latency", "p50"), float("inf"), "latency.p50 is inf"),
        (("model", "calls", 0, "latency", "p50"), -1e-3, "a time that is none"),
        (("model", "calls", 0, "latency", "p90"), float("nan"), "model.calls[0].latency.p90 is nan"),
        (("model", "calls", 0, "latency", "p50"), 1.0, "the parts of"),
        (("model", "calls", 0, "parts", 0, "seconds"), -1.0, "a time that is none"),
        (("model", "calls", 0, "traced_seconds"), "inf", "traced_seconds is inf"),
        (("model", "calls", 0, "first_seconds"), 1e308, "first_seconds is 1e+308"),
        (("model", "calls", 0, "latency", "rounds"), [], "has no rounds"),
        (("model", "calls", 0, "host_factors"), {"input": 1.0}, "has no factor of the stage rest"),
        (("model", "calls", 0, "dtypes"), {}, "has no type of image"),
        (("model", "calls", 0, "shapes", "image"), [0, 8, 8, 1], "has no rows"),
    ],
)
def test_a_profile_with_a_field_that_cannot_be_is_damaged(tmp_path, digits, path, value, says):
    document = digits.to_dict()
    document = json.loads(json.dumps(document))
    _set(document, path, value)
    (tmp_path / "p.json").write_text(json.dumps(document))
    with pytest.raises(errors.TftrtError, match="is damaged") as caught:
        stored.read(str(tmp_path / "p.json"))
    assert says in caught.value.cause and "measure it again" in caught.value.mend


def test_a_profile_of_another_version_that_cannot_be_read_names_it(tmp_path, digits):
    document = json.loads(json.dumps(digits.to_dict())) | {"tool": "tftrt-tools 9.0", "new": 1}
    (tmp_path / "p.json").write_text(json.dumps(document))
    assert stored.read(str(tmp_path / "p.json")).profile.model == digits.model
    document["model"]["calls"][0]["parts"][0]["group"] = "new"
    (tmp_path / "p.json").write_text(json.dumps(document))
    with pytest.raises(errors.TftrtError, match="is damaged") as caught:
        stored.read(str(tmp_path / "p.json"))
    assert "read it with tftrt-tools 9.0, which wrote it (this is tftrt-tools " in caught.value.mend


def test_a_file_of_brackets_is_damaged(tmp_path):
    (tmp_path / "p.json").write_text("[" * 100_000)
    with pytest.raises(errors.TftrtError, match="is damaged"):
        stored.read(str(tmp_path / "p.json"))


def test_a_damaged_profile_in_a_model_is_measured_again_and_the_model_stays(tmp_path, zoo_model):
    import shutil

    shutil.copytree(zoo_model("digits_cnn"), tmp_path / "m")
    (tmp_path / "m/assets.extra/tftrt").mkdir(parents=True)
    (tmp_path / "m/assets.extra/tftrt" / profile.FILE).write_text("junk")
    with pytest.raises(errors.TftrtError, match="damaged") as caught:
        stored.read(str(tmp_path / "m"))
    assert "tftrt profile" in caught.value.mend and "convert" not in caught.value.mend


def test_what_a_comparison_leaves_out_is_said(digits, resnet):
    half = dataclasses.replace(digits, model=dataclasses.replace(digits.model, calls=digits.model.calls[:1]))
    whole = dataclasses.replace(
        digits,
        model=dataclasses.replace(
            digits.model,
            calls=(
                digits.model.calls[0],
                dataclasses.replace(
                    digits.model.calls[0],
                    shapes={name: (99, *shape[1:]) for name, shape in digits.model.calls[0].shapes.items()},
                ),
            ),
        ),
    )
    assert any("first profile alone" in note and "99x" in note for note in comparison.compare(whole, half).notes)
    assert any("second profile alone" in note for note in comparison.compare(half, whole).notes)
    assert not any("alone" in note for note in comparison.compare(half, half).notes)


def test_profiles_of_other_models_say_so(digits, fer):
    assert any("other inputs" in note for note in comparison.compare(digits, fer).notes)
    assert not any("other inputs" in note for note in comparison.compare(digits, digits).notes)


def test_a_kept_profile_says_which_flags_it_does_not_look_at(tftrt, tmp_path, digits):
    (tmp_path / "p.json").write_text(json.dumps(digits.to_dict()))
    given = (
        "--shapes=image:7x8x8x1",
        "--signature_keys=other",
        "--callers=8",
        "--noengines",
        f"--log_file={tmp_path / 'log'}",
    )
    done = tftrt("profile", tmp_path / "p.json", *given)
    assert done.returncode == 0 and re.findall("--([a-z_]+) was not looked at", done.stdout) == [
        "shapes",
        "signature_keys",
        "callers",
        "engines",
        "log_file",
    ]


# --- tables and files


def test_a_speed_up_is_that_of_rounds_in_turns(resnet):
    said = rows.speed(resnet.model.calls[0], resnet.original.calls[0])
    assert said.startswith("4.") and said.endswith("in 10 rounds)")


def test_the_trace_file_is_what_perfetto_opens(tmp_path, resnet):
    tracks = chrome.marked(traces.read(DATA / "resnet50_fp16/model-0.trace.json.gz").tracks)
    path = tmp_path / "t.json.gz"
    chrome.write(path, [("model", tracks)])
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    whole = [one for one in events if one["ph"] == "X"]
    assert all(one["ts"] >= 0 and one["dur"] >= 0 and {"name", "pid", "tid"} <= set(one) for one in whole)
    assert {one["args"]["name"] for one in events if one["name"] == "process_name"} == {"model: host", "model: GPU"}
    starts, ends = ([one["id"] for one in events if one["ph"] == kind] for kind in "sf")
    assert starts == ends and len(starts) >= 6 * 62, "an arrow from each launch to its kernel"
    assert len({(one["pid"], one["tid"]) for one in whole}) == len(tracks)


def engine(*layers):
    """An EngineProfile. Args: layers: (name, kernels, seconds) each."""
    made = tuple(
        engine_profile.LayerProfile(
            name=name,
            role="product",
            nodes=(name,),
            seconds=seconds,
            profiler_seconds=seconds,
            share=0.5,
            kernels=kernels,
        )
        for name, kernels, seconds in layers
    )
    return engine_profile.EngineProfile(
        engine=timelines.ENGINE,
        precision="FP16",
        implicit_batch=True,
        profile=0,
        profiles=1,
        shapes={},
        latency=None,
        layers=made,
        layer_seconds=1.0,
        kernel_seconds=None,
        kernels_by=None,
    )


def test_layers_of_engines_become_a_track_where_their_kernels_fit():
    made = timelines.tracks(timelines.call(), timelines.call(start=200, number=1))
    (track,) = layer_tracks.of(made, [engine(("a", ("k",), 1.0), ("b", ("k",), 1.0))])
    assert [(one.name, round(one.start * 1e6), round(one.end * 1e6)) for one in track.events] == [
        ("a", 25, 40),
        ("b", 50, 60),
        ("a", 225, 240),
        ("b", 250, 260),
    ]
    assert layer_tracks.of(made, [engine(("a", ("k",) * 3, 1.0))]) == ()


def test_profiles_are_compared_part_by_part_and_layer_by_layer(resnet, digits):
    one = dataclasses.replace(resnet, engines=(engine(("conv", ("k",), 2e-3), ("relu", ("k",), 1e-3)),))
    other = dataclasses.replace(resnet, engines=(engine(("conv", ("k",), 1e-3), ("relu", ("k",), 1e-3)),))
    found = comparison.compare(one, other)
    assert [len(found.calls), len(found.engines)] == [2, 1] and found.notes == (comparison.NO_ANSWERS,)
    assert all(one.one == one.other for pair in found.calls for one in pair.parts)
    assert found.engines[0].rows[0].nodes == ("conv",) and found.engines[0].rows[0].difference == pytest.approx(-1e-3)
    beside = comparison.compare(resnet, digits)
    assert len(beside.calls) == 2 and "other shapes" in beside.notes[0] and "neither profile" in beside.notes[-1]
    lone = [one for one in beside.calls[0].parts if "kernels" in one.name]
    assert [one.one is not None and one.other is not None for one in lone] == [True], (
        "the lone engine of each is one part"
    )
    json.dumps(found.to_dict())


def test_pages_hold_every_part_and_picture(tmp_path, resnet):
    from tftrt_tools.command_line.report import profile as report
    from tftrt_tools.studies.profiling import call_graph

    nodes = call_graph.of(
        [("a", "Conv2D", timelines.ENGINE, []), ("b", "Relu", timelines.ENGINE, ["a"]), ("c", "Softmax", "", ["b"])]
    )
    side = dataclasses.replace(resnet.model, graph={"serving_default": nodes})
    found = dataclasses.replace(resnet, model=side, engines=(engine(("a", ("k",), 2e-3), ("b", (), 1e-3)),))
    report.write_page(found, str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert all(one.name in page for call in found.model.calls for one in call.parts)
    assert page.count("<svg") == 6, "parts and timeline of two calls, layers, graph"
    assert "4." in page and "The graph of serving_default" in page and "Softmax" in page and "<script" not in page
    report.write_comparison(comparison.compare(found, found), str(tmp_path / "two.html"))
    assert "A 1.361 ms" in (tmp_path / "two.html").read_text()


def test_a_trace_without_a_call_has_no_overlap():
    assert overlap.of((timelines.track(timelines.event("kernel", 0, 1), gpu=True),)) is None


# --- the command, where there is no GPU


@pytest.fixture(scope="module")
def measured(converted, zoo_model, tftrt, tmp_path_factory):
    """(The model, the folder with what the command wrote, its output)."""
    folder = tmp_path_factory.mktemp("profile")
    model, original = converted("digits_cnn", "--precision=FP16"), zoo_model("digits_cnn")
    done = tftrt(
        "profile",
        model,
        f"--original={original}",
        "--shapes=image:1x8x8x1,4x8x8x1",
        "--without_gpu",
        "--callers=1,2",
        "--traced_calls=4",
        f"--json={folder}/p.json",
        f"--html={folder}/p.html",
        f"--trace={folder}/t.json",
    )
    assert done.returncode == 0, done.stderr
    return model, folder, done.stdout


def test_a_cpu_profile_adds_up_and_says_that_it_is_one(measured):
    _, folder, said = measured
    found = profile.Profile.from_dict(json.loads((folder / "p.json").read_text()))
    assert not found.on_gpu and found.machine.gpu is None and "says nothing about engines" in found.notes[-1]
    for call in (*found.model.calls, *found.original.calls):
        assert sum(one.seconds for one in call.parts) == pytest.approx(call.latency.p50) and call.gpu_seconds == 0
        assert (
            {one.type for one in call.ops} >= {"Reshape"}
            and part(call, "op", "host") > 0
            and part(call, "call", "host") > 0
        )
    assert [call.shapes["image"][0] for call in found.model.calls] == [1, 4] and len(
        found.model.graph["serving_default"]
    ) == 14
    assert all(one.engine for one in found.model.graph["serving_default"])
    assert "making the input tensors" in said and "says nothing about engines" in said
    assert (folder / "p.html").read_text().count("<svg") == 5
    names = {one["name"] for one in json.loads((folder / "t.json").read_text())["traceEvents"]}
    assert {traces.CALL, traces.RUN} <= names and any("Relu" in name for name in names)


def test_a_cpu_profile_is_not_kept_and_without_one_the_command_says_so(measured, tftrt):
    model, _, _ = measured
    assert_clear(tftrt("profile", model), 1, "carries no profile, and this machine has no GPU")
    assert_clear(tftrt("profile", model, model, "--stored"), 1, "carries no profile")
    # The command to run on a machine with a GPU is the one that was given.
    flags = ("--shapes=image:3x8x8x1", "--ranges=image:0:9", "--callers=1,8")
    said = tftrt("profile", model, "--original=a b", *flags)
    assert f"run `tftrt profile {model} {flags[0]} '--original=a b' {flags[1]} {flags[2]}` on" in said.stderr


def test_a_kept_profile_is_shown_and_goes_stale(measured, tftrt, tmp_path):
    import shutil

    model, folder, _ = measured
    copy = tmp_path / "model"
    shutil.copytree(model, copy)
    found = profile.Profile.from_dict(json.loads((folder / "p.json").read_text()))
    digest = found.model.digest
    assert stored.keep(str(copy), found)
    shown = tftrt("profile", copy)
    assert shown.returncode == 0 and "nothing was measured now" in shown.stdout and "stale" not in shown.stdout
    assert stored.read(str(copy)).profile.model.digest == digest and not stored.read(str(copy)).stale
    (copy / "assets" / "more.txt").parent.mkdir(exist_ok=True)
    (copy / "assets" / "more.txt").write_text("x")
    assert "it is stale: the model has changed since" in tftrt("profile", copy).stdout
    assert_clear(tftrt("profile", copy, "--trace=t.json"), 2, "--trace needs a measurement")


def test_two_files_are_compared(measured, tftrt, tmp_path):
    _, folder, _ = measured
    done = tftrt(
        "profile", folder / "p.json", folder / "p.json", f"--html={tmp_path}/two.html", f"--json={tmp_path}/two.json"
    )
    assert done.returncode == 0 and "+0.0000" in done.stdout and "1.00 times as fast" in done.stdout
    assert (
        json.loads((tmp_path / "two.json").read_text())["kind"] == "profile_comparison"
        and (tmp_path / "two.html").exists()
    )


@pytest.mark.parametrize(
    "arguments, code, says",
    [
        (("MODEL", "--callers=none", "--without_gpu"), 2, "are no numbers of callers"),
        (("MODEL", "--shapes=other:1", "--without_gpu"), 2, "no input 'other'"),
        (("MODEL", "--signature_keys=other", "--without_gpu"), 2, "other"),
        (("a", "b", "c"), 2, "MODEL"),
        ((), 2, "MODEL"),
        (("gone.json",), 2, "no such file"),
        (("gone", "--without_gpu"), 2, "no such file"),
        (("MODEL", "--html=/no/p.html"), 2, "cannot be written"),
        (("MODEL", "gone.json"), 1, "carries no profile"),
    ],
)
def test_bad_input_is_one_clear_line(measured, tftrt, arguments, code, says):
    assert_clear(tftrt("profile", *(measured[0] if one == "MODEL" else one for one in arguments)), code, says)


def test_a_model_without_engine_ops_says_what_makes_engines(zoo_model, tftrt, tmp_path):
    done = tftrt(
        "profile",
        zoo_model("ranker"),
        "--signature_keys=item_embedding",
        "--without_gpu",
        "--callers=1",
        "--traced_calls=2",
    )
    assert (
        done.returncode == 0
        and "has no engine op: TensorFlow runs all of it; `tftrt convert` makes engines" in done.stdout
    )
    assert "LookupTableFindV2" in done.stdout


def test_ctrl_c_in_the_middle_is_one_line_and_leaves_nothing(measured, tmp_path):
    log = tmp_path / "log"
    command = [
        sys.executable,
        "-m",
        "tftrt_tools",
        "profile",
        measured[0],
        "--without_gpu",
        f"--log_file={log}",
        f"--json={tmp_path}/p.json",
    ]
    with subprocess.Popen(
        [*map(str, command)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        while not (log.exists() and log.stat().st_size) and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1 and said.startswith("tftrt: error: interrupted") and "Traceback" not in said
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_a_trace_that_finds_no_place_on_the_disk_says_what_mends_it(measured, tmp_path):
    """Python lets no write above the limit end the process, so it sees an error as of a full disk."""
    command = f"ulimit -f 1; {sys.executable} -m tftrt_tools profile {measured[0]} --without_gpu --shapes=image:1x8x8x1 --callers=1 --json={tmp_path}/p.json"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, list(tmp_path.iterdir())) == (
        1,
        "",
        [],
    ) and "File too large\n  `ulimit -f` says how large" in done.stderr, done.stderr


# --- what can go wrong on the way


def test_the_models_own_failure_is_the_error_and_one_of_the_original_a_note():
    foreign = errors.TftrtError("the engines were built for TensorRT 8.4, and here it is 8.5", "build them here")
    facts = {
        "calls": [],
        "failed": {
            "loading the original": errors.TftrtError("no such op", "").to_dict(),
            "loading the model": foreign.to_dict(),
        },
    }
    with pytest.raises(errors.TftrtError, match="built for TensorRT 8.4") as caught:
        measure._check(facts, measure.Options(model="m"))
    assert caught.value.mend == "build them here"
    measure._check({**facts, "calls": [{"model": "model", "trace": "t"}]}, measure.Options(model="m"))


def test_an_end_by_sigterm_is_no_remark_on_the_engines(monkeypatch, resnet):
    """Where the engines are taken apart, a failure is a remark, and an interrupt is not."""
    from tftrt_tools.models.kinds.model import Contents, Engine, Model
    from tftrt_tools.models.kinds.savedmodel.kind import SAVED_MODEL
    from tftrt_tools.studies.profiling import apart, plan

    done = measure.Measured(profile=resnet, traces={})
    model = Model(
        kind=SAVED_MODEL, source="m", path="m", contents=Contents(signatures={}, engines=(Engine("e", "FP16"),))
    )
    for error in (errors.TftrtError("the file is truncated", ""), IndexError("list index out of range")):
        monkeypatch.setattr(plan, "measure", _raising(error))
        assert str(error) in measure._with_engines(done, model, ()).profile.notes[-1]
    monkeypatch.setattr(plan, "measure", _raising(errors.Interrupted("ended by SIGTERM")))
    with pytest.raises(errors.Interrupted):
        measure._with_engines(done, model, ())
    monkeypatch.undo()
    doubles.job(monkeypatch, apart.measure, _raising(errors.Interrupted("ended by SIGTERM")))
    with pytest.raises(errors.Interrupted):
        plan._part(apart.Request(model="m", part="told"))


def _raising(error):
    def function(*_, **__):
        raise error

    return function


def test_what_a_dead_process_had_written_still_counts(tmp_path):
    died = child.ChildDied("the process was killed by SIGSEGV", "look at the log", "")
    with pytest.raises(child.ChildDied):
        measure._left(tmp_path, died)
    (tmp_path / "facts.json").write_text(
        json.dumps({"calls": [{"model": "model", "trace": "t"}], "failed": {}, "models": {}})
    )
    assert "SIGSEGV" in measure._left(tmp_path, died)["failed"]["the measuring process"]["cause"]


def test_a_trace_larger_than_memory_is_taken_again_with_fewer_calls_and_then_refused(tmp_path):
    done = child.run("tests.large_traces:calls", {"folder": str(tmp_path), "most": 3})
    assert done.result == {"tried": [20, 5, 1], "failed": ""}
    refused = child.run("tests.large_traces:calls", {"folder": str(tmp_path), "most": 0})
    assert (
        refused.result["tried"] == [20, 5, 1] and "more than this machine's memory allows" in refused.result["failed"]
    )
