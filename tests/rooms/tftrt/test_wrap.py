"""`tftrt wrap`: signatures around a model's own."""

import filecmp
import json

import numpy as np
import pytest
import tensorflow as tf

from tests.command_line import assert_clear
from tests.wrapped import answers, classifier, encoded, noise, served, strings
from tests.zoo import zoo_inputs
from tftrt_tools.models.savedmodel.job import declarations, protos

TORCH = "--image_preset=torch"


def wrap(tftrt, model, output, *flags):
    """Run the command. Returns: what it wrote as JSON, or the finished process of an error."""
    done = tftrt("wrap", model, f"--output={output}", "--json=-", *flags)
    return json.loads(done.stdout) if done.returncode == 0 else done


def normalized(pixels, scale=1 / 255, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)):
    """As --image_preset=torch, in NumPy."""
    return (pixels.astype(np.float32) * np.float32(scale) - np.float32(mean)) / np.float32(std)


def best(scores, count):
    """(scores, classes) of the best ones, the first of equal ones first."""
    order = np.argsort(-scores, axis=-1, kind="stable")[..., :count]
    return np.take_along_axis(scores, order, -1), order


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return classifier(tmp_path_factory.mktemp("wrap") / "model")


def test_bytes_and_files_are_answered_like_floats_that_a_client_has_made(tftrt, model, tmp_path):
    said = wrap(tftrt, model, tmp_path / "wrapped", TORCH)
    assert [one["name"] for one in said["signatures"]] == ["uint8", "encoded"]
    pixels = noise(3, 8, 8, 3)
    wanted = answers(model, "serving_default", image=normalized(pixels))["scores"]
    files = strings(*map(encoded, pixels))
    for ask in (answers, served):
        for name, image in (("uint8", pixels), ("encoded", files)):
            given = ask(tmp_path / "wrapped", name, image=image)
            assert list(given) == ["scores"]
            np.testing.assert_allclose(given["scores"], wanted, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(
            ask(tmp_path / "wrapped", "serving_default", image=normalized(pixels))["scores"], wanted
        )


@pytest.mark.parametrize(
    "flags",
    [
        ("--image_resize=stretch",),
        ("--image_resize=crop", "--image_channels=BGR", "--image_mean=1,2,3"),
        ("--image_resize=pad", TORCH),
    ],
)
def test_the_flags_of_pictures_mean_what_they_mean_to_data(tftrt, model, tmp_path, flags):
    (tmp_path / "photos").mkdir()
    files = [
        encoded(noise(9, 30, 3), "JPEG"),
        encoded(noise(20, 7, 3)),
        encoded(noise(8, 8, 3), "BMP"),
        encoded(noise(5, 40)),
    ]
    for number, file in enumerate(files):
        (tmp_path / f"photos/{number}.{'jpg png bmp png'.split()[number]}").write_bytes(file)
    assert tftrt("data", model, tmp_path / "photos", f"--output={tmp_path / 'rows.npz'}", *flags).returncode == 0
    wrap(tftrt, model, tmp_path / "wrapped", "--forms=encoded", "--names=photos", *flags)
    with np.load(tmp_path / "rows.npz") as rows:
        wanted = answers(model, "serving_default", image=rows["image"])["scores"]
    given = served(tmp_path / "wrapped", "photos", image=strings(*files))["scores"]
    # TensorFlow multiplies by the reciprocal of a constant that is divided by.
    np.testing.assert_allclose(given, wanted, rtol=0, atol=1e-6 if TORCH in flags else 0)


def test_everything_of_the_model_stays(tftrt, zoo_model, tmp_path):
    for name in ("digits_cnn", "tf1_export"):
        before, after = zoo_model(name), tmp_path / name
        wrap(tftrt, before, after, "--image_scale=1/255")
        for path in before.rglob("*"):
            if path.is_file() and path.name != "saved_model.pb":
                assert filecmp.cmp(path, after / path.relative_to(before), shallow=False)
        was, now = (protos.meta_graph(protos.read(path)) for path in (before, after))
        kept = {key: one for key, one in now.signature_def.items() if key in was.signature_def}
        assert kept == dict(was.signature_def) and set(now.signature_def) - set(kept) == {"uint8", "encoded"}
        assert list(now.graph_def.node)[: len(was.graph_def.node)] == list(was.graph_def.node)
        assert declarations.collections(was) == declarations.collections(now)
        inputs = zoo_inputs(name)["serving_default"]
        mine, theirs = (served(path, "serving_default", **inputs) for path in (before, after))
        assert mine.keys() == theirs.keys() and all(np.array_equal(mine[key], theirs[key]) for key in mine)


def test_a_tf1_export_is_wrapped_with_its_variables_and_tables(tftrt, zoo_model, tmp_path):
    wrap(tftrt, zoo_model("tf1_export"), tmp_path / "wrapped", "--image_scale=1/255")
    pixels, colours = noise(4, 16, 16, 3), strings(b"red", b"mauve", b"grey", b"blue")
    wanted = served(zoo_model("tf1_export"), "serving_default", image=pixels * np.float32(1 / 255), colour=colours)
    for name, image in (("uint8", pixels), ("encoded", strings(*map(encoded, pixels)))):
        given = served(tmp_path / "wrapped", name, image=image, colour=colours)
        np.testing.assert_array_equal(given["colour_index"], wanted["colour_index"])
        np.testing.assert_allclose(given["logits"], wanted["logits"], rtol=1e-5, atol=1e-6)


def test_the_best_classes_come_with_scores_and_names(tftrt, model, tmp_path):
    (tmp_path / "names.txt").write_text("".join(f"klasse {number} ä\n" for number in range(10)))
    wrap(tftrt, model, tmp_path / "top", "--top_k=3", f"--classes={tmp_path / 'names.txt'}")
    wrap(tftrt, model, tmp_path / "best", "--argmax", "--forms=uint8")
    pixels = noise(5, 8, 8, 3)
    scores, classes = best(answers(model, "serving_default", image=pixels.astype(np.float32))["scores"], 3)
    for ask in (answers, served):
        given = ask(tmp_path / "top", "uint8", image=pixels)
        assert given.keys() == {"scores", "classes", "labels"} and given["classes"].dtype == np.int32
        np.testing.assert_array_equal(given["classes"], classes)
        np.testing.assert_allclose(given["scores"], scores, rtol=1e-6)
        assert given["labels"][1, 2].decode() == f"klasse {classes[1, 2]} ä"
        np.testing.assert_array_equal(ask(tmp_path / "best", "uint8", image=pixels)["classes"], classes[:, 0])
    assert (tmp_path / "top/assets/names.txt").read_text() == (tmp_path / "names.txt").read_text()


def test_one_broken_picture_fails_its_request_with_its_place(tftrt, model, tmp_path):
    wrap(tftrt, model, tmp_path / "wrapped", "--forms=encoded", "--image_max_pixels=1000")
    good = encoded(noise(8, 8, 3))
    files = [good] * 32
    for broken, reason in (
        (b"", "it is empty"),
        (b"no picture", "it is no JPEG, PNG, GIF or BMP"),
        (good[:60], "it is damaged"),
        (good[:20], "it is damaged"),
        (encoded(noise(40, 30, 3), "JPEG"), "it has more pixels than 1000"),
        (encoded(noise(40, 30, 3)), "it has more pixels"),
        (encoded(noise(40, 30, 3), "GIF"), "it has more pixels"),
        (encoded(noise(40, 30, 3), "BMP"), "it has more pixels"),
        (encoded(noise(8, 8, 3), "WEBP"), "it is no JPEG"),
        (encoded(noise(8, 8, 3), "JPEG")[:300], "it is damaged"),
    ):
        files[17] = broken
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match=f"image: picture 17 of 32 .counted from 0. cannot be decoded: {reason}",
        ):
            served(tmp_path / "wrapped", "encoded", image=strings(*files))
    assert served(tmp_path / "wrapped", "encoded", image=np.empty([0], object))["scores"].shape == (0, 10)


def test_a_broken_row_is_marked_and_the_others_keep_their_answers(tftrt, model, tmp_path):
    wrap(
        tftrt,
        model,
        tmp_path / "wrapped",
        "--forms=encoded",
        "--broken=mark",
        "--top_k=2",
        f"--classes={_names(tmp_path, 10)}",
    )
    pixels = noise(6, 8, 8, 3)
    files = [encoded(one) for one in pixels]
    scores, classes = best(answers(model, "serving_default", image=pixels.astype(np.float32))["scores"], 2)
    for broken in ((), (0,), (2, 5), range(6)):
        given = served(
            tmp_path / "wrapped",
            "encoded",
            image=strings(*(b"" if place in broken else file for place, file in enumerate(files))),
        )
        whole = np.array([place not in broken for place in range(6)])
        np.testing.assert_array_equal(given["broken"], ~whole)
        np.testing.assert_array_equal(given["classes"][whole], classes[whole])
        np.testing.assert_allclose(given["scores"][whole], scores[whole], rtol=1e-6)
        assert np.isnan(given["scores"][~whole]).all() and (given["classes"][~whole] == -1).all()
        assert (given["labels"][~whole] == b"").all() and (given["labels"][whole] != b"").all()


def _names(folder, count):
    (folder / "classes.txt").write_text("".join(f"{number}\n" for number in range(count)))
    return folder / "classes.txt"


def test_pictures_of_unusual_kinds(tftrt, model, tmp_path):
    from PIL import Image

    wrap(tftrt, model, tmp_path / "wrapped", "--forms=encoded")
    plain = noise(16, 16, 3)
    turned = Image.Exif()
    turned[0x0112] = 6
    smooth = np.broadcast_to(np.arange(0, 256, 16, dtype=np.uint8)[:, None, None], (16, 16, 3)).copy()
    animated = [Image.fromarray(noise(16, 16, seed=seed)) for seed in range(3)]

    def file(image, form, **options):
        import io

        stream = io.BytesIO()
        image.save(stream, form, **options)
        return stream.getvalue()

    scores = lambda *files: served(tmp_path / "wrapped", "encoded", image=strings(*files))["scores"]
    # The orientation is not applied.
    np.testing.assert_array_equal(scores(encoded(plain, "JPEG", exif=turned)), scores(encoded(plain, "JPEG")))
    # Of an animation the first picture is taken.
    np.testing.assert_array_equal(
        scores(file(animated[0], "GIF", save_all=True, append_images=animated[1:])), scores(file(animated[0], "GIF"))
    )
    # 16 bits become 8: the upper ones.
    deep = noise(16, 16).astype(np.uint16) * 256 + 77
    np.testing.assert_array_equal(
        scores(file(Image.fromarray(deep), "PNG")), scores(encoded((deep >> 8).astype(np.uint8)))
    )
    # Transparency is left out; CMYK becomes RGB.
    alpha = np.concatenate([plain, noise(16, 16, 1, seed=4)], -1)
    np.testing.assert_array_equal(scores(file(Image.fromarray(alpha), "PNG")), scores(encoded(plain)))
    rgb, cmyk = (
        scores(encoded(smooth, "JPEG", quality=100)),
        scores(file(Image.fromarray(smooth).convert("CMYK"), "JPEG", quality=100)),
    )
    np.testing.assert_allclose(cmyk, rgb, atol=0.02 * np.abs(rgb).max())
    assert np.isfinite(scores(encoded(noise(2, 20000, 3)), encoded(plain))).all()


def test_channels_in_front_grey_pictures_and_uint8_models(tftrt, tmp_path):
    first = classifier(tmp_path / "first", shape=(None, 3, 8, 8))
    wrap(tftrt, first, tmp_path / "first_wrapped", TORCH)
    pixels = noise(2, 8, 8, 3)
    wanted = answers(first, "serving_default", image=normalized(pixels).transpose(0, 3, 1, 2).copy())["scores"]
    for name, image in (("uint8", pixels.transpose(0, 3, 1, 2).copy()), ("encoded", strings(*map(encoded, pixels)))):
        np.testing.assert_allclose(
            served(tmp_path / "first_wrapped", name, image=image)["scores"], wanted, rtol=1e-5, atol=1e-6
        )
    whole = classifier(tmp_path / "whole", dtype=tf.uint8)
    said = wrap(tftrt, whole, tmp_path / "whole_wrapped")
    assert [one["name"] for one in said["signatures"]] == ["encoded"]
    np.testing.assert_array_equal(
        served(tmp_path / "whole_wrapped", "encoded", image=strings(*map(encoded, pixels)))["scores"],
        served(whole, "serving_default", image=pixels)["scores"],
    )
    grey = classifier(tmp_path / "grey", shape=(None, 8, 8, 1))
    wrap(tftrt, grey, tmp_path / "grey_wrapped")
    np.testing.assert_allclose(
        served(tmp_path / "grey_wrapped", "encoded", image=strings(*(encoded(one[..., :1]) for one in pixels)))[
            "scores"
        ],
        served(grey, "serving_default", image=pixels[..., :1].astype(np.float32))["scores"],
        rtol=1e-6,
    )


def test_an_open_size_stays_open(tftrt, tmp_path):
    open_size = classifier(tmp_path / "open", shape=(None, None, None, 3))
    wrap(tftrt, open_size, tmp_path / "wrapped")
    for side in (5, 9):
        pixels = noise(3, side, 2 * side, 3)
        wanted = served(open_size, "serving_default", image=pixels.astype(np.float32))["scores"]
        for name, image in (("uint8", pixels), ("encoded", strings(*map(encoded, pixels)))):
            np.testing.assert_allclose(served(tmp_path / "wrapped", name, image=image)["scores"], wanted, rtol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="picture 1 of 2 .* or of another size than the first"):
        served(tmp_path / "wrapped", "encoded", image=strings(encoded(noise(4, 4, 3)), encoded(noise(4, 5, 3))))


def test_the_added_signature_becomes_the_default(tftrt, model, tmp_path):
    said = wrap(tftrt, model, tmp_path / "wrapped", "--as_default")
    assert said["default_was"] == "native" and [one["name"] for one in said["signatures"]] == ["serving_default"]
    pixels = noise(2, 8, 8, 3)
    for ask in (answers, served):
        np.testing.assert_allclose(
            ask(tmp_path / "wrapped", "serving_default", image=strings(*map(encoded, pixels)))["scores"],
            ask(tmp_path / "wrapped", "native", image=pixels.astype(np.float32))["scores"],
            rtol=1e-6,
        )


def test_it_is_wrapped_again_but_no_added_signature_is(tftrt, model, tmp_path):
    wrap(tftrt, model, tmp_path / "once", "--forms=uint8")
    said = wrap(tftrt, tmp_path / "once", tmp_path / "twice", "--forms=encoded", "--argmax")
    assert [one["name"] for one in said["signatures"]] == ["encoded"]
    pixels = noise(2, 8, 8, 3)
    given = served(tmp_path / "twice", "encoded", image=strings(*map(encoded, pixels)))["classes"]
    np.testing.assert_array_equal(given, served(tmp_path / "twice", "uint8", image=pixels)["scores"].argmax(-1))
    assert_clear(
        tftrt("wrap", tmp_path / "once", f"--output={tmp_path / 'no'}", "--signature_keys=uint8", "--argmax"),
        2,
        "signature 'uint8' is one that `tftrt wrap` has added",
    )


@pytest.mark.parametrize(
    "before, said",
    [
        (lambda x: x * (1 / 127.5) - 1.0, ("times 0.00784314", "minus 1")),
        (
            lambda x: (x / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225],
            ("divided by 255", "minus 0.485,0.456,0.406"),
        ),
        (lambda x: x[..., ::-1] - [103.939, 116.779, 123.68], ("minus 103.939,116.779,123.68",)),
    ],
)
def test_a_model_that_normalizes_is_not_normalized_twice(tftrt, tmp_path, before, said):
    own = classifier(tmp_path / "own", before=before)
    done = tftrt("wrap", own, f"--output={tmp_path / 'wrapped'}")
    assert done.returncode == 0 and "the model normalizes 'image' itself" in done.stdout, done.stderr
    assert all(part in done.stdout for part in said), done.stdout
    pixels = noise(2, 8, 8, 3)
    np.testing.assert_allclose(
        served(tmp_path / "wrapped", "uint8", image=pixels)["scores"],
        served(own, "serving_default", image=pixels.astype(np.float32))["scores"],
        rtol=1e-5,
    )
    refused = tftrt("wrap", own, f"--output={tmp_path / 'no'}", "--image_mean=103.939,116.779,123.68")
    assert_clear(refused, 2, "and --image_mean would do it twice")
    assert not (tmp_path / "no").exists()


def test_a_model_without_normalization_is_told_so(tftrt, model, tmp_path):
    done = tftrt("wrap", model, f"--output={tmp_path / 'wrapped'}")
    assert "pixels go into the model as 0 to 255" in done.stdout


def test_bad_input_is_refused_before_anything_is_written(tftrt, model, zoo_model, tmp_path):
    names, few = _names(tmp_path, 10), tmp_path / "few.txt"
    few.write_text("a\nb\n")
    for flags, says in (
        ((zoo_model("ranker"), "--forms=uint8"), "--forms=uint8 needs an input that takes pictures"),
        ((zoo_model("ranker"), "--image_mean=1"), "--image_mean needs an input that takes pictures"),
        ((zoo_model("ranker"),), "no input of 'serving_default' takes pictures"),
        ((model, "--names=serving_default,x"), "signature 'serving_default' is there already"),
        ((model, "--names=x"), "--names has 1 names for 2 signatures"),
        ((model, "--names=a/b", "--forms=uint8"), "'a/b' is no name of a signature"),
        ((model, "--top_k=11"), "--top_k=11, and output 'scores' has 10 classes"),
        ((model, "--top_k=2", f"--classes={few}"), "has 2 lines, and output 'scores' 10 classes"),
        ((model, f"--classes={names}"), "--classes has no effect without --top_k or --argmax"),
        ((model, "--top_k=2", "--argmax"), "--top_k and --argmax exclude each other"),
        ((model, "--top_k=2", "--scores_output=x"), "--scores_output=x is no output"),
        ((model, "--image_mean=1,2"), "--image_mean has 2 values"),
        (
            (classifier(tmp_path / "grey", shape=(None, 8, 8, 1)), "--image_std=1,2,3"),
            "--image_std has 3 values, and input 'image' 1",
        ),
        ((model, "--image_size=9x9"), "--image_size=9x9 does not fit"),
        ((classifier(tmp_path / "open", shape=(None, None, None, 3)), "--broken=mark"), "--broken=mark needs one size"),
        ((classifier(tmp_path / "bytes", dtype=tf.uint8), "--forms=uint8"), "input 'image' takes uint8 already"),
        ((model, "--forms=jpeg"), "--forms: 'jpeg' is unknown"),
        ((model, "--as_default", "--forms=uint8,encoded"), "--as_default is for one signature"),
        ((model, "--keep_outputs=x"), "--keep_outputs: no output 'x'"),
        ((model, "--signature_keys=x"), "no signature 'x'"),
        ((model, "--picture_input=x"), "--picture_input=x is no input that takes pictures"),
        ((model, "--image_error_limit=3"), "--image_error_limit is about files that a command reads"),
    ):
        done = tftrt("wrap", *flags, f"--output={tmp_path / 'output'}")
        assert_clear(done, 2, says)
        assert not (tmp_path / "output").exists()
    assert_clear(tftrt("wrap", model), 2, "--output is missing")


def test_a_conversion_leaves_decoding_outside_and_takes_the_normalization_in(tftrt, zoo_model, tmp_path):
    said = wrap(
        tftrt,
        zoo_model("mobilenet_v2"),
        tmp_path / "wrapped",
        "--image_scale=1/255",
        "--image_mean=0.485,0.456,0.406",
        "--image_std=0.229,0.224,0.225",
        "--image_channels=BGR",
        "--top_k=5",
        f"--classes={_names(tmp_path, 100)}",
    )
    assert len(said["signatures"]) == 2
    done = tftrt(
        "convert",
        f"--model={tmp_path / 'wrapped'}",
        f"--output={tmp_path / 'converted'}",
        "--precision=FP16",
        "--json=-",
    )
    converted = {one["name"]: one for one in json.loads(done.stdout)["signatures"]}
    for name in ("uint8", "encoded"):
        (engine,) = converted[name]["engines"]
        added = {
            op: count - converted["serving_default"]["engines"][0]["ops"].get(op, 0)
            for op, count in engine["ops"].items()
        }
        # The first multiplies by the scale, the second by the reciprocal of std.
        assert {"Mul": 2, "Sub": 1, "GatherV2": 1, "TopKV2": 1} == {
            op: count for op, count in added.items() if count and op not in ("Const", "Identity")
        }, added
    left = {name: {one["op"] for one in converted[name]["left_out"]} for name in converted}
    assert left["serving_default"] == set() and left["uint8"] == {"Cast", "GatherV2"}, left
    assert {"ParallelMapDatasetV2", "IgnoreErrorsDataset"} <= left["encoded"] and "Mul" not in left["encoded"], left
    pixels = noise(2, 64, 64, 3)
    for name, image in (("uint8", pixels), ("encoded", strings(*map(encoded, pixels)))):
        assert served(tmp_path / "wrapped", name, image=image)["labels"].shape == (2, 5)
    # Both ways to show that it is right: against the wrapped model, and against the one that was wrapped.
    for original in (tmp_path / "wrapped", zoo_model("mobilenet_v2")):
        done = tftrt("verify", original, tmp_path / "converted")
        assert done.returncode == 0 and "encoded/" in done.stdout, done.stdout + done.stderr


def test_without_a_default_the_only_signature_is_wrapped(tftrt, model, tmp_path):
    loaded = tf.saved_model.load(str(model))
    tf.saved_model.save(loaded, str(tmp_path / "named"), signatures={"score": loaded.signatures["serving_default"]})
    wrap(tftrt, tmp_path / "named", tmp_path / "wrapped")
    pixels = noise(2, 8, 8, 3)
    np.testing.assert_array_equal(
        served(tmp_path / "wrapped", "uint8", image=pixels)["scores"],
        served(tmp_path / "wrapped", "score", image=pixels.astype(np.float32))["scores"],
    )
