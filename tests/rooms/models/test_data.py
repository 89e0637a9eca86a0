"""`tftrt data`: rows in files that the other commands read, from every kind of source."""

import json

import numpy as np
import pytest

from tests.command_here import run_tftrt
from tests.command_line import assert_clear
from tests.picture_files import FOLDERS, pictures
from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import _flags
from tftrt_tools.command_line.commands import data as command
from tftrt_tools.models.inputs import export, export_job, find, labels, options
from tftrt_tools.models.inputs.rows import row_hashes
from tftrt_tools.models.savedmodel.shapes import InputSpec


def data(folder, *arguments):
    """Run the command in `folder`; on success its result as a dict."""
    done = run_tftrt("data", *arguments, "--json=result.json", cwd=folder)
    if done.returncode == 0:
        return json.loads((folder / "result.json").read_text())
    return done


@pytest.fixture
def folder(tmp_path):
    pictures(tmp_path / "pictures")
    return tmp_path


def loaded(path):
    with np.load(path) as arrays:
        return {name: arrays[name] for name in arrays.files}


def test_pictures_come_with_their_labels_and_share_no_row_with_the_calibration(tftrt, zoo_model, tmp_path):
    pixels = pictures(tmp_path / "pictures", each=10)
    said = data(
        tmp_path,
        zoo_model("digits_cnn"),
        "pictures",
        "--image_scale=1/255",
        "--output=scored.npz",
        "--output_labels=labels.npy",
        "--output_calibration=calibration.npz",
        "--calibration_rows=9",
    )
    scored, calibration, classes = (
        loaded(tmp_path / "scored.npz"),
        loaded(tmp_path / "calibration.npz"),
        np.load(tmp_path / "labels.npy"),
    )
    assert (said["rows"], said["calibration_rows"], said["in_both"], said["source_kind"]) == (21, 9, 0, "images")
    assert scored["image"].shape == (21, 8, 8, 1) and scored["image"].dtype == np.float32 and classes.dtype == np.int64
    assert (
        not set(row_hashes(scored)) & set(row_hashes(calibration))
        and len(set(row_hashes(scored) + row_hashes(calibration))) == 30
    )
    for row, label in zip(scored["image"], classes, strict=True):
        assert any(np.allclose(row[..., 0], one / 255, atol=1e-6) for one in pixels[FOLDERS[label]])
    assert [(one["index"], one["name"], one["rows"]) for one in said["classes"]] == [
        (0, "ant", 7),
        (1, "bee", 7),
        (2, "cat", 7),
    ]
    done = tftrt(
        "verify",
        zoo_model("digits_cnn"),
        zoo_model("digits_cnn"),
        "--data=scored.npz",
        "--labels=labels.npy",
        "--nowrite",
        cwd=tmp_path,
    )
    assert done.returncode == 0 and "accuracy on 21 labels" in done.stdout, done.stderr


def test_the_order_of_the_classes_can_be_given(zoo_model, folder):
    (folder / "classes.txt").write_text("cat\ndog\nbee\nant\n")
    said = data(
        folder,
        zoo_model("digits_cnn"),
        "pictures/*/*.png",
        "--rows=6",
        "--output=rows.npz",
        "--output_labels=labels.npy",
        "--classes=classes.txt",
    )
    assert [(one["index"], one["name"], one["rows"]) for one in said["classes"]] == [
        (0, "cat", 2),
        (2, "bee", 2),
        (3, "ant", 2),
    ]
    assert sorted(np.load(folder / "labels.npy")) == [0, 0, 2, 2, 3, 3]


def test_a_broken_picture_takes_its_label_along(zoo_model, folder):
    (folder / "pictures/bee/2.png").write_bytes(b"no picture")
    refused = data(folder, zoo_model("digits_cnn"), "pictures", "--output=rows.npz", "--output_labels=labels.npy")
    assert_clear(refused, 2, "cannot be decoded: 2.png")
    assert not (folder / "rows.npz").exists() and not (folder / "labels.npy").exists()
    said = data(
        folder,
        zoo_model("digits_cnn"),
        "pictures",
        "--output=rows.npz",
        "--output_labels=labels.npy",
        "--image_error_limit=1",
    )
    assert said["failed"] == ["2.png"] and np.load(folder / "labels.npy").tolist() == [0] * 4 + [1] * 3 + [2] * 4


def test_equal_rows_are_kept_out_of_the_calibration(zoo_model, tmp_path):
    rows = np.tile(np.arange(4, dtype=np.float32)[:, None, None, None], (3, 8, 8, 1))
    np.save(tmp_path / "rows.npy", rows)
    flags = ("rows.npy", "--output=scored.npz", "--output_calibration=others.npz", "--calibration_rows=4")
    assert_clear(
        data(tmp_path, zoo_model("digits_cnn"), *flags),
        2,
        "all 4 rows to calibrate on are equal to rows that are scored",
    )
    assert not (tmp_path / "scored.npz").exists()
    rows[4] = 9.0
    np.save(tmp_path / "rows.npy", rows)
    said = data(tmp_path, zoo_model("digits_cnn"), *flags)
    assert (said["rows"], said["calibration_rows"], said["in_both"]) == (8, 1, 3)
    assert loaded(tmp_path / "others.npz")["image"][:, 0, 0, 0].tolist() == [9.0]


def test_records_bring_a_label_and_strings_stay_strings(tftrt, zoo_model, tmp_path):
    import tensorflow as tf

    def feature(value):
        if isinstance(value, bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        kind = "int64_list" if isinstance(value[0], int) else "float_list"
        return tf.train.Feature(**{kind: {"value": value}})

    with tf.io.TFRecordWriter(str(tmp_path / "visits.tfrecord")) as writer:
        for number in range(5):
            row = {
                "user": f"user {number}".encode() + b"x" * number,
                "user_features": [float(number)] * 8,
                "visits": [number] * 4,
                "clicked": [number % 2],
                "note": [1, 2],
            }
            writer.write(
                tf.train.Example(
                    features=tf.train.Features(feature={k: feature(v) for k, v in row.items()})
                ).SerializeToString()
            )
    flags = ("visits.tfrecord", "--signature_keys=user_embedding", "--output=rows.npz", "--output_labels=labels.npy")
    assert_clear(data(tmp_path, zoo_model("ranker"), *flags), 2, "which feature of the records is the class")
    assert_clear(
        data(tmp_path, zoo_model("ranker"), *flags, "--label_feature=note"), 2, "no single integer in feature 'note'"
    )
    said = data(tmp_path, zoo_model("ranker"), *flags, "--label_feature=clicked")
    assert np.load(tmp_path / "labels.npy").tolist() == [0, 1, 0, 1, 0] and [
        one["rows"] for one in said["classes"]
    ] == [3, 2]
    rows = loaded(tmp_path / "rows.npz")
    assert sorted(rows) == ["user_embedding/user", "user_embedding/user_features", "user_embedding/visits"]
    assert rows["user_embedding/user"].tolist()[3:] == [b"user 3xxx", b"user 4xxxx"]
    verified = tftrt("verify", zoo_model("ranker"), zoo_model("ranker"), "--data=rows.npz", "--nowrite", cwd=tmp_path)
    assert verified.returncode == 0 and "user_embedding: 5 rows of data" in verified.stdout, verified.stderr


def test_a_function_gives_rows_too(zoo_model, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import numpy as np\ndef batches():\n"
        "    for size in 3, 2:\n        yield {'image': np.full((size, 8, 8, 1), size, 'float32')}\n"
    )
    said = data(tmp_path, zoo_model("digits_cnn"), "mine:batches", "--rows=4", "--output=rows.npz")
    assert said["inputs"] == {"image": "float32[4,8,8,1]"} and loaded(tmp_path / "rows.npz")["image"][
        :, 0, 0, 0
    ].tolist() == [3, 3, 3, 2]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("pictures",), "--output is missing"),
        (("", "--output=x.npz"), "SOURCE is empty"),
        (("pictures", "--output=x.csv"), ".npz is what is written"),
        (("nothing", "--output=x.npz"), "nothing: no such file or folder"),
        (("pictures/ant", "--output=x.npz", "--output_labels=y.npy"), "outside"),
        (("pictures", "--output=x.npz", "--label_feature=y"), "is about TFRecords"),
        (("pictures", "--output=x.npz", "--classes=classes.txt"), "no effect without --output_labels"),
        (
            ("pictures", "--output=x.npz", "--output_labels=y.npy", "--classes=classes.txt"),
            "does not name the folder 'cat'",
        ),
        (("pictures", "--output=x.npz", "--output_labels=y.npy", "--classes=none.txt"), "none.txt cannot be read"),
        (("pictures", "--output=x.npz", "--calibration_rows=3"), "no effect without --output_calibration"),
        (("pictures", "--output=x.npz", "--output_calibration=x.npz"), "two results"),
        (
            ("pictures", "--output=x.npz", "--output_calibration=y.npz", "--calibration_rows=12"),
            "holds 12 rows, and some of them to score and 12 to calibrate on are needed",
        ),
        (
            ("pictures", "--output=x.npz", "--rows=9", "--output_calibration=y.npz", "--calibration_rows=4"),
            "12 rows, and 9 rows to score and 4 to calibrate on are needed",
        ),
        (("here.npz", "--output=x.npz", "--image_scale=1/255"), "is about picture files"),
        (("here.npz", "--output=x.npz", "--output_labels=y.npy"), "arrays have no labels"),
        (("pictures", "--output=here.npz"), "here.npz is there"),
        (("pictures", "--output=x.npz", "--signature_keys=other"), "no signature 'other'"),
    ],
)
def test_what_cannot_work_is_told_and_nothing_is_left(flags, words, zoo_model, folder, monkeypatch):
    np.savez(folder / "here.npz", image=np.zeros((2, 8, 8, 1), np.float32))
    (folder / "classes.txt").write_text("ant\nbee\n")
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    with pytest.raises(errors.UsageError, match=words) as refused:
        values, positional = _flags.parse("data", command, [str(zoo_model("digits_cnn")), *flags])
        command.run(values, positional)
    assert refused.value.mend and sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("model", "code", "words"),
    [
        ("nowhere", 2, "no such file or directory: nowhere"),
        ("here", 2, "holds no saved_model.pb"),
        ("model.keras", 1, "not a Keras model file: model.keras"),
    ],
)
def test_what_is_no_model_is_told(model, code, words, folder):
    (folder / "here").mkdir()
    (folder / "model.keras").touch()
    assert_clear(data(folder, model, "pictures", "--output=x.npz"), code, words)


def test_numbers_are_spread_evenly():
    assert find.spread(10, 2) == [2, 7] and find.spread(3, 5) == [0, 1, 2] and find.spread(4, 4) == [0, 1, 2, 3]
    assert all(len(find.spread(total, count)) == min(total, count) for total in range(1, 40) for count in range(1, 40))


def test_labels_that_do_not_occur_are_not_counted():
    assert labels.counted(np.array([4, 1, 4]), {1: "a"}) == (labels.Class(1, "a", 1), labels.Class(4, "", 2))


@pytest.mark.parametrize(("name", "code"), [("item", 0), ("item_embedding/item", 0), ("itme", 2)])
def test_arrays_of_another_signature_are_left_aside(tftrt, zoo_model, tmp_path, name, code):
    rows = {
        "user": np.array([b"a", b"b"]),
        "user_features": np.zeros((2, 8), np.float32),
        "visits": np.zeros((2, 4), np.int32),
        name: np.array([b"c", b"d"]),
    }
    np.savez(tmp_path / "rows.npz", **rows)
    done = tftrt(
        "data", zoo_model("ranker"), "rows.npz", "--signature_keys=user_embedding", "--output=out.npz", cwd=tmp_path
    )
    assert done.returncode == code and ("array 'itme' that is no input" in done.stderr) == bool(code), done.stderr
    assert code or sorted(loaded(tmp_path / "out.npz")) == [
        f"user_embedding/{one}" for one in ("user", "user_features", "visits")
    ]


def test_documents_in_folders_are_strings_with_labels(tmp_path):
    for name in ("ham", "spam"):
        (tmp_path / "mail" / name).mkdir(parents=True)
        for number in range(2):
            (tmp_path / "mail" / name / f"{number}.txt").write_text(f"{name}\n{number}")
    found = find.find(str(tmp_path / "mail"))
    assert (found.kind, found.by_file, find.find(str(tmp_path / "mail/ham/0.txt")).by_file) == ("texts", True, False)
    wanted = export.Wanted(
        options=options.DataOptions(source=str(tmp_path / "mail")),
        output=str(tmp_path / "o.npz"),
        signature="s",
        labels=str(tmp_path / "l.npy"),
    )
    specs = (InputSpec("text", "string", (None,)),)
    request = export.Request(wanted=wanted, specs=specs, kind=found.kind, files=found.files)
    assert export_job.job(request).rows == 4
    assert np.load(tmp_path / "l.npy").tolist() == [0, 0, 1, 1] and loaded(tmp_path / "o.npz")["text"][3] == b"spam\n1"


def dealt(folder, model, *flags):
    """What `--output_labels` and `--output` hold after dealing rows whose values are their numbers."""
    said = data(
        folder,
        model,
        "rows.npy",
        "--output=scored.npz",
        "--output_calibration=others.npz",
        "--output_labels=mine.npy",
        "--overwrite",
        *flags,
    )
    assert isinstance(said, dict), said.stderr
    return (
        said,
        loaded(folder / "scored.npz")["image"][:, 0, 0, 0],
        np.load(folder / "mine.npy"),
        loaded(folder / "others.npz")["image"][:, 0, 0, 0],
    )


def numbered_rows(count):
    return np.tile(np.arange(count, dtype=np.float32)[:, None, None, None], (1, 8, 8, 1))


def test_right_answers_go_with_the_rows_to_score(zoo_model, tmp_path):
    np.save(tmp_path / "rows.npy", numbered_rows(40))
    np.save(tmp_path / "all.npy", 100 + np.arange(40))
    (tmp_path / "all.csv").write_text("label\n" + "".join(f"class {number % 3}\n" for number in range(40)))
    (tmp_path / "names.txt").write_text("class 2\nclass 1\nclass 0\n")
    model = zoo_model("digits_cnn")
    said, scored, labels_there, others = dealt(tmp_path, model, "--labels=all.npy")
    assert (said["rows"], said["calibration_rows"]) == (30, 10), "a quarter, where there are fewer than 2000"
    assert labels_there.tolist() == [100 + number for number in scored] and sorted([*scored, *others]) == list(
        range(40)
    )
    _, scored, labels_there, _ = dealt(tmp_path, model, "--labels=all.csv")
    assert labels_there.tolist() == [f"class {int(number) % 3}" for number in scored]
    _, scored, labels_there, _ = dealt(tmp_path, model, "--labels=all.csv", "--classes=names.txt", "--rows=20")
    assert labels_there.tolist() == [2 - int(number) % 3 for number in scored] and len(scored) == 20
    np.save(tmp_path / "rows.npy", numbered_rows(2100))
    np.save(tmp_path / "all.npy", np.arange(2100))
    assert dealt(tmp_path, model, "--labels=all.npy")[0]["calibration_rows"] == export.DEFAULT_CALIBRATION_ROWS


def test_pictures_find_their_answers_by_name(zoo_model, folder):
    names = sorted(str(path.relative_to(folder / "pictures")) for path in (folder / "pictures").rglob("*.png"))
    (folder / "answers.csv").write_text(
        "file,label\n" + "".join(f"{name},{name.split('/')[0]}\n" for name in reversed(names))
    )
    flags = ("pictures", "--rows=6", "--output=scored.npz", "--output_labels=labels.npy", "--overwrite")
    for answers in ("--labels=answers.csv", "--labels=folders"):
        said = data(folder, zoo_model("digits_cnn"), *flags, answers)
        assert said["rows"] == 6 and sorted(np.load(folder / "labels.npy")) == [
            "ant",
            "ant",
            "bee",
            "bee",
            "cat",
            "cat",
        ]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--labels=long.npy", "--output_labels=y.npy"), "holds 5 values, and rows.npy 4 rows"),
        (("--labels=short.npy", "--output_labels=y.npy"), "holds 3 values, and rows.npy 4 rows"),
        (("--labels=long.npy",), "no effect without --output_labels"),
        (("--label_column=x",), "no effect without --labels"),
        (("--labels=long.npy", "--output_labels=y.npy", "--label_feature=x"), "exclude each other"),
        (("--labels=boxes.npz", "--output_labels=y.npy"), "holds boxes, which are not parted here"),
        (("--labels=nothing.npy", "--output_labels=y.npy"), "no such file"),
    ],
)
def test_answers_that_cannot_be_dealt_are_told(flags, words, zoo_model, tmp_path):
    np.save(tmp_path / "rows.npy", numbered_rows(4))
    np.save(tmp_path / "long.npy", np.arange(5))
    np.save(tmp_path / "short.npy", np.arange(3))
    np.savez(tmp_path / "boxes.npz", boxes=np.zeros((4, 1, 4)), classes=np.zeros((4, 1)))
    done = data(tmp_path, zoo_model("digits_cnn"), "rows.npy", "--output=x.npz", "--output_calibration=z.npz", *flags)
    assert_clear(done, 2, words)
    assert not (tmp_path / "x.npz").exists()
