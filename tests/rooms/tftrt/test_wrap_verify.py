"""`tftrt verify ORIGINAL WRAPPED`: added signatures against the model that they wrap."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tests.command_line import assert_clear
from tests.wrapped import answers, classifier, encoded, noise
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.inputs.sources_job import picture_ops
from tftrt_tools.tftrt.wrapping import client_side
from tftrt_tools.tftrt.wrapping.added import Pictures


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, and pictures of several kinds and sizes."""
    folder = tmp_path_factory.mktemp("verified")
    classifier(folder / "model")
    (folder / "photos").mkdir()
    for number in range(9):
        form = ("PNG", "JPEG", "BMP")[number % 3]
        pixels = noise(12 + number, 20, 3, seed=number).repeat(4, 0).repeat(4, 1)
        (folder / f"photos/{number}.{form.lower()}").write_bytes(encoded(pixels, form))
    return folder


def verified(tftrt, folder, wrapped, *flags):
    """The result of a verification against the model of `folder`."""
    done = tftrt("verify", folder / "model", wrapped, "--json=-", *flags)
    return json.loads(done.stdout), done.returncode


@pytest.mark.parametrize(
    "flags",
    [
        ("--image_preset=torch", "--top_k=3"),
        ("--image_preset=caffe", "--image_resize=crop", "--argmax"),
        ("--image_preset=tf", "--image_resize=pad", "--broken=mark", "--output_types=float16"),
        ("--as_default", "--forms=encoded", "--image_scale=1/255"),
    ],
)
def test_files_and_pixels_are_answered_like_a_clients_floats(tftrt, folder, tmp_path, flags):
    assert tftrt("wrap", folder / "model", f"--output={tmp_path / 'wrapped'}", *flags).returncode == 0
    said, code = verified(tftrt, folder, tmp_path / "wrapped", f"--data={folder / 'photos'}")
    assert (code, said["passed"], said["problems"]) == (0, True, [])
    names = {name.partition("/")[0] for name in said["bounds"]}
    if "--as_default" in flags:
        assert names == {"serving_default", "serving_default (files)", "native"}
    else:
        assert names == {"uint8", "encoded", "encoded (files)", "serving_default"}
    for name, bounds in said["bounds"].items():
        # Another decoder of JPEG gives other pixels: only there the bounds are wide.
        assert bounds.get("snr_db", 80) == (
            15 if "(files)" in name else 60 if "float16" in str(flags) and "default" not in name else 80
        )
    # The record is what publish reads.
    assert (
        tftrt("publish", tmp_path / "wrapped", "--model_name=m", f"--base_path={tmp_path / 'models'}").returncode == 0
    )


def test_without_data_pictures_are_drawn(tftrt, folder, tmp_path):
    tftrt("wrap", folder / "model", f"--output={tmp_path / 'wrapped'}")
    said, code = verified(tftrt, folder, tmp_path / "wrapped")
    assert code == 0 and set(said["sources"].values()) == {"random"} and said["samples"]["encoded"] == 4


def test_what_was_drawn_is_not_called_data_and_the_evidence_is_that_of_the_file(tftrt, folder, tmp_path):
    """A picture, and ids beside it that the data does not have; and a signature of no picture."""
    module = tf.Module()
    module.words = tf.Variable(tf.random.stateless_normal((30, 10), (1, 2)))
    both = [tf.TensorSpec((None, 8, 8, 3), tf.float32, "image"), tf.TensorSpec((None,), tf.float32, "ids")]
    module.f = tf.function(
        lambda image, ids: {
            "scores": tf.reduce_mean(image, (1, 2)) @ tf.ones((3, 10)) + tf.gather(module.words, tf.cast(ids, tf.int32))
        },
        input_signature=both,
    )
    module.g = tf.function(lambda ids: {"y": tf.gather(module.words, tf.cast(ids, tf.int32))}, input_signature=both[1:])
    tf.saved_model.save(module, str(tmp_path / "m"), signatures={"serving_default": module.f, "words": module.g})
    wrapped = tmp_path / "wrapped"
    assert tftrt("wrap", tmp_path / "m", f"--output={wrapped}").returncode == 0
    done = tftrt("verify", tmp_path / "m", wrapped, f"--data={folder / 'photos'}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ids of encoded was filled with random values: the data is pictures alone" in done.stdout
    assert "random: ids: whole numbers from 0 to 29, which Variable takes" in done.stdout
    said = json.loads((wrapped / "assets.extra/tftrt/verify.json").read_text())
    assert said["sources"]["encoded"] == "data" and said["sources"]["words"] == "random"
    published = tftrt("publish", wrapped, "--model_name=m", f"--base_path={tmp_path / 'models'}", "--json=-")
    document = json.loads(published.stdout)
    assert document["verified"] is True and not any("without evidence" in one for one in document["notes"])
    assert any("random for words: ids: whole numbers from 0 to 29" in one for one in document["notes"])
    (wrapped / "assets/mine.txt").parent.mkdir(exist_ok=True)
    (wrapped / "assets/mine.txt").write_text("x")
    stale = tftrt("publish", wrapped, "--model_name=m", f"--base_path={tmp_path / 'models'}")
    assert (
        stale.returncode == 0
        and "NOT VERIFIED: its files have changed" in stale.stdout
        and "verified    NO" in stale.stdout
    )


def test_a_wrong_normalization_fails(tftrt, folder, tmp_path):
    tftrt("wrap", folder / "model", f"--output={tmp_path / 'wrapped'}", "--image_preset=torch")
    record = tmp_path / "wrapped/assets.extra/tftrt_wrapped.json"
    text = record.read_text()
    record.write_text(text.replace("0.485", "0.45"))
    said, code = verified(tftrt, folder, tmp_path / "wrapped")
    assert code == 3 and any("encoded/scores: snr_db" in problem for problem in said["problems"]), said["problems"]
    record.write_text(text[:100])
    assert_clear(tftrt("verify", folder / "model", tmp_path / "wrapped"), 1, "tftrt_wrapped.json is damaged")


def test_what_cannot_be_compared_is_refused(tftrt, folder, tmp_path):
    tftrt("wrap", folder / "model", f"--output={tmp_path / 'wrapped'}")
    np.savez(tmp_path / "rows.npz", image=noise(2, 8, 8, 3))
    for flags, says in (
        (f"--data={tmp_path / 'rows.npz'}", "is arrays, and signatures of pictures were added"),
        ("--shapes=image:1x9x9x3", "--shapes has no effect here: the calls are pictures"),
        ("--rename=image=x", "--rename has no effect on signatures that `tftrt wrap` has added"),
        ("--signature_keys=x", "no signature 'x'"),
    ):
        assert_clear(tftrt("verify", folder / "model", tmp_path / "wrapped", flags), 2, says)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/a.png").write_bytes(b"\x89PNG nothing")
    (tmp_path / "broken/b.png").write_bytes(encoded(noise(8, 8, 3)))
    assert_clear(
        tftrt("verify", folder / "model", tmp_path / "wrapped", f"--data={tmp_path / 'broken'}"),
        2,
        "a.png cannot be decoded",
    )
    said, code = verified(
        tftrt,
        folder,
        tmp_path / "wrapped",
        f"--data={tmp_path / 'broken'}",
        "--image_error_limit=1",
        "--allow_constant_outputs",
    )
    assert code == 0 and any("1 pictures could not be decoded: a.png" in one for one in said["warnings"])


@pytest.mark.parametrize("how", ["stretch", "crop", "pad"])
@pytest.mark.parametrize("size", [(8, 8), (224, 224), (30, 7)])
def test_numpy_resizes_as_tensorflow_does_to_the_bit(how, size):
    for seed, shape in enumerate(((8, 8, 3), (97, 31, 3), (5, 200, 1), (1, 1000, 1))):
        pixels = noise(*shape, seed=seed)
        np.testing.assert_array_equal(
            client_side.resized(pixels, size, how), picture_ops.resized(tf.constant(pixels), size, how).numpy()
        )


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
def test_numpy_normalizes_as_tensorflow_does(dtype, first):
    options = DataOptions(
        image_scale=1 if dtype == "uint8" else 1 / 255,
        image_channels="BGR",
        **({} if dtype == "uint8" else dict(image_mean=(0.485, 0.456, 0.406), image_std=(0.229, 0.224, 0.225))),
    )
    pictures = Pictures(
        input="x",
        dtype=dtype,
        shape=None,
        size=(4, 5),
        channels=3,
        first=first,
        options=options,
        max_pixels=10,
        broken="fail",
    )
    images = np.random.default_rng(0).uniform(0, 255, (2, 4, 5, 3)).astype(np.float32)
    mine = client_side.normalized(images, pictures)
    theirs = picture_ops.normalized(tf.constant(client_side.laid_out(images, pictures)), options, dtype, first).numpy()
    assert mine.dtype == theirs.dtype
    np.testing.assert_array_equal(mine, theirs)


# Against labels.


@pytest.fixture(scope="module")
def labelled(folder):
    """Names of classes, {file: scores that the model gives its picture, as a client normalizes it}, and labels of which two are wrong."""
    (folder / "names.txt").write_text("".join(f"class {number}\n" for number in range(10)))
    scores = {}
    for path in sorted((folder / "photos").iterdir()):
        image = client_side.resized(client_side.decoded(path.read_bytes(), 3).pixels, (8, 8), "stretch") / np.float32(
            255
        )
        scores[path.name] = answers(folder / "model", "serving_default", image=image[None])["scores"][0]
    best = np.array([one.argmax() for one in scores.values()])
    second = np.array([one.argsort()[-2] for one in scores.values()])
    truth = np.where(np.arange(len(best)) < 2, second, best)
    np.save(folder / "labels.npy", truth)
    (folder / "labels.csv").write_text(
        "file,label\n" + "".join(f"{name},class {one}\n" for name, one in zip(scores, truth, strict=True))
    )
    return truth


@pytest.mark.parametrize(
    ("flags", "labels", "top5"),
    [
        (("--top_k=3", "--classes={folder}/names.txt"), "labels.csv", None),
        (("--argmax",), "labels.npy", None),
        (("--top_k=5",), "labels.npy", 1.0),
        ((), "labels.npy", 1.0),
        (("--output_types=float16",), "labels.npy", 1.0),
    ],
)
def test_accuracy_against_labels_is_told_of_both_sides(tftrt, folder, labelled, tmp_path, flags, labels, top5):
    flags = [one.format(folder=folder) for one in flags]
    done = tftrt("wrap", folder / "model", f"--output={tmp_path / 'wrapped'}", "--image_scale=1/255", *flags)
    assert done.returncode == 0, done.stderr
    said, code = verified(
        tftrt,
        folder,
        tmp_path / "wrapped",
        f"--data={folder / 'photos'}",
        f"--labels={folder / labels}",
        f"--html={tmp_path / 'report.html'}",
    )
    assert code == 0 and said["accuracy"] == said["accuracies"][0], said
    output = "classes" if "--argmax" in flags or any("top_k" in one for one in flags) else "scores"
    assert {one["output"] for one in said["accuracies"]} == {f"uint8/{output}", f"encoded/{output}"}
    for one in said["accuracies"]:
        assert (
            one["labels"] == 9
            and one["metric"] == "top1"
            and one["original"] == pytest.approx(7 / 9) == one["converted"]
        ), one
        assert one["metrics"].get("top5", {}).get("converted") == top5 and ("auc" in one["metrics"]) == (
            output == "scores"
        ), one["metrics"]
    assert (tmp_path / "report.html").read_text().count("against labels") == 2


def test_a_wrapped_model_that_is_less_accurate_than_asked_fails(tftrt, folder, labelled, tmp_path):
    tftrt("wrap", folder / "model", f"--output={tmp_path / 'wrapped'}", "--image_scale=1/255", "--argmax")
    flags = (f"--data={folder / 'photos'}", f"--labels={folder / 'labels.npy'}")
    said, code = verified(
        tftrt, folder, tmp_path / "wrapped", *flags, "--thresholds=labels:top1>=0.9", "--signature_keys=encoded"
    )
    assert code == 3 and said["problems"] == ["labels: top1 is 0.777778, wanted >= 0.9"]
    done = tftrt("verify", folder / "model", tmp_path / "wrapped", *flags, "--thresholds=labels:top1>=0.7")
    assert (
        done.returncode == 0
        and "accuracy on 9 labels (encoded/classes): original 77.78%, converted 77.78%" in done.stdout
    )
    # Another normalization: the wrapped model answers otherwise, and the labels say so.
    record = tmp_path / "wrapped/assets.extra/tftrt_wrapped.json"
    text = json.loads(record.read_text())
    for one in text["signatures"]:
        one["pictures"]["options"]["image_channels"] = "BGR"
    record.write_text(json.dumps(text))
    said, code = verified(tftrt, folder, tmp_path / "wrapped", *flags)
    assert code == 3 and said["accuracy"]["original"] != said["accuracy"]["converted"]


def test_labels_of_pictures_that_do_not_decode_are_left_out(tftrt, folder, labelled, tmp_path):
    shutil.copytree(folder / "photos", tmp_path / "photos")
    (tmp_path / "photos/0.png").write_bytes(b"no picture")
    tftrt("wrap", folder / "model", f"--output={tmp_path / 'wrapped'}", "--image_scale=1/255", "--top_k=2")
    said, code = verified(
        tftrt,
        folder,
        tmp_path / "wrapped",
        f"--data={tmp_path / 'photos'}",
        f"--labels={folder / 'labels.npy'}",
        "--image_error_limit=1",
        "--batch_size=3",
    )
    # Of 0.png to 8.bmp the first is gone, and of the other eight the second of the two wrong ones stays.
    assert (
        code == 0
        and [(one["labels"], one["original"]) for one in said["accuracies"]] == [(8, pytest.approx(7 / 8))] * 2
    )


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--labels={folder}/short.npy",), "--labels holds 3 int64 values for 9 rows"),
        (
            ("--labels={folder}/labels.npy", "--label_output=other/scores"),
            "--label_output=other/scores is of no signature that was added",
        ),
        (("--labels={folder}/labels.npy", "--label_output=encoded/nothing"), "fits no output"),
        (("--labels={folder}/floats.npy",), "--labels are values, and "),
        (("--labels={folder}/nowhere.npy",), "no such file"),
    ],
)
def test_labels_that_do_not_go_with_a_wrapped_model(tftrt, folder, labelled, tmp_path, flags, says):
    np.save(folder / "short.npy", labelled[:3])
    np.save(folder / "floats.npy", np.random.default_rng(0).random((9, 10)))
    tftrt("wrap", folder / "model", f"--output={tmp_path / 'wrapped'}", "--image_scale=1/255", "--top_k=2")
    done = tftrt(
        "verify",
        folder / "model",
        tmp_path / "wrapped",
        f"--data={folder / 'photos'}",
        *(one.format(folder=folder) for one in flags),
    )
    assert_clear(done, 2, says)


def test_labels_of_arrays_that_a_signature_takes_in_another_type(tftrt, folder, tmp_path):
    rows = np.random.default_rng(3).random((24, 8, 8, 3)).astype(np.float16).astype(np.float32)
    truth = answers(folder / "model", "serving_default", image=rows)["scores"].argmax(-1)
    np.savez(tmp_path / "rows.npz", image=rows)
    np.save(tmp_path / "labels.npy", truth)
    done = tftrt(
        "wrap",
        folder / "model",
        f"--output={tmp_path / 'wrapped'}",
        "--forms=same",
        "--input_types=float16",
        "--argmax",
    )
    assert done.returncode == 0, done.stderr
    said, code = verified(
        tftrt, folder, tmp_path / "wrapped", f"--data={tmp_path / 'rows.npz'}", f"--labels={tmp_path / 'labels.npy'}"
    )
    assert (
        code == 0
        and said["accuracy"]["labels"] == 24
        and said["accuracy"]["original"] == 1 == said["accuracy"]["converted"]
    )
    assert_clear(
        tftrt(
            "verify",
            folder / "model",
            tmp_path / "wrapped",
            f"--data={folder / 'photos'}",
            f"--labels={tmp_path / 'labels.npy'}",
        ),
        2,
        "no added signature takes the rows of --data",
    )
