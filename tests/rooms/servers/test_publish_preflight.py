"""Which server runs which model: images, this machine, engines, INT8 tables, ops; and when evidence holds."""

import pytest

from tests.publish_facts import engine_op, facts
from tftrt_tools.base import errors
from tftrt_tools.base.stack import images, releases
from tftrt_tools.servers.serving.publishing import server_target, target_preflight, verification_check

HERE = server_target.Machine("2.14.1", "8.5.3.1", ("9.0",))
STOCK = "tensorflow/serving:2.14.1-gpu"
WITH_TFTRT = (
    "local",
    "tftrt/serving",
    "tftrt/serving:latest",
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
        ("tensorflow/serving:2.17.1-gpu", "8.6.1"),
        ("local", "8.5.3.1"),
    ],
)
@pytest.mark.parametrize("engine", ["7.2.2.3", "8.4.3.1", "8.5.3.1", "8.6.1.6"])
def test_engines_go_only_to_a_server_of_their_own_tensorrt(target, tensorrt, engine):
    found = obstacles(built((engine, "9.0")), target)
    assert (found == []) == engine.startswith(tensorrt[:5])
    assert all(f"TensorRT {engine}" in text and tensorrt in text for text in found)


def test_the_ways_out_are_strip_and_the_image_that_reads_these_engines():
    (mend,) = [one.mend for one in checked(built(("8.5.3.1", "9.0")), STOCK).obstacles]
    assert "tftrt build MODEL --strip" in mend and "tftrt/serving" in mend
    (mend,) = [one.mend for one in checked(built(("8.6.1.6", "9.0")), STOCK).obstacles]
    assert "tftrt build MODEL --strip" in mend and "tftrt/serving" not in mend


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
    ],
)
def test_images_of_which_nothing_is_known_are_refused(target):
    with pytest.raises(errors.UsageError, match="target"):
        server_target.resolve(target, "", HERE)


def test_the_images_agree_with_the_table_of_releases():
    for minor, release in releases.RELEASES.items():
        if minor >= (2, 11):
            image = images.image(f"{images.STOCK}:{releases.text(minor)}.0-gpu")
            assert image.tftrt and (image.tensorrt is None or int(image.tensorrt.split(".")[0]) == release.tensorrt)
    assert not images.image(f"{images.STOCK}:2.{releases.NEWEST[1] + 1}.0-gpu").tftrt
    assert images.OWN_IMAGE.tensorflow == releases.RECOMMENDED


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
    done = checked(built(("8.5.3.1", "8.6")), "local", here=server_target.Machine("2.14.1", "8.5.3.1", ()))
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
