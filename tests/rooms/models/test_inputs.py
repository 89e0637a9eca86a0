"""What --data and --labels take: every kind of file as rows of a signature, labels beside them, and what is said of files that are neither."""

import zipfile

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests import doubles
from tests.command_here import run_tftrt
from tests.command_line import assert_clear
from tests.picture_files import pictures
from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import _calibration_flags, _data_flags, _flags, _help
from tftrt_tools.command_line.commands import bench as bench_command
from tftrt_tools.command_line.commands import calibrate as calibrate_command
from tftrt_tools.command_line.commands import data as data_command
from tftrt_tools.command_line.commands import sensitivity as sensitivity_command
from tftrt_tools.command_line.commands import verify as verify_command
from tftrt_tools.models.inputs import find, labels, read, read_job
from tftrt_tools.models.inputs import given as givens
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.savedmodel import shapes
from tftrt_tools.models.savedmodel.shapes import InputSpec

PICTURE, VECTOR = InputSpec("image", "float32", (None, 8, 8, 1)), InputSpec("x", "float32", (None, 3))
TEXT, IDS, FLAG = (
    InputSpec("text", "string", (None,)),
    InputSpec("ids", "int32", (None,)),
    InputSpec("flag", "bool", (None, 1)),
)


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    """Reading runs in a child; the function that runs there is what is tested here, and TensorFlow is loaded already."""
    doubles.job(monkeypatch, read.save, read_job.job)


def rows_of(source, tmp_path, specs, rows=0, **options):
    return givens.given(str(source), specs, tmp_path / "read", DataOptions(**options), rows)


def refused(words, source, tmp_path, specs=None, mend="", **options):
    with pytest.raises(errors.UsageError, match=words) as caught:
        rows_of(source, tmp_path, specs or {"s": [PICTURE]}, **options)
    assert mend in caught.value.mend, caught.value.mend


def test_a_folder_of_pictures_is_rows_of_each_signature_that_takes_them(tmp_path):
    pixels = pictures(tmp_path / "p")
    specs = {"other": [VECTOR], "s": [PICTURE], "twin": [PICTURE]}
    given = rows_of(tmp_path / "p", tmp_path, specs, image_scale=1 / 255)
    assert set(given.arrays) == {"s/image", "twin/image"} and given.rows.total == 12 and given.notes == ()
    expected = np.concatenate([pixels[name] for name in sorted(pixels)])[..., None] / 255
    assert given.arrays["s/image"].dtype == np.float32 and np.allclose(given.arrays["s/image"], expected, atol=1e-6)
    calls, dropped = given.cut(specs, (5,))
    assert [call.rows for call in calls["s"]] == [5, 5] and dropped == 4 and set(calls) == {"s", "twin"}


def test_fewer_rows_come_from_all_files_and_know_their_labels(tmp_path):
    pictures(tmp_path / "p")
    np.save(tmp_path / "l.npy", np.repeat(np.arange(3), 4))
    given = rows_of(tmp_path / "p", tmp_path, {"s": [PICTURE]}, rows=3)
    assert labels.read("folders", given.rows).tolist() == ["ant", "bee", "cat"]
    assert labels.read(str(tmp_path / "l.npy"), given.rows).tolist() == [0, 1, 2]


def test_a_picture_that_does_not_decode_is_told_and_takes_its_label_along(tmp_path):
    pictures(tmp_path / "p")
    (tmp_path / "p/bee/1.png").write_bytes(b"no picture")
    refused("cannot be decoded: 1.png", tmp_path / "p", tmp_path)
    given = rows_of(tmp_path / "p", tmp_path / "again", {"s": [PICTURE]}, image_error_limit=1)
    assert given.notes == ("1 pictures could not be decoded: 1.png",)
    assert labels.numbered(labels.read("folders", given.rows)).tolist() == [0] * 4 + [1] * 3 + [2] * 4


@pytest.mark.parametrize("shape", [(None,), (None, 1), None])
def test_a_model_that_decodes_itself_gets_the_files_bytes(tmp_path, shape):
    pictures(tmp_path / "p", each=1)
    given = rows_of(tmp_path / "p", tmp_path, {"s": [InputSpec("jpeg", "string", shape)]})
    assert given.arrays["s/jpeg"].shape == (3, *(shape or ())[1:])
    assert given.arrays["s/jpeg"].reshape(-1).tolist() == [
        (tmp_path / f"p/{name}/0.png").read_bytes() for name in ("ant", "bee", "cat")
    ]
    refused(
        "image_scale is about pictures that are decoded here", tmp_path / "p", tmp_path, {"s": [TEXT]}, image_scale=0.5
    )


def test_one_encoded_file_of_any_kind_is_a_row_of_strings_and_of_nothing_else(tmp_path):
    (tmp_path / "sound.wav").write_bytes(b"RIFF\0\0")
    assert rows_of(tmp_path / "sound.wav", tmp_path, {"s": [TEXT]}).arrays["s/text"].tolist() == [b"RIFF\0\0"]
    refused("sound.wav is sound", tmp_path / "sound.wav", tmp_path / "x", mend="inputs that take strings")
    (tmp_path / "main.py").write_text("x")
    assert rows_of(tmp_path / "main.py", tmp_path / "y", {"s": [TEXT]}).arrays["s/text"].tolist() == [b"x"]
    refused("no known kind", tmp_path / "main.py", tmp_path / "z", mend="known: .npz")


def test_a_line_of_a_text_file_is_a_row_and_of_several_files_each_is_one(tmp_path):
    (tmp_path / "a.txt").write_bytes("\ufeffone, two\r\n\r\nthré\n".encode())
    assert rows_of(tmp_path / "a.txt", tmp_path, {"s": [TEXT]}).arrays["s/text"].tolist() == [
        b"one, two",
        b"",
        "thré".encode(),
    ]
    (tmp_path / "b.txt").write_bytes(b"x\ny\n")
    both = rows_of(tmp_path / "*.txt", tmp_path / "r", {"s": [TEXT]})
    assert both.arrays["s/text"].tolist()[1] == b"x\ny\n" and len(both.rows.names) == 2
    refused(
        "text needs a signature with one input of strings",
        tmp_path / "a.txt",
        tmp_path,
        mend="turn it into what the model takes",
    )
    refused("text needs a signature", tmp_path / "a.txt", tmp_path, {"s": [IDS]}, mend="not tokenized here")
    refused(
        "text needs a signature",
        tmp_path / "a.txt",
        tmp_path,
        {"s": [TEXT, TEXT]},
        mend="a .csv with a column for each input",
    )


def test_columns_of_a_table_are_inputs_by_name_and_an_only_input_in_order(tmp_path):
    (tmp_path / "t.csv").write_text('flag,note,text,ids\ntrue,x,"a, b",3\n0,y,c,-4\n')
    arrays = rows_of(tmp_path / "t.csv", tmp_path, {"s": [TEXT, IDS, FLAG]}).arrays
    assert (
        arrays["s/text"].tolist() == [b"a, b", b"c"]
        and arrays["s/ids"].tolist() == [3, -4]
        and arrays["s/ids"].dtype == np.int32
    )
    assert arrays["s/flag"].tolist() == [[True], [False]]
    for number, text in enumerate(("1;2;3\n4;5;6\n", "a;b;c\n1;2;3\n4;5;6\n", "1\t2\t3\n4\t5\t6\n")):
        (tmp_path / "v.csv").write_text(text)
        assert rows_of(tmp_path / "v.csv", tmp_path / str(number), {"s": [VECTOR]}).arrays["s/x"].tolist() == [
            [1, 2, 3],
            [4, 5, 6],
        ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ids\n3\nx\n", "row 3, column 1 holds 'x'"),
        ("a,b\n1,2\n", "has no column 'ids'; its first line is a, b"),
        ("ids,b\n1\n", "line 2 has 1"),
        ("file,label\na/1.jpg,3\n", "lists pictures, and holds none"),
        ("", "is empty"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_with_its_place(tmp_path, text, says):
    (tmp_path / "t.csv").write_text(text)
    refused(says, tmp_path / "t.csv", tmp_path, {"s": [IDS]})


@pytest.mark.parametrize(
    ("specs", "mend"),
    [
        ({"s": [IDS]}, "name its columns like the inputs"),
        ({"s": [VECTOR]}, "a table for it has exactly 3 columns, in order, and this one has 4; leave the others out"),
        ({"s": [IDS, VECTOR]}, "a single input; give the data as .npz, with an array for each input"),
    ],
)
def test_a_table_that_cannot_feed_the_inputs_is_told_what_can(tmp_path, specs, mend):
    (tmp_path / "t.csv").write_text("a,b,c,d\n1,2,3,4\n")
    with pytest.raises(errors.UsageError, match="has no column") as told:
        rows_of(tmp_path / "t.csv", tmp_path, specs)
    assert mend in told.value.mend


def test_tfrecords_are_rows(tmp_path):
    with tf.io.TFRecordWriter(str(tmp_path / "d.tfrecord")) as writer:
        for number in range(3):
            feature = {"x": tf.train.Feature(float_list=tf.train.FloatList(value=[number] * 3))}
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    given = rows_of(tmp_path / "d.tfrecord", tmp_path, {"wide": [PICTURE], "s": [VECTOR]}, rows=2)
    assert set(given.arrays) == {"s/x"} and given.arrays["s/x"].tolist() == [[0] * 3, [1] * 3]


def test_arrays_in_several_files_under_any_name(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.ones((2, 3)))
    np.savez(tmp_path / "b.npz", x=np.zeros((1, 3)))
    assert rows_of(tmp_path / "*.npz", tmp_path, {"s": [VECTOR]}).arrays["s/x"].tolist() == [[1] * 3, [1] * 3, [0] * 3]
    (tmp_path / "a.npz").rename(tmp_path / "rows.dat")
    assert rows_of(tmp_path / "rows.dat", tmp_path, {"s": [VECTOR]}, rows=1).arrays["x"].shape == (1, 3)


def foreign_files(folder):
    """{name: words of what is said of it}."""
    for name in (
        "m.pb",
        "m.onnx",
        "m.tflite",
        "m.keras",
        "w.h5",
        "w.pt",
        "t.parquet",
        "p.tar",
        "p.gz",
        "s.xlsx",
        "m.ckpt.index",
        "v.mp4",
        "m.ckpt.data-00000-of-00001",
        "o.pkl",
        "p.webp",
    ):
        (folder / name).write_bytes(b"x")
    with zipfile.ZipFile(folder / "p.zip", "w") as archive:
        archive.writestr("a.jpg", b"x")
    (folder / "saved").mkdir()
    (folder / "saved/saved_model.pb").write_bytes(b"x")
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints/checkpoint").write_text("x")
    return {
        "m.pb": "graph or model of TensorFlow",
        "m.onnx": "ONNX model",
        "m.tflite": "TensorFlow Lite model",
        "m.keras": "Keras model",
        "w.h5": "HDF5",
        "w.pt": "PyTorch",
        "t.parquet": "Parquet",
        "p.zip": "archive",
        "p.tar": "archive",
        "p.gz": "packed",
        "s.xlsx": "spreadsheet",
        "m.ckpt.index": "checkpoint",
        "m.ckpt": "checkpoint",
        "m.ckpt.data-00000-of-00001": "checkpoint",
        "v.mp4": "video",
        "o.pkl": "pickled",
        "p.webp": "picture of another kind",
        "saved": "a SavedModel, and no data",
        "checkpoints": "checkpoints",
    }


def test_what_is_no_data_is_named_with_the_way_from_there(tmp_path):
    for name, words in foreign_files(tmp_path).items():
        refused(words, tmp_path / name, tmp_path / "x", mend=" ")
        if name not in ("saved", "checkpoints", "m.ckpt"):
            with pytest.raises(errors.UsageError, match="--labels=.* is "):
                labels.read(str(tmp_path / name))


def test_lists_beside_pictures_are_no_data(tmp_path):
    pictures(tmp_path / "p", each=1)
    (tmp_path / "p/labels.csv").write_text("a,b\n")
    (tmp_path / "p/README.txt").write_text("x")
    assert find.find(str(tmp_path / "p")).kind == "images"


# labels


def label_file(tmp_path, name, content):
    path = tmp_path / name
    if isinstance(content, str):
        path.write_text(content)
    else:
        np.save(path, content)
    return str(path)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("l.txt", "3\n1\n2\n", [3, 1, 2]),
        ("l.csv", "3\n1\n2\n", [3, 1, 2]),
        ("l.csv", "class_id\n3\n1\n2\n", [3, 1, 2]),
        ("l.csv", "wood\n3\n1\n2\n", [3, 1, 2]),
        ("l.csv", "id,label,split\n9,3,a\n8,1,a\n7,2,a\n", [3, 1, 2]),
        ("l.txt", "0.5\n1\n2\n", [0.5, 1, 2]),
        ("l.csv", "cat\nant\nbee\n", ["cat", "ant", "bee"]),
        ("l.npy", np.array([3, 1, 2]), [3, 1, 2]),
        ("l.npy", np.array(["b", "a"]), ["b", "a"]),
    ],
)
def test_labels_come_from_every_form(tmp_path, name, content, expected):
    assert labels.read(label_file(tmp_path, name, content)).tolist() == expected


def test_a_column_is_chosen_by_name_or_number(tmp_path):
    path = label_file(tmp_path, "l.csv", "age,name,kind\n3,x,7\n1,y,8\n")
    assert labels.read(path, column="age").tolist() == [3, 1] and labels.read(path, column="3").tolist() == [7, 8]
    with pytest.raises(
        errors.UsageError, match="--label_column=kin: .* no such column; its first line is age, name, kind"
    ):
        labels.read(path, column="kin")
    with pytest.raises(errors.UsageError, match="speaks of a table"):
        labels.read(label_file(tmp_path, "l.txt", "1\n"), column="kind")
    with pytest.raises(errors.UsageError, match="row 2 has no label in column 1"):
        labels.read(label_file(tmp_path, "l.csv", "1,a\n,b\n"), column="1")


def test_names_become_numbers_sorted_or_in_the_models_order(tmp_path):
    names = labels.read(label_file(tmp_path, "l.txt", "dog\nant\ndog\n"))
    assert labels.numbered(names).tolist() == [1, 0, 1]
    assert labels.numbered(names, ("dog", "cow", "ant")).tolist() == [0, 2, 0]
    assert labels.numbered(np.array([1.0, 2.0])).dtype == np.int64
    with pytest.raises(errors.UsageError, match="holds 'ant', which --classes does not name"):
        labels.numbered(names, ("dog",))
    with pytest.raises(errors.UsageError, match="numbers of classes, and 'x'"):
        labels.numbered(labels.read(label_file(tmp_path, "l.txt", "1\nx\n")))


def rows_from(*names):
    return read.Rows(
        arrays={}, kind="images", names=names, numbers=tuple(range(len(names))), total=len(names), failed=()
    )


@pytest.mark.parametrize(
    "table",
    [
        "file,label\nb.png,2\na.png,1\nother.png,9\n",
        "b.png,2\na.png,1\n",
        "a,1\nb,2\n",
        "1,p/a.png\n2,/elsewhere/b.png\n",
        "image_id;class\nx/a.png;1\nx/b.png;2\n",
    ],
)
def test_rows_of_a_table_are_matched_with_files_by_their_names(tmp_path, table):
    column = "1" if table.startswith("1,") else ""
    found = labels.read(label_file(tmp_path, "l.csv", table), rows_from("x/b.png", "x/a.png"), column)
    assert found.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("a.png,1\n", "has no label for b.png$"),
        ("c.png,1\nd.png,2\n", "speaks of c.png, and of none of --data's files, such as b.png"),
        ("a.png,1\nb.png,1\na.png,2\n", "two labels for a.png: 1 and 2"),
    ],
)
def test_files_without_a_label_or_with_two_are_refused(tmp_path, table, says):
    with pytest.raises(errors.UsageError, match=says):
        labels.read(label_file(tmp_path, "l.csv", table), rows_from("x/b.png", "x/a.png"))


def test_equal_file_names_need_their_folders(tmp_path):
    rows = rows_from("p/cat/1.png", "p/dog/1.png")
    assert labels.read(label_file(tmp_path, "l.csv", "cat/1.png,0\ndog/1.png,1\n"), rows).tolist() == [0, 1]
    with pytest.raises(errors.UsageError, match="several files of that name"):
        labels.read(label_file(tmp_path, "l.csv", "1.png,0\n"), rows)


def test_a_folder_is_no_file_of_labels(tmp_path):
    with pytest.raises(errors.UsageError, match="is a folder") as caught:
        labels.read(str(tmp_path))
    assert "--labels=folders" in caught.value.mend


def test_folders_are_no_labels_of_data_without_folders(tmp_path):
    with pytest.raises(errors.UsageError, match="--labels=folders needs --data with pictures"):
        labels.read("folders", None)
    with pytest.raises(errors.UsageError, match="all files of --data are in the folder 'p'"):
        labels.read("folders", rows_from("p/1.png", "p/2.png"))


# flags


@pytest.mark.parametrize(
    ("text", "value"), [("1/127.5", 1 / 127.5), ("1/255", 1 / 255), ("0.5", 0.5), ("2.5e-1/2", 0.125)]
)
def test_scales_are_numbers_and_fractions_of_numbers(text, value):
    assert _calibration_flags._number("image_scale", text) == pytest.approx(value)


# the commands


def test_verify_scores_pictures_by_their_folders_and_by_a_table(zoo_model, tmp_path):
    rng, rows = np.random.default_rng(0), []
    for number in range(6):
        folder = tmp_path / "p" / f"c{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 8), np.uint8)).save(folder / f"{number}.png")
        rows.append(f"{number}.png,c{number % 2}")
    (tmp_path / "classes.txt").write_text("\n".join(f"c{number}" for number in range(10)))
    (tmp_path / "l.csv").write_text("file,label\n" + "\n".join(rows) + "\n")
    model = zoo_model("digits_cnn")
    shares = []
    for given in ("folders", "l.csv"):
        done = run_tftrt(
            "verify",
            model,
            model,
            "--nowrite",
            "--data=p",
            "--image_scale=1/255",
            f"--labels={given}",
            "--classes=classes.txt",
            cwd=tmp_path,
        )
        assert done.returncode == 0 and "accuracy on 6 labels" in done.stdout, done.stderr
        shares.append(next(line for line in done.stdout.splitlines() if "accuracy on" in line))
    assert shares[0] == shares[1]
    done = run_tftrt(
        "verify", model, model, "--nowrite", "--data=p", "--image_scale=1/255", "--labels=folders", cwd=tmp_path
    )
    assert_clear(done, 2, "--labels has 2 names of classes, and the output 10 classes")
    assert_clear(run_tftrt("verify", model, model, "--data=m.onnx", cwd=tmp_path), 2, "no such file")


@pytest.mark.parametrize("mode", ["tf", "caffe", "torch"])
def test_presets_are_keras_preprocessing(tmp_path, mode):
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "p.png")
    values, _ = _flags.parse("verify", verify_command, [f"--image_preset={mode}"])
    spec = InputSpec("image", "float32", (None, 8, 8, 3))
    read_rows = givens.given(str(tmp_path / "p.png"), {"s": [spec]}, tmp_path / "read", _data_flags.reading(values))
    expected = tf.keras.applications.imagenet_utils.preprocess_input(pixels.astype(np.float32), mode=mode)
    assert np.allclose(read_rows.arrays["s/image"][0], expected, atol=1e-4)
    values, _ = _flags.parse("verify", verify_command, [f"--image_preset={mode}", "--image_mean=3"])
    with pytest.raises(errors.UsageError, match="--image_preset and --image_mean exclude each other"):
        _data_flags.reading(values)


@pytest.mark.parametrize(
    ("name", "command", "given", "meant"),
    [
        ("verify", verify_command, "--calibration_data=x", "--data names"),
        ("calibrate", calibrate_command, "--data=x", "--calibration_data names"),
    ],
)
def test_the_other_name_of_inputs_is_pointed_to(name, command, given, meant):
    with pytest.raises(errors.UsageError, match="Unknown command line flag") as caught:
        _flags.parse(name, command, [given])
    assert meant in caught.value.mend


def test_a_path_is_no_shape(tmp_path):
    with pytest.raises(errors.UsageError, match="is a file or folder, and shapes of inputs are asked for"):
        shapes.parse(str(tmp_path))


@pytest.mark.parametrize("old", ["--signature_name=a", "--signature_key=a"])
def test_old_names_of_signature_keys_are_taken_and_not_shown(old):
    for name, command, expected in (
        ("bench", bench_command, "a"),
        ("verify", verify_command, ["a"]),
        ("data", data_command, "a"),
    ):
        values, _ = _flags.parse(name, command, [old])
        assert values.signature_keys == expected
        shown = _help.text(name, command, values)
        assert "--signature_keys" in shown and "signature_name" not in shown and "--signature_key " not in shown


def test_flags_of_pictures_speak_of_the_pictures_beside_arrays(tmp_path):
    pictures(tmp_path / "p", each=1)
    np.savez(tmp_path / "d.npz", x=np.zeros((1, 3)))
    for data, calibration in (("p", "d.npz"), ("d.npz", "p"), ("p", "p"), ("d.npz", "d.npz")):
        argv = [f"--data={tmp_path / data}", f"--calibration_data={tmp_path / calibration}", "--image_scale=1/255"]
        values, _ = _flags.parse("sensitivity", sensitivity_command, argv)
        scored, calibrated = _data_flags.reading_beside(values, _calibration_flags.read(values))
        plain = [one.image_scale == 1 for one in (scored, calibrated)]
        assert plain == {("p", "d.npz"): [False, True], ("d.npz", "p"): [True, False]}.get(
            (data, calibration), [False, False]
        )
