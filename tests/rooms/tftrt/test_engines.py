"""How engines are built one after the other, bounded and resumed. TensorRT's part needs a GPU (tests/gpu/test_gpu_engines.py); here the native
segment runs in its place, and a file in an engine file's form is written."""

import threading
import time

import pytest
import tensorflow as tf

from tests.engine_models import Branches, Steps, saved
from tests.refusals import GPU, NUMBERS, VERSIONS, Builds, Refusals, converted, cropping, stand_in
from tftrt_tools.base import errors, tf_private
from tftrt_tools.base.process import progress
from tftrt_tools.models.engine_cache.store import Hit, Store
from tftrt_tools.models.savedmodel.job import graph, loading
from tftrt_tools.tftrt.conversion import pass_log
from tftrt_tools.tftrt.conversion.job import engines, finishing, graph_pass, watched
from tftrt_tools.tftrt.conversion.settings import Settings
from tftrt_tools.tftrt.conversion.signature_result import SignatureResult


@pytest.fixture
def builds(monkeypatch):
    stand_in = Builds([], set(), threading.Event())
    monkeypatch.setattr(engines, "compile_engines", stand_in.compile)
    monkeypatch.setattr(tf_private, "serialize_engines", stand_in.serialize)
    yield stand_in
    stand_in.go_on.set()


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    return saved(Steps(), tmp_path_factory.mktemp("steps") / "model")


def build(model, calls, folder, store=None, minutes=None, dynamic=True, gpu=GPU):
    """Returns: (SignatureResult, resources, GraphDef) of the model's only signature."""
    root = tf.saved_model.load(str(model))
    function = root.signatures["serving_default"]
    settings = Settings(use_dynamic_shape=dynamic)
    frozen = graph_pass.freeze("serving_default", function)
    passed = graph_pass.run(frozen, settings)
    # TensorFlow knows functions by name, for as long as this process lives.
    finishing.unique_names(passed.graph_def, f"TRTEngineOp_{next(NUMBERS)}")
    result = SignatureResult.of("serving_default", loading.input_specs(function), passed)
    folder.mkdir(exist_ok=True)
    work = finishing.Work(
        settings=settings, gpu=gpu, versions=VERSIONS, store=store, origin="model", budget=watched.Budget(minutes)
    )
    made = finishing.finished(frozen, passed.graph_def, result, work, calls, folder)
    return made.result, made.resources, passed.graph_def, work


def test_each_engine_is_built_for_what_reaches_it(steps, builds, tmp_path):
    result, resources, _, _ = build(steps, [{"x": (1, 8)}, {"x": (4, 8)}], tmp_path / "files")
    assert [shapes for _, shapes in builds.compiled] == 3 * [[([1, 8],), ([4, 8],)]]
    assert [one.name for one in result.built] == list(resources) == [name for name, _ in builds.compiled]
    assert not result.unbuilt and result.calls == ({"x": (1, 8)}, {"x": (4, 8)})
    assert SignatureResult.from_dict(result.to_dict()) == result


def test_what_is_not_ready_in_time_stays_native_and_the_rest_is_kept(steps, builds, tmp_path):
    builds.held = {1}
    store = Store(tmp_path / "cache")
    result, resources, graph_def, work = build(steps, [{"x": (4, 8)}], tmp_path / "one", store, minutes=0.03)
    first, second, third = (engine.name for engine in result.engines)
    assert [one.name for one in result.built] == list(resources) == [first]
    assert [(one.name, one.reason) for one in result.unbuilt] == [
        (name, "not ready when --max_build_minutes=0.03 were over") for name in (second, third)
    ]
    allowed = {engine.name: engine.allow_build_at_runtime for engine in graph.engine_ops(graph_def)}
    assert allowed == {first: True, second: False, third: False}
    finishing.check_built([result], work.budget)
    # The next run goes on: what was ready comes from the cache, whatever the time.
    builds.go_on.set()
    again, _, _, _ = build(steps, [{"x": (4, 8)}], tmp_path / "two", store)
    assert [one.cached for one in again.built][0] and not again.unbuilt
    last, _, _, _ = build(steps, [{"x": (4, 8)}], tmp_path / "three", store, minutes=1e-9)
    assert [one.cached for one in last.built] == [True] * 3


def test_what_the_cache_has_takes_no_time_of_the_builds(steps, builds, tmp_path, monkeypatch):
    """Seen on a busy machine: the first engine had not been copied when the time was over, and was left out."""
    store, get = Store(tmp_path / "cache"), Store.get
    build(steps, [{"x": (4, 8)}], tmp_path / "one", store)
    monkeypatch.setattr(Store, "get", lambda *args: time.sleep(0.2) or get(*args))
    again, _, _, _ = build(steps, [{"x": (4, 8)}], tmp_path / "two", store, minutes=0.1 / 60)
    assert [one.cached for one in again.built] == [True] * 3 and not again.unbuilt
    # Of three one: it is copied before the first build, not between two of them.
    second = again.built[1].name
    monkeypatch.setattr(Store, "get", lambda *args: _slow_hit(get(*args)))
    for entry in store.entries():
        if not entry.record.origin.endswith(second.rpartition("_")[2]):
            store.remove(entry.name)
    mixed, _, _, _ = build(steps, [{"x": (4, 8)}], tmp_path / "three", store, minutes=1 / 60)
    assert [one.cached for one in mixed.built] == [False, True, False] and not mixed.unbuilt


def _slow_hit(found):
    time.sleep(1.2 if isinstance(found, Hit) else 0)
    return found


def test_where_nothing_was_ready_the_check_fails(steps, builds, tmp_path):
    builds.held = {0}
    result, _, _, work = build(steps, [{"x": (4, 8)}], tmp_path / "files", minutes=0.01)
    with pytest.raises(errors.CheckFailed) as raised:
        finishing.check_built([result], work.budget)
    assert "none of the 3 engines was ready within --max_build_minutes=0.01" in raised.value.cause


def test_an_engine_op_that_no_call_reaches_is_named(builds, tmp_path):
    result, resources, _, _ = build(
        saved(Branches(), tmp_path / "model"), [{"x": (2, 8), "branch": ()}], tmp_path / "files"
    )
    (left,) = result.unbuilt
    assert left.reason == engines.NOT_REACHED and left.name not in resources and len(result.built) == 2


def test_what_is_said_names_engine_profiles_and_time(steps, builds, tmp_path, monkeypatch):
    said = []
    builds.held = {0}
    monkeypatch.setattr(engines.watched, "run", lambda work, tick, until: _ticked(work, tick, builds))
    with progress.listening(lambda text, *_: said.append(text)):
        build(steps, [{"x": (1, 8)}, {"x": (4, 8)}], tmp_path / "files")
    assert "building engine 1 of 3 of serving_default with 2 profiles" in said
    assert "building engine 1 of 3 of serving_default with 2 profiles, 2 min 5 s" in said


def _ticked(work, tick, builds):
    thread_result = []
    thread = threading.Thread(target=lambda: thread_result.append(work()))
    thread.start()
    while not builds.compiled:
        thread.join(0.01)
    tick(125.0)
    builds.go_on.set()
    thread.join()
    return thread_result[0]


def test_in_implicit_batch_mode_the_smaller_batch_is_built_first(steps, builds, tmp_path):
    build(steps, [{"x": (8, 8)}, {"x": (2, 8)}], tmp_path / "files", dynamic=False)
    assert [shapes for _, shapes in builds.compiled] == 3 * [[([2, 8],), ([8, 8],)]]


def test_a_node_that_tensorrt_refuses_by_name_stays_in_tensorflow_and_the_rest_is_built(monkeypatch, tmp_path):
    stand_in(monkeypatch, Refusals("StridedSlice"))
    made = converted(cropping(tmp_path / "model"), [{"x": (1, 24, 8)}, {"x": (4, 24, 8)}], tmp_path)
    (left,) = [one for one in made.result.left_out if one.op == "StridedSlice"]
    assert left.reason.startswith(pass_log.REFUSED) and "ISliceLayer has out of bounds access" in left.reason
    assert (
        len(made.result.built) == 2
        and not made.result.unbuilt
        and set(made.resources) == {one.name for one in made.result.built}
    )
    x = tf.random.normal((2, 24, 8))
    original = loading.load(tmp_path / "model").root.signatures["serving_default"](x=x)["y"]
    assert made.function is not None and original.shape == (2, 20, 8)


def test_a_refusal_that_names_no_node_is_left_as_it_is(monkeypatch, tmp_path):
    stand_in(monkeypatch, Refusals("StridedSlice", "10: [optimizer.cpp] Error Code 10: no implementation for a node"))
    made = converted(cropping(tmp_path / "model"), [{"x": (1, 24, 8)}, {"x": (4, 24, 8)}], tmp_path)
    assert [one.node for one in made.result.unbuilt] == [""] and not made.result.built


def test_nothing_is_left_where_each_node_is_refused(monkeypatch, tmp_path):
    class All(Refusals):
        def compile(self, lone, feeds, dynamic):
            (one,) = graph.native_segments(lone.graph_def).values()
            self.op = next(node.op for node in one.function.node_def if node.op not in graph.PASSIVE_OPS)
            super().compile(lone, feeds, dynamic)

    builds = stand_in(monkeypatch, All(""))
    made = converted(cropping(tmp_path / "model"), [{"x": (1, 24, 8)}], tmp_path)
    assert len(builds.compiled) < 20 and not made.result.built


def test_slices_that_all_calls_decide_are_fixed_in_the_engine_alone(monkeypatch, tmp_path):
    builds = stand_in(monkeypatch, Builds([], set(), threading.Event()))
    seen = []

    def compile_engines(lone, feeds, dynamic):
        # As the real one: the functions of the engine's graph are known to the process from here on.
        tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(lone.graph_def, name=""), [])
        builds.compile(lone, feeds, dynamic)
        seen.append(lone)

    monkeypatch.setattr(engines, "compile_engines", compile_engines)
    made = converted(cropping(tmp_path / "model"), [{"x": (1, 24, 8)}, {"x": (4, 24, 8)}], tmp_path)
    (built,) = made.result.built
    assert len(built.slices) == 1 and not made.result.findings
    (inside,) = graph.native_segments(seen[0].graph_def).values()
    (kept,) = graph.native_segments(made.function.graph.as_graph_def()).values()
    assert [any("counted" in node.name for node in one.function.node_def) for one in (inside, kept)] == [True, False]
    (open_,) = converted(cropping(tmp_path / "other"), [{"x": (1, 24, 8)}, {"x": (4, 48, 8)}], tmp_path).result.built
    assert open_.slices == ()
