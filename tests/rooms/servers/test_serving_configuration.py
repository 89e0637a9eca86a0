"""`tftrt configure`: files made from models, and files checked."""

import json
import shutil

import pytest

from tests.command_line import assert_clear
from tftrt_tools.base import errors
from tftrt_tools.base.wire import config_messages as protos
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.servers.serving.configuration import (
    batching_file,
    config_check,
    engine_batch_sizes,
    engine_batch_sizes_job,
    generation,
    model_config,
)
from tftrt_tools.servers.serving.configuration.engine_batch_sizes import Covered

SIGNATURE, INPUT = "serving_default", "image"


def covered(path, sizes, known=True, reason=""):
    return Covered(path=path, sizes=sizes, known=known, reason=reason)


@pytest.mark.parametrize(
    "flag, expected",
    [
        ("d=/models/d", ("/models/d", "latest", 1, (), {})),
        ("d=/models/d:latest=2", ("/models/d", "latest", 2, (), {})),
        ("d=/models/d:all", ("/models/d", "all", 1, (), {})),
        (
            "d=/models/d:versions=2,1:stable=1:canary=2",
            ("/models/d", "specific", 1, (1, 2), {"stable": 1, "canary": 2}),
        ),
        ("d=gs://bucket/d:versions=3", ("gs://bucket/d", "specific", 1, (3,), {})),
        ("d=s3://host:9000/d", ("s3://host:9000/d", "latest", 1, (), {})),
        ("d=/a=b/d:stable=1", ("/a=b/d", "latest", 1, (), {"stable": 1})),
    ],
)
def test_the_grammar_of_model(flag, expected):
    model = model_config.parse(flag)
    assert (model.base_path, model.policy, model.latest, model.versions, model.labels) == expected
    again = model_config.Model.of(model_config.to_proto([model]).model_config_list.config[0])
    assert again == model


@pytest.mark.parametrize(
    "flag, said",
    [
        ("d", "gives no name and base path"),
        ("=/d", "gives no name and base path"),
        ("d=", "gives no name and base path"),
        ("d=/d:latest=2:all", "two version policies"),
        ("d=/d:latest=0", "latest=0"),
        ("d=/d:stable=x", "stable=x is no version number"),
        ("d=/d:version=1", "'version' is no option"),
        ("d=/d:newest", "'newest' is no option"),
        ("d=/d:stable=1:stable=2", "'stable' twice"),
        ("d=/d:versions=1:stable=2", "version 2 has a label and is not among versions=1"),
        ("d=:all", "no base path"),
    ],
)
def test_what_is_no_model(flag, said):
    with pytest.raises(errors.UsageError) as caught:
        model_config.parse(flag)
    assert said in caught.value.cause and caught.value.mend


def test_a_relative_base_path_is_made_absolute_and_mounted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = model_config.parse("d=models/d")
    assert model.base_path == str(tmp_path / "models" / "d")
    mounts = [model_config.parse_mount(f"{tmp_path}/models:/models")]
    assert model_config.mounted(model.base_path, mounts) == "/models/d"
    assert (
        model_config.mounted("gs://b/d", mounts) == "gs://b/d"
        and model_config.mounted("/elsewhere/d", mounts) == "/elsewhere/d"
    )


# What engines cover


ROWS = [{"x": (1, 4)}, {"x": (8, 4)}, {"x": (32, 4)}]


@pytest.mark.parametrize(
    "calls, strategy, sizes",
    [
        (ROWS, "Optimal", {1, 8, 32}),
        (ROWS, "Range", set(range(1, 33))),
        ([{"x": (8, 4)}, {"x": (32, 4)}], "Range", set(range(8, 33))),
        (ROWS, "ImplicitBatchModeCompatible", set(range(1, 33))),
        ([{"x": (1, 4)}, {"x": (8, 4)}, {"x": (8, 9)}], "Optimal", {8}),  # what every length has
        ([{"x": (8, 4)}, {"x": (2, 9)}], "ImplicitBatchModeCompatible", {1, 2}),
        ([{"x": (2, 4), "n": ()}], "Optimal", {2}),
        ([{"x": (2, 4), "y": (3, 4)}], "Optimal", set()),  # never one batch
    ],
)
def test_the_sizes_of_declared_shapes(calls, strategy, sizes):
    assert engine_batch_sizes_job._of_calls(calls, strategy) == sizes


def test_the_sizes_of_several_models_are_those_of_all():
    one, other, native = covered("a", (1, 8, 32)), covered("b", tuple(range(1, 17))), covered("c", None)
    assert engine_batch_sizes.common([one, other, native]) == ((1, 8), True)
    assert engine_batch_sizes.common([native]) == (None, True)
    assert engine_batch_sizes.common([one, covered("d", (), known=False)]) == ((1, 8, 32), False)


def edit_manifest(model, calls, strategy):
    manifest = passport.read(model, passport.MANIFEST)
    manifest["dynamic_shape_profile_strategy"] = strategy
    manifest["signatures"][0]["calls"] = [{INPUT: [batch, 8, 8, 1]} for batch in calls]
    passport.write(model, passport.MANIFEST, manifest)


def give_engines(model, batches, profiles):
    """Engine files as TF-TRT writes them, with engines that are no engines: nothing here loads them."""
    import tensorflow as tf

    from tftrt_tools.models.savedmodel import engine_assets
    from tftrt_tools.models.savedmodel.job import graph, protos

    proto = protos.read(model)
    graph_def = proto.meta_graphs[0].graph_def
    if profiles:
        graph.set_on_engines(graph_def, _use_implicit_batch=False)
        (model / protos.FILE).write_bytes(proto.SerializeToString())
    (model / "assets").mkdir(exist_ok=True)
    for engine in graph.engine_ops(graph_def):
        with tf.io.TFRecordWriter(str(model / "assets" / (engine_assets.PREFIX + engine.name))) as file:
            for batch in batches:
                instance = engine_assets._message_class()(serialized_engine=b"none")
                for dim in (batch, 8, 8, 1):
                    instance.input_shapes.add() if not instance.input_shapes else None
                    instance.input_shapes[0].dim.add(size=dim)
                file.write(instance.SerializeToString())


def give_warmup(model, batches):
    import numpy as np
    import tensorflow as tf
    from tensorflow_serving.apis import prediction_log_pb2

    with tf.io.TFRecordWriter(str(model / "assets.extra" / "tf_serving_warmup_requests")) as file:
        for batch in batches:
            log = prediction_log_pb2.PredictionLog()
            log.predict_log.request.inputs[INPUT].CopyFrom(tf.make_tensor_proto(np.zeros((batch, 8, 8, 1), np.float32)))
            file.write(log.SerializeToString())


@pytest.fixture
def base(converted, tmp_path):
    """A base path with version 1: the digits model in implicit batch mode, without engines."""
    shutil.copytree(converted("digits_cnn", "--precision=FP16"), tmp_path / "models" / "digits" / "1")
    return tmp_path / "models" / "digits"


def configure(tmp_path, *models, sizes=(), folder="config", **more):
    batching = batching_file.Settings(allowed_batch_sizes=sizes)
    return generation.configure(
        tmp_path / folder, generation.Options(models=tuple(map(model_config.parse, models)), batching=batching, **more)
    )


def written(tmp_path, kind, folder="config"):
    text = (tmp_path / folder / protos.FILE_NAMES[kind]).read_text()
    return protos.parse(kind, text), text


def test_what_each_kind_of_model_says(base, tmp_path, zoo_model):
    """All in one child process."""

    def variant(name, change):
        shutil.copytree(base / "1", tmp_path / name)
        change(tmp_path / name)
        return tmp_path / name

    def with_manifest(model):
        give_engines(model, (1, 32), profiles=False)
        edit_manifest(model, (1, 32), None)

    def without_manifest(model):
        give_engines(model, (4, 16), profiles=False)
        shutil.rmtree(model / "assets.extra" / "tftrt")

    found = engine_batch_sizes.covered(
        [
            variant("manifest", with_manifest),
            variant("engines", without_manifest),
            variant("warm", lambda model: give_warmup(model, (16, 1))),
            variant("profiles", lambda model: give_engines(model, (), profiles=True)),
            base / "1",
            zoo_model("digits_cnn"),
        ]
    )
    assert [one.sizes for one in found[:3]] == [tuple(range(1, 33)), tuple(range(1, 17)), tuple(range(1, 17))]
    assert all(one.known for one in found[:3])
    assert "built by the first request" in found[3].reason and "neither engines nor warm-up" in found[4].reason
    assert not found[3].known and not found[4].known
    assert found[5] == covered(str(zoo_model("digits_cnn")), None, reason="no engines")


def test_a_signature_with_a_fixed_batch_takes_that_one():
    assert engine_batch_sizes_job._fixed([InputSpec("x", "float32", (4, 8))])[0] == {4}
    assert engine_batch_sizes_job._fixed([InputSpec("x", "float32", (None, 8)), InputSpec("n", "int32", ())])[0] is None


def test_engines_of_some_sizes_are_padded_to(base, tmp_path):
    give_engines(base / "1", (1, 8, 32), profiles=True)
    edit_manifest(base / "1", (1, 8, 32), "Optimal")
    configure(tmp_path, f"digits={base}")
    message, text = written(tmp_path, protos.BATCHING)
    assert list(message.allowed_batch_sizes) == [1, 8, 32] and message.max_batch_size.value == 32
    assert "A request with 0 rows must not reach this server" in text
    with pytest.raises(errors.UsageError, match="do not cover batches of 4, 16; they cover 1, 8, 32") as caught:
        configure(tmp_path, f"digits={base}", sizes=(1, 4, 8, 16), overwrite=True)
    assert "--allow_uncovered" in caught.value.mend and written(tmp_path, protos.BATCHING)[1] == text


def test_engines_of_every_size_need_no_padding():
    every = tuple(range(1, 33))
    text = batching_file.text(batching_file.chosen(batching_file.Settings(), every), every)
    message = protos.parse(protos.BATCHING, text)
    assert (
        not message.allowed_batch_sizes
        and message.max_batch_size.value == 32
        and "0 rows cannot end the server" in text
    )


def test_uncovered_sizes_are_refused_or_said():
    found = [covered("models/d/1", (1, 8, 32)), covered("models/e/1", (), known=False, reason="who knows")]
    settings = batching_file.Settings(allowed_batch_sizes=(1, 4), max_batch_size=4)
    with pytest.raises(
        errors.UsageError, match="the engines of models/d/1 do not cover batches of 4; they cover 1, 8, 32"
    ):
        generation._uncovered(settings, found, [], False)
    assert len(generation._uncovered(settings, found, [], True)) == 2
    assert (
        generation._uncovered(
            batching_file.Settings(allowed_batch_sizes=(1, 8), max_batch_size=8), found[:1], [], False
        )
        == []
    )
    # Without allowed sizes every size reaches the engines.
    with pytest.raises(errors.UsageError, match="batches of 2 to 7; they cover"):
        generation._uncovered(batching_file.Settings(max_batch_size=8), found[:1], [], False)


def test_the_versions_that_are_served_count(base, zoo_model):
    give_warmup(base / "1", (16,))
    shutil.copytree(zoo_model("digits_cnn"), base / "2")
    found, missing = generation._covered(
        [model_config.parse(f"one={base}"), model_config.parse(f"two={base}:versions=1,2,3")]
    )
    assert [(one.path, one.sizes and one.sizes[-1]) for one in found] == [
        (str(base / "2"), None),
        (str(base / "1"), 16),
        (str(base / "2"), None),
    ] and missing == []


def test_a_base_path_that_cannot_be_read_is_refused_with_batching_only(tmp_path):
    with pytest.raises(errors.UsageError, match="holds no version of 'd' that can be read here"):
        configure(tmp_path, "d=gs://bucket/d")
    done = generation.configure(
        tmp_path / "config", generation.Options(models=(model_config.parse("d=gs://bucket/d"),))
    )
    assert list(done.files) == [protos.MODELS]


def test_the_files_are_not_replaced_unasked_and_models_have_one_name(tmp_path):
    options = generation.Options(
        models=(model_config.parse("d=/models/d:versions=1,2:stable=1:canary=2"), model_config.parse("e=gs://b/e:all")),
        monitoring=True,
    )
    flags = generation.configure(tmp_path / "config", options).server_flags()
    assert "--allow_version_labels_for_unavailable_models" in flags  # a server that starts reads labels before it loads
    models, _ = written(tmp_path, protos.MODELS)
    assert [one.name for one in models.model_config_list.config] == ["d", "e"]
    assert dict(models.model_config_list.config[0].version_labels) == {"stable": 1, "canary": 2}
    assert models.model_config_list.config[1].model_version_policy.WhichOneof("policy_choice") == "all"
    assert written(tmp_path, protos.MONITORING)[0].prometheus_config.enable
    with pytest.raises(errors.UsageError, match="the file exists"):
        generation.configure(tmp_path / "config", options)
    with pytest.raises(errors.UsageError, match="--model=d=… is given twice"):
        generation.configure(
            tmp_path / "other", generation.Options(models=(model_config.parse("d=/a"), model_config.parse("d=/b")))
        )
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    "sizes, largest, said",
    [
        ((8, 1), None, "do not increase"),
        ((1, 1), None, "do not increase"),
        ((0, 8), None, "do not increase"),
        ((1, 8), 16, "is not the last"),
    ],
)
def test_sizes_that_no_server_takes(sizes, largest, said):
    with pytest.raises(errors.UsageError, match=said):
        batching_file.chosen(batching_file.Settings(allowed_batch_sizes=sizes, max_batch_size=largest), None)


def test_a_largest_size_cuts_what_the_engines_cover():
    Settings = batching_file.Settings
    assert batching_file.chosen(Settings(max_batch_size=8), (1, 8, 32)) == Settings(
        allowed_batch_sizes=(1, 8), max_batch_size=8
    )
    assert batching_file.chosen(Settings(max_batch_size=16), tuple(range(1, 33))) == Settings(max_batch_size=16)
    with pytest.raises(errors.UsageError, match="--max_batch_size=9 is not covered"):
        batching_file.chosen(Settings(max_batch_size=9), (1, 8, 32))


def test_sizes_for_people():
    assert [batching_file.text_of(sizes) for sizes in (None, (), (1,), (1, 2), (1, 2, 3, 8), (1, 8, 9, 10))] == [
        "every size",
        "no size",
        "1",
        "1, 2",
        "1 to 3, 8",
        "1, 8 to 10",
    ]


# --check


GOOD = 'model_config_list {\n  config {\n    name: "d"\n    base_path: "/d"\n    model_platform: "tensorflow"\n  }\n}\n'


@pytest.mark.parametrize(
    "text, line, said",
    [
        (GOOD.replace("name:", "nmae:"), 3, "ModelConfig has no field 'nmae'"),
        (GOOD.replace('"d"', "7"), 3, "Expected string"),
        (GOOD.replace("  }\n}\n", ""), 5, 'Expected "}"'),
        (GOOD.replace('"/d"', '"models/d"'), 4, "the base path 'models/d' is relative"),
        (GOOD.replace('    base_path: "/d"\n', ""), 2, "without a base path"),
        (GOOD.replace('    model_platform: "tensorflow"\n', ""), 2, "has no model_platform"),
        (GOOD.replace('"tensorflow"', '"caffe"'), 5, "the server has no platform 'caffe'"),
        (GOOD + GOOD.replace("model_config_list {", "").replace("}\n}", "}"), 0, ""),
        (
            GOOD.replace(
                "  }\n}",
                '  }\n  config {\n    base_path: "/e"\n    name: "d"\n    model_platform: "tensorflow"\n  }\n}',
            ),
            9,
            "model 'd' is listed twice, first in line 3",
        ),
        (
            GOOD.replace(
                "  }\n}",
                '    model_version_policy { specific { versions: 1 } }\n    version_labels {\n      key: "stable"\n      value: 2 }\n  }\n}',
            ),
            7,
            "the label 'stable' is on version 2, which the version policy does not list",
        ),
        (
            GOOD.replace(
                "  }\n}", "    version_labels { key: 'a' value: 1 }\n    version_labels { key: 'a' value: 2 }\n  }\n}"
            ),
            7,
            "'a' is given twice",
        ),
        (GOOD.replace("  }\n}", "    model_version_policy { specific { } }\n  }\n}"), 6, "lists no version"),
        ("model_config_list { }\n", 1, "no model is listed"),
        ("# a comment\nmax_batch_size: 8\n", 2, "a plain value is given"),
        (
            "max_batch_size { value: 8 }\nallowed_batch_sizes: 1\nallowed_batch_sizes: 4\n",
            3,
            "max_batch_size is 8: the server refuses",
        ),
        ("allowed_batch_sizes: [1,\n 8]\n", 2, "max_batch_size is 1000 (the default)"),
        ("max_batch_size { value: 8 }\nallowed_batch_sizes: [4, 2, 8]\n", 2, "do not increase: 2 behind 4"),
        ("max_batch_size { value: 8 }\nallowed_batch_sizes: [0, 8]\n", 2, "0 is no batch size"),
        ("num_batch_threads { value: 0 }\n", 1, "num_batch_threads is 0"),
        ("max_batch_size { value: 8 }\nmax_execution_batch_size { value: 9 }\n", 2, "larger than max_batch_size"),
        (
            "max_batch_sise { value: 8 }\nbatch_timeout_micros { value: 1 }\n",
            1,
            "BatchingParameters has no field 'max_batch_sise'",
        ),
        ("prometheus_config { enable: yes }\n", 1, 'Expected "true" or "false"'),
        ('prometheus_config {\n  enable: true\n  path: "metrics"\n}\n', 3, "does not start with /"),
        ("something { }\n", 1, "no field says which file this is"),
    ],
)
def test_mistakes_are_named_with_their_line(text, line, said):
    done = config_check.check_text("a file", text)
    found = [(one.line, one.text) for one in done.problems if one.level == "error"]
    if not said:
        assert found  # whatever protobuf says of two lists
        return
    assert not done.passed and any(at == line and said in words for at, words in found), found


@pytest.mark.parametrize(
    "text, kind",
    [
        (GOOD, "models"),
        ("max_batch_size { value: 8 }\n", "batching"),
        ("prometheus_config { enable: true }\n", "monitoring"),
    ],
)
def test_sound_files_have_no_problems(text, kind):
    done = config_check.check_text("a file", text)
    assert done.passed and done.kind == kind and done.problems == ()


def test_what_is_allowed_and_dangerous_is_a_warning():
    done = config_check.check_text("a file", "max_batch_size { value: 8 }\nallowed_batch_sizes: [1, 8]\n")
    assert (
        done.passed
        and [(one.line, one.level) for one in done.problems] == [(2, "warning")]
        and "0 rows" in done.problems[0].text
    )


def test_versions_are_looked_up_where_the_base_path_is_here(tmp_path):
    for version in (1, 2):
        (tmp_path / str(version)).mkdir()
    text = GOOD.replace('"/d"', f'"{tmp_path}"').replace(
        "  }\n}", '    version_labels { key: "stable" value: VERSION }\n  }\n}'
    )
    assert "not among the latest 1" in config_check.check_text("f", text.replace("VERSION", "1")).problems[0].text
    assert config_check.check_text("f", text.replace("VERSION", "2")).passed
    missing = GOOD.replace('"/d"', f'"{tmp_path}"').replace(
        "  }\n}", "    model_version_policy { specific { versions: 3 } }\n  }\n}"
    )
    assert "holds no version 3" in config_check.check_text("f", missing).problems[0].text


def test_the_command_checks_what_it_wrote(tftrt, base, tmp_path):
    give_warmup(base / "1", (16,))
    done = tftrt(
        "configure",
        f"--output={tmp_path}/config",
        f"--model=digits={base}:versions=1:stable=1",
        "--enable_batching",
        f"--mount={base.parent}:/models",
        "--monitoring",
        "--json=-",
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["models"][0]["base_path"] == "/models/digits" and report["batching"]["max_batch_size"] == 16
    assert "--enable_batching" in report["server_flags"] and "1 to 16" in done.stderr
    done = tftrt("configure", "--check_files", *report["files"].values())
    assert done.returncode == 0 and done.stdout.count("nothing wrong") == 3
    broken = tmp_path / "config" / "models.config"
    broken.write_text(broken.read_text().replace("/models/digits", "models/digits"))
    done = tftrt("configure", "--check_files", broken, "--json=-")
    assert done.returncode == 3 and not json.loads(done.stdout)["passed"]
    line = next(number for number, text in enumerate(broken.read_text().splitlines(), 1) if "base_path" in text)
    assert f"models.config:{line}: error: the base path 'models/digits' is relative" in done.stderr


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--model=d=/d"], "--output is missing"),
        (["--output=x"], "--model is missing"),
        (["--output=x", "--model=d=/d", "extra"], "got extra"),
        (["--check_files"], "--check_files names no file"),
        (["--check_files", "/nowhere/models.config"], "no such file"),
        (["--output=x", "--model=d=/d", "--mount=/a"], "is not HERE:THERE"),
        (["--output=x", "--model=d=/d", "--allowed_batch_sizes=1,x"], "are no numbers"),
    ],
)
def test_wrong_usage(tftrt, tmp_path, arguments, said):
    assert_clear(tftrt("configure", *arguments, cwd=tmp_path), 2, said)
    assert list(tmp_path.iterdir()) == []
