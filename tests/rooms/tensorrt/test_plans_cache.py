"""Whole plans in the engine cache, without a GPU: what a plan's key depends on, and what a second build of the same plan takes. TensorRT's
own part is a stand-in that makes other bytes each time; real plans are in test_gpu_plans.py."""

import dataclasses
import json
import multiprocessing
import pathlib
import time

import pytest

from benchmarks import plans as benchmark
from tests import doubles, onnx_files, plan_jobs, stacks
from tests.command_here import run_tftrt
from tftrt_tools.base import errors
from tftrt_tools.base.process import child
from tftrt_tools.base.stack import bindings
from tftrt_tools.models.engine_cache import listing
from tftrt_tools.models.engine_cache.entry import EngineRecord, Entry
from tftrt_tools.models.engine_cache.key import EngineKey
from tftrt_tools.models.engine_cache.plan_key import PlanKey
from tftrt_tools.models.engine_cache.store import Place, Store
from tftrt_tools.models.kinds.plan import document
from tftrt_tools.models.kinds.plan.profiles import Profile, Range
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.tensorrt.plans import build, building, convert, making
from tftrt_tools.tensorrt.plans.building import Request
from tftrt_tools.tensorrt.plans.job import cached
from tftrt_tools.tensorrt.plans.settings import Settings

GPU = plan_jobs.GPU
SETTINGS = Settings(precision_mode="FP16", shapes="x:8x4")
# Processes that do not share this one's locks.
FRESH = multiprocessing.get_context("spawn")


def profile(*batches):
    return Profile({"x": Range(*((batch, 4) for batch in batches))})


def asked(folder, settings=SETTINGS, **changes):
    """A request of build_job.job for a model whose weights lie beside it. Args: changes: of its fields."""
    folder.mkdir(exist_ok=True)
    (folder / "model.onnx.data").unlink(missing_ok=True)
    path = pathlib.Path(onnx_files.product(folder / "model.onnx", outside=True))
    known = Request(
        onnx=str(path),
        plan=str(folder / "model.plan"),
        timing_cache=str(folder / "timing.cache"),
        profiles=(profile(8, 8, 8),),
        settings=settings,
        ranges={},
        cache=None,
        origin="/models/m.onnx",
        verbose=False,
    )
    return dataclasses.replace(known, **changes)


def key(request, tensorrt="8.5.3.1", **gpu):
    return cached.key(request, tensorrt, dataclasses.replace(GPU, **gpu))


@pytest.fixture
def first(tmp_path):
    return key(asked(tmp_path / "first"))


# Keys


def test_equal_requests_have_equal_keys_wherever_they_lie(tmp_path, first):
    assert key(asked(tmp_path / "second")) == first and len(first.name) == 64
    assert key(asked(tmp_path / "second", origin="/models/other.onnx"), driver="2").name == first.name


def test_the_graph_and_the_weights_beside_it_change_the_key(tmp_path, first):
    request = asked(tmp_path / "second")
    graph, weights = pathlib.Path(request.onnx), pathlib.Path(request.onnx + ".data")
    raw = weights.read_bytes()
    weights.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    assert key(request).name != first.name
    weights.write_bytes(raw)
    assert key(request).name == first.name
    graph.write_bytes(graph.read_bytes().replace(b"product", b"Product"))
    assert key(request).name != first.name


@pytest.mark.parametrize(
    "profiles", [[(8, 8, 9)], [(8, 8, 8), (9, 9, 9)], [(9, 9, 9), (8, 8, 8)], [(1, 8, 8)], [(7, 7, 8)]]
)
def test_each_profile_and_their_order_change_the_key(tmp_path, first, profiles):
    request = asked(tmp_path / "second", profiles=tuple(profile(*one) for one in profiles))
    assert key(request).name != first.name
    assert (
        len(profiles) == 1
        or key(request).name != key(dataclasses.replace(request, profiles=request.profiles[::-1])).name
    )


CHANGED = {
    "precision_mode": "FP32",
    "max_workspace_size_bytes": 1 << 20,
    "strongly_typed": True,
    "tf32": False,
    "tactic_sources": ("CUBLAS",),
    "sparse_weights": True,
    "version_compatible": True,
    "refit": True,
}
# Flags whose value reaches the key by other fields of the request: shapes by the profiles, a table by its ranges, frozen inputs and the
# precision of nodes by the changed file. An ONNX file has no signature.
OTHERS = {
    "shapes": "x:9x4",
    "signature_keys": ("serve",),
    "calibration_table": "/a/table",
    "calibration_method": "max",
    "calibration_percentile": 99.0,
    "freeze": "x=1",
    "fp32_nodes": "a",
    "int8_as": "/a/plan",
}


@pytest.mark.parametrize(
    "field", [one.name for one in dataclasses.fields(Settings) if one.name not in {*OTHERS, "plugins"}]
)
def test_each_setting_that_reaches_tensorrt_changes_the_key(tmp_path, first, field):
    changed = dataclasses.replace(SETTINGS, **{field: CHANGED[field]})
    assert (
        getattr(changed, field) != getattr(SETTINGS, field)
        and key(asked(tmp_path / "second", changed)).name != first.name
    )


def test_other_settings_do_not(tmp_path, first):
    assert key(asked(tmp_path / "second", dataclasses.replace(SETTINGS, **OTHERS))).name == first.name
    one, other = (
        key(asked(tmp_path / "second", dataclasses.replace(SETTINGS, tactic_sources=sources)))
        for sources in (("CUDNN", "CUBLAS"), ("CUBLAS", "CUDNN"))
    )
    assert one.name == other.name


def test_plugins_count_by_what_is_in_them(tmp_path, first):
    found = []
    for folder, content in (("a", b"one"), ("b", b"one"), ("c", b"two")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "own.so").write_bytes(content)
        found.append(
            key(
                asked(tmp_path / "second", dataclasses.replace(SETTINGS, plugins=(str(tmp_path / folder / "own.so"),)))
            ).name
        )
    assert found[0] == found[1] and len({first.name, *found}) == 3


def test_ranges_of_a_table_change_the_key(tmp_path, first):
    tables = ({"x": 1.0, "y": 2.0}, {"y": 2.0, "x": 1.0}, {"x": 1.0, "y": 2.5}, {"x": 1.0})
    found = [key(asked(tmp_path / "second", ranges=one)).name for one in tables]
    assert found[0] == found[1] and len({first.name, *found}) == 4


@pytest.mark.parametrize("change", [{"tensorrt": "8.6.1"}, {"compute_capability": "8.0"}, {"name": "another GPU"}])
def test_the_machine_changes_the_key(tmp_path, first, change):
    assert key(asked(tmp_path / "second"), **change).name != first.name


def test_so_do_its_multiprocessors_libraries_and_variables(tmp_path, first, monkeypatch):
    request = asked(tmp_path / "second")
    found = []
    for place, value in (
        ("device.multiprocessors", lambda: 132),
        ("probe_job.version_of_loaded", lambda *names: "8.7.0" if "cudnn" in names[0] else ""),
        ("probe_job.version_of_loaded", lambda *names: "11.11.3" if "cublas" in names[0] else ""),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(f"tftrt_tools.tensorrt.plans.job.cached.{place}", value)
            found.append(key(request).name)
    for name in ("NVIDIA_TF32_OVERRIDE", "__LUNOWUD", "TF_TRT_SPARSE_MODE"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "0")
            found.append(key(request).name)
    assert len({first.name, *found[:-1]}) == 6 and found[-1] == first.name, "TF-TRT's own variables do not reach a plan"


def test_every_field_is_in_the_name(first):
    changes = {
        "onnx": "sha256:0",
        "profiles": (),
        "precision": "INT8",
        "tactic_sources": ("CUDNN",),
        "plugins": ("sha256:1",),
        "ranges_digest": "sha256:2",
        "max_workspace_size_bytes": 1,
        "multiprocessors": 7,
        "held": 1,
        "environment": {"__LUNOWUD": "1"},
    }
    for field in dataclasses.fields(PlanKey):
        if field.name == "format":
            continue
        old = getattr(first, field.name)
        new = changes[field.name] if field.name in changes else not old if isinstance(old, bool) else old + ".1"
        assert dataclasses.replace(first, **{field.name: new}).name != first.name, field.name


# Records


def test_both_kinds_of_records_are_read(tmp_path, first):
    from tests.rooms.models.test_engine_cache import KEY

    cache, file = Store(tmp_path / "cache"), tmp_path / "file"
    file.write_bytes(b"engine")
    for one in (KEY, first):
        assert cache.put(one, file, build_seconds=2.0, origin="m").done
        record = cache.get(one, tmp_path / "copy").record
        assert record.key == one and EngineRecord.from_dict(json.loads(json.dumps(record.to_dict()))) == record
    entries = cache.entries()
    assert {type(entry.record.key) for entry in entries} == {EngineKey, PlanKey}
    assert all(Entry.from_dict(json.loads(json.dumps(entry.to_dict()))) == entry for entry in entries)
    shown = listing.Listing.of(cache)
    assert listing.Listing.from_dict(json.loads(json.dumps(shown.to_dict()))) == shown


def test_a_reader_that_knows_no_plans_calls_the_record_unreadable(first):
    """An earlier version reads every key so, and lists such an entry as one that cannot be used."""
    with pytest.raises(KeyError):
        EngineKey.from_dict(first.to_dict())


# Builds


@pytest.fixture
def anew(monkeypatch):
    """Everything but TensorRT's own part. No two builds make the same bytes."""
    monkeypatch.setattr(bindings, "installed", lambda: True)
    doubles.job(monkeypatch, building.build, plan_jobs.built_anew)
    doubles.job(monkeypatch, building.check, plan_jobs.checked)
    monkeypatch.setattr(making, "_check_calls", lambda *arguments: None)


@pytest.fixture
def convert_to(anew, tmp_path):
    """A function (name, settings, folder of the cache) -> (Built, bytes of the plan)."""
    source = onnx_files.product(tmp_path / "source.onnx", outside=True)

    def call(name, settings=SETTINGS, folder="cache"):
        cache = {"folder": str(tmp_path / folder), "max_bytes": 1 << 20} if folder else None
        done = convert.convert(source, tmp_path / name, settings, cache=cache)
        return done, (tmp_path / name / "model.plan").read_bytes()

    return call


def test_the_same_plan_comes_from_the_cache_and_others_are_built(convert_to, tmp_path):
    first, second = convert_to("first"), convert_to("second")
    assert (first[0].cached, second[0].cached) == (False, True) and first[1] == second[1]
    said = passport.read(tmp_path / "second", passport.MANIFEST)
    assert (
        said["cached"]
        and said["build_seconds"] == 1.0
        and said["known_timings"] == 0
        and said["signatures"][0]["built"][0]["cached"]
    )
    one, other = (document.read(tmp_path / name) for name in ("first", "second"))
    assert dataclasses.replace(one, created=other.created) == other
    assert (tmp_path / "second/model.plan").stat().st_mode & 0o777 == 0o644, "in the cache it is for its user alone"
    kept = {path.relative_to(tmp_path / "second") for path in (tmp_path / "second").rglob("*")}
    assert kept == {path.relative_to(tmp_path / "first") for path in (tmp_path / "first").rglob("*")}
    for name, settings, folder in (
        ("fp32", dataclasses.replace(SETTINGS, precision_mode="FP32"), "cache"),
        ("without", SETTINGS, None),
        ("elsewhere", SETTINGS, "another"),
    ):
        done, content = convert_to(name, settings, folder)
        assert not done.cached and content != first[1]
    assert not Store(tmp_path / "cache").problem and len(Store(tmp_path / "cache").entries()) == 2


def test_a_plan_directory_that_is_built_anew_takes_it_too(convert_to, tmp_path):
    _, content = convert_to("first")
    cache = {"folder": str(tmp_path / "cache"), "max_bytes": 1 << 20}
    (tmp_path / "first/model.plan").write_bytes(b"of another machine")
    assert build.build(tmp_path / "first", None, build.Options(), cache=cache).cached
    assert (tmp_path / "first/model.plan").read_bytes() == content
    other = build.build(tmp_path / "first", tmp_path / "other", build.Options(shapes="x:9x4"), cache=cache)
    assert not other.cached and other.known_timings > 0, "TensorRT's times are used all the same"
    assert not build.build(tmp_path / "first", None, build.Options()).cached
    assert (tmp_path / "first/model.plan").read_bytes() != content


@pytest.mark.parametrize(
    "damage",
    [
        lambda entry: (entry / "engine").write_bytes(b"cut"),
        lambda entry: (entry / "record.json").unlink(),
        lambda entry: (entry / "record.json").write_text('{"key": {"onnx": 1}}'),
    ],
    ids=["a cut plan", "no record", "another record"],
)
def test_a_damaged_plan_is_built_anew_and_kept(convert_to, tmp_path, damage):
    _, content = convert_to("first")
    (entry,) = Store(tmp_path / "cache").entries()
    damage(tmp_path / "cache" / entry.name)
    done, again = convert_to("second")
    assert not done.cached and again != content and convert_to("third")[1] == again


def test_a_cache_that_keeps_nothing_or_does_not_work_is_no_error(convert_to, tmp_path):
    (tmp_path / "file").write_text("")
    done, _ = convert_to("first", folder="file")
    assert "is no folder" in done.cache_problem and not done.cached
    for name in ("second", "third"):
        assert not convert.convert(
            str(tmp_path / "source.onnx"),
            tmp_path / name,
            SETTINGS,
            cache={"folder": str(tmp_path / "cache"), "max_bytes": 0},
        ).cached


def test_a_plan_that_tensorrt_does_not_read_is_not_kept(tmp_path):
    request, cache = asked(tmp_path / "m"), Store(tmp_path / "cache")

    def build():
        pathlib.Path(request.plan).write_bytes(b"plan")
        return 1.0

    def load():
        raise ValueError("no engine")

    with pytest.raises(ValueError, match="no engine"):
        cached.made(cache, lambda: key(request), request, "1", build, load)
    assert cache.entries() == []


@pytest.mark.parametrize(
    ("cached_plan", "says", "mend"),
    [
        (True, "the plan came from the engine cache, and", "--noengine_cache"),
        (False, "the plan was built, and", "a fix"),
    ],
)
def test_a_plan_that_ends_the_process_would_come_from_the_cache_again(cached_plan, says, mend):
    with pytest.raises(errors.TftrtError, match=says) as raised, making._died(cached_plan):
        raise child.ChildDied("killed", "a fix", "")
    assert mend in raised.value.mend


class Part:
    """Stands for TensorRT's builder, configuration, timing cache, runtime and engine; the engine has no inputs, outputs or layers."""

    num_optimization_profiles, num_io_tensors, builds = 1, 0, 0

    def create_timing_cache(self, known):
        self.known = known
        return self

    def set_timing_cache(self, cache, ignore_mismatch):
        return cache is self

    def get_timing_cache(self):
        return self

    create_engine_inspector = get_timing_cache

    def serialize(self):
        return self.known + b"times"

    def build_serialized_network(self, network, config):
        self.builds += 1
        return bytearray(b"plan %d" % self.builds)

    def deserialize_cuda_engine(self, plan):
        self.read = plan
        return self

    def get_engine_information(self, form):
        return '{"Layers": []}'


@pytest.fixture
def part(monkeypatch):
    """The job of the child, with a Part in place of TensorRT."""
    part = Part()
    for place, value in (
        ("_gpu", lambda: GPU),
        ("trt.Builder", lambda log: part),
        ("gpu.identity", lambda: ""),
        ("_plugins", lambda settings: ()),
        ("networks.parsed", lambda *arguments: (part, None)),
        ("networks.check_inputs", lambda network: None),
        ("networks.configured", lambda *arguments: (part, ("FP16",))),
        ("networks.set_ranges", lambda network, ranges: len(ranges)),
        ("engines.runtime", lambda: part),
    ):
        monkeypatch.setattr(f"tftrt_tools.tensorrt.plans.build_job.{place}", value)
    return part


@stacks.needs_bindings
@pytest.mark.parametrize("switch", ["1", "0"])
def test_the_childs_job_builds_once_and_then_takes_the_plan(part, tmp_path, monkeypatch, switch):
    from tftrt_tools.tensorrt.plans import build_job

    monkeypatch.setenv("TFTRT_TIMING_CACHE", switch)
    times, carried = tmp_path / "timing.cache", switch == "1"
    place = Place(folder=str(tmp_path / "cache"), max_bytes=1 << 20)
    request = asked(tmp_path / "m", cache=place, timing_cache=str(times))
    first = build_job.job(request)
    assert (first.cached, first.known_timings, part.builds, part.read, times.read_bytes()) == (
        False,
        0,
        1,
        b"plan 1",
        b"times",
    )
    times.unlink()
    again = build_job.job(request)
    assert (again.cached, again.known_timings, part.builds, part.read) == (True, 0, 1, b"plan 1")
    assert again.seconds.build == first.seconds.build and again.layers == {"Layers": []} and again.flags == ("FP16",)
    assert times.is_file() == carried, "the times that the engine cache has"
    other = build_job.job(dataclasses.replace(request, ranges={"x": 1.0}))
    assert (other.cached, other.known_timings, other.ranged, part.read) == (False, 5 * carried, 1, b"plan 2")
    without = build_job.job(dataclasses.replace(request, cache=None))
    assert (without.cached, without.known_timings, part.read) == (False, 0, b"plan 3")


def build_once(folder, number):
    request = asked(folder / str(number))

    def build():
        with open(folder / "log", "a") as file:
            file.write("built\n")
        time.sleep(0.3)
        pathlib.Path(request.plan).write_bytes(b"plan")
        return 0.3

    cached.made(Store(folder / "cache"), lambda: key(request), request, "1", build, lambda: None)


def test_of_several_processes_one_builds_and_the_others_take_it(tmp_path):
    processes = [FRESH.Process(target=build_once, args=(tmp_path, number)) for number in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * 3 and (tmp_path / "log").read_text() == "built\n"
    assert [(tmp_path / str(number) / "model.plan").read_bytes() for number in range(3)] == [b"plan"] * 3


# Commands


def test_the_commands_say_where_the_plan_came_from(anew, tmp_path):
    source, where = onnx_files.product(tmp_path / "m.onnx"), f"--engine_cache_dir={tmp_path / 'cache'}"
    told = [
        "convert",
        "--backend=tensorrt",
        f"--model={source}",
        "--shapes=x:1x4|x:min=2x4,max=9x4",
        "--overwrite",
        f"--output={tmp_path / 'plan'}",
        where,
    ]
    from_cache = "it came from the engine cache; its build took 1.0 s"
    first, second, without = run_tftrt(*told), run_tftrt(*told), run_tftrt(*told, "--noengine_cache")
    assert "built in 1.0 s" in first.stdout and from_cache in second.stdout and "built in 1.0 s" in without.stdout, (
        second.stderr
    )
    assert from_cache not in first.stdout + without.stdout
    listed = run_tftrt("cache", "list", where).stdout
    for text in ("plan of", "FP32", "1x4, 2x4 to 9x4", "a GPU", "8.5.3.1", "1 entry"):
        assert text in " ".join(listed.split()), listed
    said = json.loads(run_tftrt("cache", "list", where, "--json=-").stdout)
    assert said["entries"][0]["record"]["key"]["profiles"][1] == {"x": [[2, 4], [9, 4], [9, 4]]}
    assert said["entries"][0]["record"]["origin"] == source
    assert "removed: 1 entry" in run_tftrt("cache", "remove", said["entries"][0]["name"], where).stdout
    assert "built in 1.0 s" in run_tftrt(*told).stdout


@pytest.mark.bench
def test_the_benchmark_builds_each_plan_twice(anew, tmp_path, monkeypatch):
    onnx_files.product(tmp_path / "toy.onnx")
    monkeypatch.setattr(benchmark, "_export", lambda *arguments: None)
    monkeypatch.setattr(benchmark, "_tftrt", lambda end, *words, gpu=True: done.append(run_tftrt(*map(str, words))))
    monkeypatch.setitem(benchmark._EXPORTING, "toy", next(iter(benchmark._EXPORTING.values())))
    done, case, options = [], benchmark.Case("toy", "x:{}x4"), benchmark._options([f"--workdir={tmp_path}"])
    benchmark._make(case, "plan FP16", options, 0)
    assert [one.returncode for one in done] == [0] * 4
    first, second = (tmp_path / f"toy-plan-fp16{end}" for end in ("", "-second"))
    assert (first / "model.plan").read_bytes() != (second / "model.plan").read_bytes()
    assert [passport.read(one, passport.MANIFEST)["known_timings"] > 0 for one in (first, second)] == [False, True]
    options.precisions, options.without = ["FP16"], [benchmark.TFTRT]
    (row,) = benchmark._builds([case], options)
    assert (row["first_s"], row["second_s"], row["problem"]) == (1.0, 1.0, None)
    path = passport.folder(second) / passport.MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), "cached": True}))
    assert benchmark._builds([case], options)[0]["problem"] == "the second plan came from the engine cache"
