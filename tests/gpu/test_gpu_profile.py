"""`tftrt profile` on a GPU: the parts of real calls add up, engines and ops are found by their names, and the profile is kept. `make gpu-test`."""

import gzip
import json

import pytest

from tests import stacks
from tests.conftest import run_tftrt
from tests.gpu_commands import EXACT, NO_GPU, convert, report
from tftrt_tools.studies.profiling import calls
from tftrt_tools.studies.profiling.profile import Profile

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(560)]


@pytest.fixture(scope="module")
def profiled(zoo_model, tmp_path_factory):
    """(The model, the folder with what the command wrote, the profile): batches 1 and 8 have engines, 4 has none."""
    folder = tmp_path_factory.mktemp("profile")
    model = folder / "model"
    convert(zoo_model("digits_cnn"), model, "--precision=FP16", EXACT)
    done = run_tftrt(
        "profile",
        model,
        f"--original={zoo_model('digits_cnn')}",
        "--shapes=image:1x8x8x1,8x8x8x1,4x8x8x1",
        f"--json={folder}/p.json",
        f"--html={folder}/p.html",
        f"--trace={folder}/t.json.gz",
        f"--log_file={folder}/log",
        timeout=540,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found = Profile.from_dict(json.loads((folder / "p.json").read_text()))
    report(
        test="profile",
        model="digits_cnn FP16",
        passed=True,
        notes=list(found.notes),
        calls=[
            {
                "call": call.text(),
                "p50_ms": 1e3 * call.latency.p50,
                "traced_ms": 1e3 * call.traced_seconds,
                "host": call.host_factors,
                "gpu": call.gpu_factors,
                "parts": {f"{part.name} {part.device}": 1e3 * part.seconds for part in call.parts},
                "notes": list(call.notes),
            }
            for side in (found.model, found.original)
            for call in side.calls
        ],
    )
    return model, folder, found


def test_the_parts_add_up_and_little_is_unplaced(profiled):
    _, _, found = profiled
    for call in (*found.model.calls, *found.original.calls):
        assert sum(part.seconds for part in call.parts) == pytest.approx(call.latency.p50)
        assert call.gpu_seconds > 0 and call.unplaced_share < calls.UNPLACED, call.notes


def test_engines_and_ops_are_told_by_name(profiled):
    _, _, found = profiled
    one, eight, four = found.model.calls
    name = found.signatures[0].engines[0].name
    for call in (one, eight):
        (engine,) = call.engines
        assert (
            engine.name == name
            and engine.runs == 1
            and engine.kernels > 3
            and engine.host_seconds > 0
            and not engine.fallbacks
        )
        assert call.later.engine == {name: 1}
    assert [(engine.name, engine.fallbacks) for engine in four.engines] == [(name, 1)] and four.later.fallback == {
        name: 1
    }
    # TensorFlow joins a convolution on a GPU with its bias and activation where it can.
    convolutions = [op for op in found.original.calls[0].ops if op.type in ("Conv2D", "_FusedConv2D")]
    assert len(convolutions) == 2 and all(op.gpu_seconds > 0 and op.host_seconds > 0 for op in convolutions)


@stacks.needs_bindings
def test_the_engines_are_taken_apart_and_their_layers_stand_in_the_timeline(profiled):
    _, folder, found = profiled
    assert {engine.engine for engine in found.engines} == {found.signatures[0].engines[0].name}
    assert all(engine.layers and engine.layer_seconds > 0 for engine in found.engines)
    events = json.loads(gzip.decompress((folder / "t.json.gz").read_bytes()))["traceEvents"]
    threads = [one["args"]["name"] for one in events if one["name"] == "thread_name"]
    assert any(one.startswith("Stream") or "Stream" in one for one in threads) and any(
        one.startswith("layers of ") for one in threads
    )
    assert (folder / "p.html").read_text().count("<svg") >= 6 + 2 * len(found.engines)


def test_a_machine_without_a_gpu_shows_the_kept_profile(profiled):
    model, _, found = profiled
    done = run_tftrt("profile", model, env=NO_GPU)
    assert (
        done.returncode == 0
        and "nothing was measured now" in done.stdout
        and found.machine.gpu["name"] in done.stdout
        and "stale" not in done.stdout
    )
