"""Which server runs which model: images, this machine, engines, INT8 tables, ops; and when evidence holds."""

import pytest

from tests.publish_facts import engine_op, facts
from tftrt_tools.base import errors, tensorrt_rule
from tftrt_tools.base.stack import images, installed, libraries, releases
from tftrt_tools.servers.serving.publishing import server_target, target_preflight, verification_check

HERE = server_target.Machine(tensorflow="2.14.1", tensorrt="8.5.3.1", compute_capabilities=("9.0",))
# This machine with the other stack: the TensorRT that TensorFlow asks for, the one that stands in for it, and none that it takes.
HERE_861, HERE_860, HERE_NONE = (
    server_target.Machine(tensorflow="2.17.1", tensorrt=tensorrt, compute_capabilities=("9.0",))
    for tensorrt in ("8.6.1", "8.6.0", None)
)
STOCK = "tensorflow/serving:2.14.1-gpu"
WITH_TFTRT = (
    "local",
    "tftrt/serving",
    "tftrt/serving:2.14.1",
    "tftrt/serving:2.17.1",
    "docker.io/tftrt/serving:2.17.1@sha256:0",
    "tensorflow/serving:2.11.0-gpu",
    "tensorflow/serving:2.12.2-gpu",
    "tensorflow/serving:2.13.1-gpu",
    STOCK,
    "docker.io/" + STOCK,
    STOCK + "@sha256:0",
    "tensorflow/serving:2.15.1-gpu",
    "tensorflow/serving:2.16.1-gpu",
    "tensorflow/serving:2.17.1-gpu",
)
WITHOUT = (
    "tensorflow/serving:2.18.0-gpu",
    "tensorflow/serving:2.19.1-gpu",
    "tensorflow/serving:2.11.0",
    "tensorflow/serving:2.14.1",
    "tensorflow/serving:2.17.1",
    "tensorflow/serving:2.19.1",
)


def checked(given, target, capability="", here=HERE, **options):
    return target_preflight.check(
        given, server_target.resolve(target, capability, here), "MODEL", target_preflight.Options(**options)
    )


def obstacles(*arguments, **options):
    return [one.text for one in checked(*arguments, **options).obstacles]


def built(*origins, **more):
    return facts(engines=[engine_op()], assets=origins, **more)


# Images


@pytest.mark.parametrize("target", WITH_TFTRT)
def test_a_converted_model_without_engines_goes_wherever_tftrt_is(target):
    assert obstacles(facts(engines=[engine_op()]), target) == []


@pytest.mark.parametrize("target", WITHOUT)
def test_where_tftrt_is_not_a_converted_model_is_refused_and_a_native_one_is_not(target):
    found = checked(facts(engines=[engine_op()]), target).obstacles
    assert (
        len(found) == 1
        and ("no TF-TRT" in found[0].text) == target.endswith("-gpu")
        and "original model" in found[0].mend
    )
    assert obstacles(facts(converted=False), target) == []


@pytest.mark.parametrize(
    ("target", "tensorrt"),
    [
        ("tensorflow/serving:2.11.0-gpu", "7.2.2"),
        ("tensorflow/serving:2.13.1-gpu", "8.4.3"),
        (STOCK, "8.4.3"),
        ("tftrt/serving", "8.5.3"),
        ("tensorflow/serving:2.15.1-gpu", "8.6.1"),
        ("tensorflow/serving:2.16.1-gpu", "8.6.1"),
        ("tensorflow/serving:2.17.1-gpu", "8.6.1"),
        ("tftrt/serving:2.14.1", "8.5.3"),
        ("tftrt/serving:2.17.1", "8.6.1"),
        ("local", "8.5.3.1"),
    ],
)
@pytest.mark.parametrize("engine", ["7.2.2.3", "8.4.3.1", "8.5.3.1", "8.6.0.12", "8.6.1.6", "8.6.2.3", "10.8.0.43"])
def test_engines_go_only_to_a_server_of_their_own_tensorrt(target, tensorrt, engine):
    by_manifest = {"gpu": {"compute_capability": "9.0"}, "versions": {"tensorrt": engine[: engine.rindex(".")]}}
    for given in (built((engine, "9.0")), built((None, None), manifest=by_manifest)):
        found = checked(given, target).obstacles
        assert (found == ()) == engine.startswith(tensorrt[:5])
        assert len(found) <= 1 and all("\n" not in one.text + one.mend for one in found)
        assert all(f"TensorRT {engine[:5]}" in one.text and tensorrt in one.text for one in found)


@pytest.mark.parametrize("engine", ["8.4.3.1", "8.5.3.1", "8.6.0.12", "8.6.1.6"])
@pytest.mark.parametrize("target", WITHOUT)
def test_engines_go_to_no_server_without_tftrt_whatever_tensorrt_lies_in_its_image(target, engine):
    (found,) = checked(built((engine, "9.0")), target).obstacles
    assert "do not load there" in found.text or "does not load there" in found.text
    assert ("is used by nothing" in found.text) == target.endswith("-gpu")


@pytest.mark.parametrize(
    ("here", "engine", "words"),
    [
        (HERE_861, "8.6.1.6", ""),
        (HERE_861, "8.6.0.12", "local has 8.6.1"),
        (HERE_861, "8.5.3.1", "local has 8.6.1"),
        (HERE_860, "8.6.0.12", ""),
        (HERE_860, "8.6.1.6", "local has 8.6.0"),
        (HERE_NONE, "8.6.1.6", "finds no TensorRT that it takes"),
        (HERE_NONE, "8.6.0.12", "finds no TensorRT that it takes"),
    ],
)
def test_this_machine_takes_the_engines_of_the_tensorrt_that_its_tensorflow_loads(here, engine, words):
    found = obstacles(built((engine, "9.0")), "local", here=here)
    assert len(found) == bool(words) and all(words in text for text in found)


@pytest.mark.parametrize(
    ("engine", "target", "mend"),
    [
        ("8.5.3.1", STOCK, "; or serve them with --server_image=tftrt/serving:2.14.1"),
        ("8.5.3.1", "tensorflow/serving:2.17.1-gpu", "; or serve them with --server_image=tftrt/serving:2.14.1"),
        ("8.6.1.6", STOCK, "; or serve them with --server_image=tftrt/serving:2.17.1"),
        ("8.6.1.6", "tftrt/serving", "; or serve them with --server_image=tftrt/serving:2.17.1"),
        ("8.6.0.12", "tensorflow/serving:2.17.1-gpu", "; or build them with TensorRT 8.6.1"),
        ("8.6.0.12", "tensorflow/serving:2.12.2-gpu", "`tftrt build MODEL --strip`"),
    ],
)
def test_the_ways_out_are_strip_and_the_image_that_reads_these_engines(engine, target, mend):
    (found,) = checked(built((engine, "9.0")), target).obstacles
    assert "`tftrt build MODEL --strip`" in found.mend and found.mend.endswith(mend)
    if "--server_image=" in mend:
        assert obstacles(built((engine, "9.0")), mend.rpartition("=")[2]) == []


@pytest.mark.parametrize(("tftrt", "gpu"), [(False, True), (False, False)])
def test_a_tensorflow_here_without_tftrt_is_no_target_of_a_converted_model(tftrt, gpu):
    here = server_target.Machine(tensorflow="2.18.0", tensorrt=None, compute_capabilities=(), tftrt=tftrt, gpu=gpu)
    (found,) = checked(facts(engines=[engine_op()], unknown_ops=("TRTEngineOp",)), "local", here=here).obstacles
    assert "TensorFlow 2.18.0 here has no TF-TRT" in found.text and "--server_image" in found.mend
    assert obstacles(facts(converted=False), "local", here=here) == []
    # It knows TF-TRT's op no more, and the server that is named does.
    given = facts(engines=[engine_op()], unknown_ops=("TRTEngineOp",))
    assert obstacles(given, "tensorflow/serving:2.17.1-gpu", here=here) == []


@pytest.mark.parametrize(
    ("tensorflow", "tensorrt", "allowed", "taken"),
    [
        ("2.14.1", "8.4.3", "", True),
        ("2.17.1", "8.6.1", "", True),
        ("2.17.1", "8.6.0", "", False),
        ("2.17.1", "8.6.0", "8.6.0", True),
        ("2.17.1", "10.8.0", "", False),
        ("2.17.0+nv25.2", "10.8.0", "", True),
        (None, "8.6.1", "", True),
    ],
)
def test_a_tensorrt_that_tensorflow_does_not_take_is_none(tensorflow, tensorrt, allowed, taken, monkeypatch):
    monkeypatch.setenv(tensorrt_rule.ALLOW, allowed)
    # What NVIDIA's container brings lies in the system's folders.
    monkeypatch.setattr(libraries, "find", lambda name, folders: f"/lib/{name}" if name.endswith(".so.10") else None)
    here = installed.TensorFlow(
        distribution="tensorflow" if tensorflow else None, version=tensorflow, folder=None, build={}, cuda={}, pins={}
    )
    assert server_target._taken(here, tensorrt) == taken


def test_an_implicit_batch_goes_to_no_tensorrt_without_it():
    here = server_target.Machine(tensorflow="2.17.0+nv25.2", tensorrt="10.8.0", compute_capabilities=("9.0",))
    (found,) = checked(facts(engines=[engine_op()]), "local", here=here).obstacles
    assert "an implicit batch, which TensorRT 10.8.0 of local does not have" in found.text
    assert "--use_dynamic_shape" in found.mend
    assert obstacles(facts(engines=[engine_op(implicit=False)]), "local", here=here) == []


def test_an_image_whose_tensorrt_is_not_known_gets_no_engines():
    assert "is not known" in obstacles(built(("8.4.3.1", "9.0")), "tensorflow/serving:2.12.2-gpu")[0]


@pytest.mark.parametrize(
    "target",
    [
        "tensorflow/serving",
        "tensorflow/serving:latest-gpu",
        "tensorflow/serving:nightly-gpu",
        "nvcr.io/x:1",
        "",
        "tensorflow/serving:2.10.1-gpu",
        "tensorflow/serving:2.20.0-gpu",
        "Local",
        "tensorflow/serving:2.14.1-devel-gpu",
        "tftrt/serving:latest",
        "tftrt/serving:1",
        "tftrt/serving:2.16.2",
        "tftrt/serving:2.17.1-gpu",
        "tftrt/serving:",
    ],
)
def test_images_of_which_nothing_is_known_are_refused(target):
    with pytest.raises(errors.UsageError, match="--server_image="):
        server_target.resolve(target, "", HERE)


def test_the_images_agree_with_the_table_of_releases():
    for minor, release in releases.RELEASES.items():
        if minor >= (2, 11):
            image = images.image(f"{images.STOCK}:{releases.text(minor)}.0-gpu")
            assert image.tftrt and (image.tensorrt is None or int(image.tensorrt.split(".")[0]) == release.tensorrt)
    assert not images.image(f"{images.STOCK}:2.{releases.NEWEST[1] + 1}.0-gpu").tftrt
    assert [one.tensorflow for one in images.OWN_IMAGES] == [releases.RECOMMENDED, releases.LAST]
    for own in images.OWN_IMAGES:
        stock = images.image(images.of(own.tensorflow)[1])
        assert images.of(own.tensorflow)[0] == own.name and stock.tensorflow == own.tensorflow
        assert (stock.tensorrt == own.tensorrt) == (own.tensorflow == releases.LAST), (
            "the library is swapped in one of them"
        )


@pytest.mark.parametrize(
    ("tensorflow", "version"),
    [(None, "2.14.1"), ("2.13.1", "2.14.1"), ("2.14.1", "2.14.1"), ("2.15.1", "2.17.1"), ("2.21.0", "2.17.1")],
)
def test_a_model_is_served_by_the_image_that_is_not_older(tensorflow, version):
    assert images.of(tensorflow) == (f"tftrt/serving:{version}", f"tensorflow/serving:{version}-gpu")


# Compute capability


@pytest.mark.parametrize(
    ("target", "given", "engine", "refused"),
    [
        ("local", "", "9.0", False),
        ("local", "", "8.6", True),
        ("local", "8.6", "8.6", False),
        ("local", "8.6", "9.0", True),
        ("tftrt/serving", "", "8.6", False),
        ("tftrt/serving", "8.6", "8.6", False),
        ("tftrt/serving", "8.6", "9.0", True),
    ],
)
def test_engines_go_only_to_a_gpu_of_their_own_compute_capability(target, given, engine, refused):
    found = obstacles(built(("8.5.3.1", engine)), target, given)
    assert bool(found) == refused and all(f"compute capability {engine}" in text for text in found)


def test_without_a_gpu_here_nothing_is_compared_and_a_note_says_so():
    done = checked(
        built(("8.5.3.1", "8.6")),
        "local",
        here=server_target.Machine(tensorflow="2.14.1", tensorrt="8.5.3.1", compute_capabilities=()),
    )
    assert done.obstacles == () and any("no GPU here" in note for note in done.notes)
    done = checked(built(("8.5.3.1", "8.6")), "tftrt/serving")
    assert done.obstacles == () and any("compute capability 8.6" in note for note in done.notes)


@pytest.mark.parametrize("text", ["9", "86", "sm_86", "8.x", "."])
def test_what_is_no_compute_capability_is_refused(text):
    with pytest.raises(errors.UsageError, match="compute_capability"):
        server_target.resolve("local", text, HERE)


# Engines of unknown origin


def test_the_manifest_speaks_for_an_engine_whose_head_says_nothing():
    manifest = {"gpu": {"compute_capability": "9.0"}, "versions": {"tensorrt": "8.5.3"}}
    assert obstacles(built((None, None), manifest=manifest), "local") == []
    assert "TensorRT 8.5.3" in obstacles(built((None, None), manifest=manifest), STOCK)[0]


@pytest.mark.parametrize("manifest", [None, {"gpu": None, "versions": {"tensorrt": "8.5.3"}}])
def test_engines_of_which_nothing_is_known_need_a_word_of_the_user(manifest):
    assert "nothing says which TensorRT" in obstacles(built((None, None), manifest=manifest), "local")[0]
    assert obstacles(built((None, None), manifest=manifest), "local", allow_unknown_engines=True) == []


def test_a_damaged_engine_file_is_never_published():
    given = facts(engines=[engine_op()], problem="truncated")
    assert "truncated" in obstacles(given, "local", allow_unknown_engines=True)[0]


# INT8 tables, ops, tags, versions


@pytest.mark.parametrize(
    ("target", "refused", "noted"),
    [("local", False, False), (STOCK, False, True), ("tensorflow/serving:2.11.0-gpu", True, False)],
)
def test_an_int8_table_goes_to_a_tensorrt_of_its_major_version(target, refused, noted):
    given = facts(engines=[engine_op(precision="INT8")], tables={"E": "8.5.3"})
    done = checked(given, target)
    assert bool(done.obstacles) == refused and any("INT8 table" in note for note in done.notes) == noted


def test_the_table_of_an_engine_that_is_built_already_is_not_read_again():
    given = facts(engines=[engine_op(precision="INT8")], tables={"E": "7.2.2"}, assets=[("8.5.3.1", "9.0")])
    assert obstacles(given, "local") == []


def test_ops_that_are_not_tensorflows_must_be_named():
    given = facts(converted=False, unknown_ops=("FastWordpieceTokenizeWithOffsets", "MyOp"))
    (mend,) = [one.mend for one in checked(given, "tensorflow/serving:2.14.1").obstacles]
    assert "--custom_ops=FastWordpieceTokenizeWithOffsets,MyOp" in mend
    assert "MyOp" in obstacles(given, "local", custom_ops=("FastWordpieceTokenizeWithOffsets",))[0]
    assert obstacles(given, "local", custom_ops=given.unknown_ops) == []


@pytest.mark.parametrize(
    ("given", "target", "words"),
    [
        (facts(tags=("serve", "gpu")), "local", "--saved_model_tags=serve,gpu"),
        (facts(tensorflow="2.14.1"), "tensorflow/serving:2.13.1-gpu", "written by TensorFlow 2.14.1"),
        (facts(engines=[engine_op(implicit=False)]), "local", "one profile from its first request"),
        (built(("8.5.3.1", "9.0")), "local", "compared with this machine only"),
    ],
)
def test_what_stops_nothing_is_a_note(given, target, words):
    done = checked(given, target)
    assert done.obstacles == () and any(words in note for note in done.notes)


def test_a_plain_case_has_no_notes():
    assert checked(facts(engines=[engine_op()]), STOCK).notes == ()


# Evidence

PASSED = {"passed": True, "converted_digest": "sha256:1", "sources": {"serving_default": "data"}, "mode": "gpu"}


def judged(verification, converted=True, signatures=("serving_default",)):
    return verification_check.judge("MODEL", converted, verification, "sha256:1", signatures)


def test_a_verification_that_passed_and_speaks_of_these_files_is_valid():
    assert judged(PASSED).valid and judged(PASSED).said["mode"] == "gpu"


@pytest.mark.parametrize(
    ("verification", "words"),
    [
        (None, "never verified"),
        (PASSED | {"converted_digest": "sha256:2"}, "changed since"),
        (PASSED | {"passed": False, "problems": ["x: snr_db"]}, "snr_db"),
        ({"converted_digest": "sha256:1"}, "failed"),
        ({}, "changed since"),
        (PASSED | {"sources": {}}, "'serving_default' was not verified"),
        (PASSED | {"passed": "yes"}, "failed"),
    ],
)
def test_any_other_is_not(verification, words):
    found = judged(verification)
    assert not found.valid and found.needed and words in found.problem and found.mend


def test_what_holds_for_a_signature_holds_for_its_twins():
    both = ("serve", "serving_default")
    assert judged(PASSED | {"twins": {"serving_default": ["serve"]}}, signatures=both).valid
    assert "'serve' was not verified" in judged(PASSED, signatures=both).problem


def test_a_model_without_tftrt_needs_none():
    assert not judged(None, converted=False).needed
