"""The profile of a plan on a GPU. Each test prints what it saw (`-s`), and the table of `make gpu-test` has it. `make gpu-test`."""

import gzip
import json

import pytest

from tests import stacks
from tests.conftest import run_tftrt
from tests.gpu.test_gpu_plans import build
from tests.gpu_commands import NO_GPU, report
from tftrt_tools.studies.profiling import comparison, profile, stored
from tftrt_tools.studies.profiling.call_records import GROUPS

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(380), stacks.needs_bindings]
SHAPES = "image:1x8x8x1|image:min=2x8x8x1,opt=64x8x8x1,max=256x8x8x1"
# One of each profile, and one that no profile was tuned for.
CALLED = "--shapes=image:1x8x8x1,64x8x8x1,256x8x8x1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("plan_profile")


@pytest.fixture(scope="module")
def plan(zoo_model, folder):
    """digits_cnn in FP16."""
    build(zoo_model("digits_cnn"), folder / "digits", "--precision=FP16", f"--shapes={SHAPES}")
    return folder / "digits"


@pytest.fixture(scope="module")
def found(plan, folder):
    """The Profile that the command wrote and kept."""
    done = run_tftrt(
        "profile",
        plan,
        CALLED,
        f"--json={folder / 'p.json'}",
        f"--html={folder / 'p.html'}",
        f"--trace={folder / 't.json.gz'}",
        f"--log_file={folder / 'log'}",
        timeout=370,
    )
    print(done.stdout, done.stderr, sep="\n")
    assert done.returncode == 0, done.stderr
    return profile.Profile.from_dict(json.loads((folder / "p.json").read_text()))


def test_the_parts_of_each_call_add_up_and_cover_it(found):
    assert [call.rows for call in found.model.calls] == [1, 64, 256] and found.of_a_plan and found.on_gpu, found.notes
    for call in found.model.calls:
        parts = {f"{part.group} {part.device}".strip(): round(1e6 * part.seconds, 1) for part in call.parts}
        print(
            call.text(), call.latency.text(), parts, "factors", call.host_factors, call.gpu_factors, "notes", call.notes
        )
        report(
            test="plan, parts of a call",
            model="digits_cnn",
            rows=call.rows,
            us=1e6 * call.latency.p50,
            unplaced=call.unplaced_share,
            gpu_us=1e6 * call.gpu_seconds,
            host_factor=call.host_factors["rest"],
            passed=call.unplaced_share <= 0.05,
        )
        assert sum(part.seconds for part in call.parts) == pytest.approx(call.latency.p50)
        assert call.unplaced_share <= 0.05
        assert {part.group for part in call.parts} <= set(GROUPS) - {"op", "graph"} and not call.ops
        kinds = {(one.kind, one.group): one.bytes for one in call.copies}
        assert kinds["host to GPU", "input"] == pytest.approx(4 * 64 * call.rows), kinds
        assert kinds["GPU to host", "output"] == pytest.approx(4 * 10 * call.rows), kinds
        (run,) = call.engines
        assert run.name == "plan" and run.runs == 1 and run.kernels >= 1 and run.gpu_seconds > 0, run
        assert call.later.engine == {"plan": 1} and not call.later.fallback


def test_several_callers_have_streams_of_their_own(found):
    for call in found.model.calls:
        for one in call.callers:
            print(call.text(), "callers", one.callers, "calls/s", round(one.per_second), "overlap", one.overlap)
        assert [one.callers for one in call.callers] == [1, 2, 4] and all(one.per_second > 0 for one in call.callers)
        last = call.callers[-1].overlap
        assert last is not None and last.streams >= 2 and last.calls_under_way > 1


def test_layers_agree_with_kernels_and_have_what_the_inspector_told(found):
    # Each profile at its best, and the batch that none was tuned for.
    assert [(one.engine, one.profile, dict(one.shapes)["image"][0]) for one in found.engines] == [
        ("plan", 0, 1),
        ("plan", 1, 64),
        ("plan", 1, 256),
    ]
    for one in found.engines:
        gap = one.layer_seconds / one.kernel_seconds if one.kernel_seconds else None
        print(
            one.profile,
            one.shapes,
            "layers us",
            1e6 * one.layer_seconds,
            "kernels us",
            1e6 * (one.kernel_seconds or 0),
            "by",
            one.kernels_by,
            "agreement",
            one.agreement,
            "events us",
            1e6 * (one.event_seconds or 0),
            "notes",
            one.notes,
        )
        for layer in one.layers:
            print(
                "   ",
                layer.role,
                layer.kind,
                layer.precision,
                layer.precision_from,
                round(1e6 * layer.seconds, 2),
                layer.formats,
                layer.nodes,
                layer.name,
            )
        report(
            test="plan, layers",
            model="digits_cnn",
            profile=one.profile,
            layers=len(one.layers),
            layers_by_kernels=gap,
            kernels_by=one.kernels_by,
            agreement=one.agreement,
            passed=gap is not None and abs(gap - 1) <= 0.05,
        )
        assert gap == pytest.approx(1, abs=0.05)
        assert all(
            layer.kind and layer.tactic and (layer.formats or layer.role == "shape" or one.profile == 1)
            for layer in one.layers
        )
        assert sum(layer.flops or 0 for layer in one.layers) > 0 and one.peaks is not None
        assert (
            one.fusion is not None and one.fusion.groups and sum(layer.role == "product" for layer in one.layers) >= 2
        )
        assert one.memory.engine is not None and one.memory.plan > 0 and one.memory.weights_in_model > 300_000


def test_streams_and_a_cuda_graph_of_the_plan(found):
    for one in found.engines:
        print(one.profile, one.shapes, one.cuda_graph, one.streams)
        assert one.cuda_graph is not None and not one.cuda_graph.error and one.cuda_graph.nodes > 0
        assert [row.contexts for row in one.streams] == [1, 2, 4] and all(
            row.one_thread or row.thread_each for row in one.streams
        )


def test_page_trace_and_kept_profile(found, plan, folder):
    page = (folder / "p.html").read_text()
    assert page.count("<svg") >= 6 and "copies to the GPU" in page
    events = json.loads(gzip.decompress((folder / "t.json.gz").read_bytes()))["traceEvents"]
    names = {event["name"] for event in events}
    print(sorted(names)[:60])
    assert {"tftrt call", "tftrt input", "tftrt output", "plan:TensorRTPlan"} <= names
    kept = stored.read(str(plan))
    assert kept is not None and not kept.stale and kept.profile.engines == found.engines
    shown = run_tftrt("profile", plan, "--top=3", env=NO_GPU)
    print(shown.stdout)
    assert shown.returncode == 0 and "nothing was measured now" in shown.stdout, shown.stderr


def test_a_plan_is_compared_with_another_layer_by_layer(found, zoo_model, folder):
    build(zoo_model("digits_cnn"), folder / "fp32", f"--shapes={SHAPES}")
    done = run_tftrt("profile", folder / "fp32", CALLED, "--callers=1", f"--json={folder / 'q.json'}", timeout=370)
    assert done.returncode == 0, done.stderr
    other = profile.Profile.from_dict(json.loads((folder / "q.json").read_text()))
    both = comparison.compare(found, other)
    for engine in both.engines:
        print(
            engine.one_shapes,
            [(row.nodes, row.one.seconds, row.other.seconds) for row in engine.rows],
            engine.only_one,
            engine.only_other,
        )
    assert len(both.calls) == 3 and len(both.engines) == 3 and not both.engines[0].only_one
    shown = run_tftrt("profile", folder / "digits", folder / "fp32")
    assert shown.returncode == 0 and "nodes" in shown.stdout, shown.stderr


def test_a_plan_is_diagnosed(plan, zoo_model, folder):
    """The last one: what it measures takes the place of the kept profile."""
    done = run_tftrt(
        "diagnose",
        zoo_model("digits_cnn"),
        plan,
        CALLED,
        "--least_percent=0",
        f"--json={folder / 'd.json'}",
        timeout=370,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads((folder / "d.json").read_text())
    launches = [one for one in said["findings"] if one["cause"] == "launches"]
    report(
        test="plan, diagnosed",
        model="digits_cnn",
        findings=[(one["cause"], one["worth"]) for one in said["findings"]],
        passed=bool(launches),
    )
    assert launches and all(0 < one["worth"] < 1e-3 for one in launches), done.stdout
