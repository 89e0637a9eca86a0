"""ONNX files that ONNX Runtime does not load with its default options: by a fusion that fails, and by one that ends the process."""

import json
import os
import time

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from tests import onnx_files, stacks
from tests.rooms.tensorrt.test_export_fp16 import graph
from tftrt_tools.base import errors
from tftrt_tools.models.kinds.onnx import opening_job, runner_job
from tftrt_tools.tensorrt.exporting.job import half, squares

RNG = np.random.default_rng(5)


def halved(model, path, kept=()):
    onnx.save(half.convert(model, kept, {}).model, path)
    return str(path)


@pytest.fixture(scope="module")
def transposed(tmp_path_factory):
    """(A product behind a transposition of the batch, the same in FP16, whose load ends ONNX Runtime 1.23.2)."""
    folder = tmp_path_factory.mktemp("transposed")
    model = graph(
        "g (float[T,B,4] x) => (float[B,T,5] y) { t = Transpose <perm: ints = [1, 0, 2]> (x) y = MatMul(t, l) }",
        l=RNG.normal(size=(4, 5)),
    )
    onnx.save(model, folder / "m.onnx")
    return str(folder / "m.onnx"), halved(model, folder / "half.onnx")


def norms(epsilon):
    """Two layer norms as PyTorch wrote them before opset 17, each with an exponent of its own."""

    def one(k, given, result):
        return (
            f"{k}u = ReduceMean <axes: ints = [-1]> ({given}) {k}d = Sub({given}, {k}u) {k}p = Pow({k}d, {k}two) {k}v = ReduceMean <axes: ints = [-1]> ({k}p) "
            f"{k}e = Add({k}v, e) {k}q = Sqrt({k}e) {k}n = Div({k}d, {k}q) {k}s = Mul({k}n, g) {result} = Add({k}s, b)"
        )

    text = (
        f"g (float[1,16] x) => (float[1,16] y) {{ h = Gemm(x, w, wb) {one('a', 'h', 'o')} r = Relu(o) h2 = Gemm(r, w, wb) {one('c', 'h2', 'i')} "
        "k = Relu(i) y = Gemm(k, w, wb) }"
    )
    return graph(
        text,
        w=RNG.normal(size=(16, 16)) / 4,
        wb=np.zeros(16),
        atwo=2.0,
        ctwo=2.0,
        e=epsilon,
        g=np.full(16, 1.1),
        b=np.full(16, 0.1),
    )


# The node that adds the epsilon of the first.
EPSILONS = ("Add_5",)


def test_a_crash_while_loading_is_told_and_the_file_runs(transposed):
    found = opening_job.opened(transposed[1], "half.onnx", True)
    assert found.remark.startswith(
        f"ONNX Runtime {onnxruntime.__version__} crashes (SIGSEGV) where it loads half.onnx with its default options"
    )
    assert "disabled_optimizers=['MatmulTransposeFusion']" in found.remark
    assert found.session.run(None, {"x": np.ones((3, 2, 4), np.float32)})[0].shape == (2, 3, 5)
    assert not opening_job.opened(transposed[0], "m.onnx", True).remark


def test_a_large_graph_is_looked_at_for_fp16(transposed, monkeypatch):
    monkeypatch.setattr(opening_job, "_SMALL_BYTES", 0)
    plain, half_file = transposed
    assert [opening_job._is_risky(one) for one in (plain, half_file)] == [False, True]
    with open(half_file, "rb") as file:
        assert opening_job._is_risky(file.read())
    assert opening_job.opened(half_file, "half.onnx", True).remark


def test_a_graph_that_crashes_in_any_case_is_refused(transposed, monkeypatch):
    monkeypatch.setattr(opening_job, "_crash", lambda model, optimized: "SIGSEGV")
    with pytest.raises(errors.TftrtError, match="also without optimizations"):
        runner_job.session(transposed[1])


def test_verify_and_regress_tell_the_crash_and_judge_the_answers(transposed, tftrt, tmp_path):
    done = tftrt("verify", *transposed, "--shapes=x:3x2x4", f"--json={tmp_path / 'v.json'}")
    assert done.returncode == 0 and "crashes (SIGSEGV) where it loads" in done.stdout, done.stdout + done.stderr
    assert any("MatmulTransposeFusion" in one for one in json.loads((tmp_path / "v.json").read_text())["warnings"])
    done = tftrt(
        "regress",
        "--in_process",
        f"--native={transposed[0]}",
        f"--candidate={transposed[1]}",
        "--shapes=x:3x2x4",
        "--max_seconds=2",
    )
    assert "crashes (SIGSEGV) where it loads" in done.stderr and "SIGSEGV)\n  the end of its log" not in done.stderr, (
        done.stdout + done.stderr
    )
    assert done.returncode in (0, 3, 4) and done.stdout.strip()


def test_an_export_that_crashes_says_so(transposed, tftrt, tmp_path):
    done = tftrt("export", transposed[0], f"--output={tmp_path / 'm.onnx'}", "--precision=FP16", "--shapes=x:3x2x4")
    assert done.returncode == 0 and "warning: ONNX Runtime" in done.stdout and "crashes (SIGSEGV)" in done.stdout, (
        done.stdout + done.stderr
    )
    assert "MatmulTransposeFusion" in done.stdout
    done = tftrt("inspect", tmp_path / "m.onnx")
    assert done.returncode == 0, done.stderr


@stacks.needs_older_onnxruntime
def test_a_fusion_that_fails_is_told(tmp_path, tftrt):
    model = norms(1e-3)
    path = halved(model, tmp_path / "half.onnx", EPSILONS)
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(Exception, match="SimplifiedLayerNormFusion"):
        onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    done = tftrt("verify", tmp_path / "m.onnx", path)
    assert (
        done.returncode == 0
        and "because its SimplifiedLayerNormFusion fails; it was loaded with disabled_optimizers="
        in " ".join(done.stdout.split())
    ), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("epsilon", "flags"), [(1e-3, []), (1e-3, [f"--fp32_nodes={','.join(EPSILONS)}"]), (1e-5, []), (1e-12, [])]
)
def test_a_layer_norm_in_fp16_is_written_so_that_it_loads(epsilon, flags, tftrt, tmp_path):
    onnx.save(norms(epsilon), tmp_path / "m.onnx")
    done = tftrt(
        "export",
        tmp_path / "m.onnx",
        f"--output={tmp_path / 'half.onnx'}",
        "--precision=FP16",
        "--rewrite=none",
        *flags,
    )
    assert done.returncode == 0 and "warning" not in done.stdout, done.stdout + done.stderr
    onnxruntime.InferenceSession(str(tmp_path / "half.onnx"), providers=["CPUExecutionProvider"])


def test_squares_become_products_and_no_other_power():
    nodes = [
        helper.make_node("Pow", ["x", "two"], ["a"]),
        helper.make_node("Pow", ["a", "three"], ["b"]),
        helper.make_node("Pow", ["b", "two"], ["y"]),
    ]
    values = [onnx_files.values((name, "float32", (2,))) for name in "xy"]
    model = helper.make_model(
        helper.make_graph(
            nodes,
            "g",
            *values,
            [onnx.numpy_helper.from_array(np.float32(number), name) for name, number in (("two", 2), ("three", 3))],
        )
    )
    assert squares.as_products(model) == 2
    assert [(one.op_type, list(one.input)) for one in model.graph.node] == [
        ("Mul", ["x", "x"]),
        ("Pow", ["a", "three"]),
        ("Mul", ["b", "b"]),
    ]
    assert [one.name for one in model.graph.initializer] == ["three"]
    assert squares.as_products(model) == 0


def test_a_constant_that_is_folded_twice_leaves_the_folding_out(tmp_path, monkeypatch):
    """As ONNX Runtime 1.32.0 says it of Q/DQ graphs; make test-new has such a graph."""
    path, session = onnx_files.product(tmp_path / "m.onnx"), opening_job._session

    def failing(model, optimized):
        if "ConstantFolding" not in optimized.without:
            raise RuntimeError(
                "Exception during initialization: graph.cc:4164 AddInitializedOrtValue Attempt to replace the existing tensor"
            )
        return session(model, optimized)

    monkeypatch.setattr(opening_job, "_session", failing)
    opened = opening_job.opened(str(path), "m.onnx", True)
    assert "because its ConstantFolding fails" in opened.remark and "['ConstantFolding']" in opened.remark
    # One that fails without it, too, is told as ONNX Runtime does.
    monkeypatch.setattr(opening_job, "_session", lambda model, optimized: failing(model, opening_job._Optimized()))
    with pytest.raises(RuntimeError, match="Attempt to replace"):
        opening_job.opened(str(path), "m.onnx", True)


def test_a_fork_that_waits_for_ever_is_ended_and_the_file_is_opened_here(tmp_path, monkeypatch):
    """A process with other threads may be forked while one of them holds a lock, which nobody opens in the fork."""
    here, opened, pids = os.getpid(), opening_job._session, []

    def session(*given):
        if os.getpid() != here:
            time.sleep(600)
        return opened(*given)

    fork = os.fork
    monkeypatch.setattr(os, "fork", lambda: pids.append(fork()) or pids[-1])
    monkeypatch.setattr(opening_job, "_session", session)
    monkeypatch.setattr(opening_job, "_FORK_SECONDS", 0.2)
    path = onnx_files.product(tmp_path / "m.onnx")
    assert runner_job.session(path) is not None and len(pids) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)
