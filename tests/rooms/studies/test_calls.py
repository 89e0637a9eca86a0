"""What a model is called with: the user's data first, else drawn values; each function once, frozen inputs with their value."""

import numpy as np
import pytest

from tests import doubles
from tftrt_tools.base import errors
from tftrt_tools.models.inputs import calls, drawing, read, read_job, user_calls, user_calls_job
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.tftrt.calibration.job import data as calibration_data

X, TRAINING = InputSpec("x", "float32", (None, 3)), InputSpec("training", "bool", ())
SPECS = {"serve": (X, TRAINING), "serving_default": (X, TRAINING)}
SAME = {name: "serving_default" for name in SPECS}
ROWS = np.arange(15, dtype=np.float32).reshape(5, 3)
FROZEN = {
    "signatures": [{"name": "serving_default", "twins": ["serve"], "preparation": {"frozen": [["training", False]]}}]
}


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    """What runs in a child runs here: TensorFlow is loaded already."""
    doubles.job(monkeypatch, read.save, read_job.job)
    doubles.job(monkeypatch, user_calls.save, user_calls_job.job)


def chosen(tmp_path, takes, sizes=(2,), **asked):
    return calls.choose(takes, calls.Asked(**asked), tmp_path / "read", sizes)


def saved(path, **arrays):
    np.savez(path, **arrays)
    return str(path)


def test_a_function_is_called_once_and_its_data_may_bear_either_name(tmp_path):
    takes = calls.Takes.of(SPECS, SAME)
    assert list(chosen(tmp_path, takes).calls) == ["serving_default"]
    source = saved(tmp_path / "d.npz", **{"serve/x": ROWS, "serve/training": np.array(True)})
    found = chosen(tmp_path, takes, data=source)
    assert [call.rows for call in found.all] == [2, 2] and found.dropped == 1 and found.own == ("serving_default",)
    assert list(calls.Takes.of(SPECS).specs) == list(SPECS), "of models that nobody knows each signature counts"


def test_a_signature_that_is_asked_by_its_name_takes_the_data_of_its_twin(tmp_path):
    takes = calls.Takes.one("serve", SPECS, SAME)
    source = saved(tmp_path / "d.npz", **{"serving_default/x": ROWS, "serving_default/training": np.array(True)})
    assert {call.signature for call in chosen(tmp_path, takes, data=source).all} == {"serve"}
    assert [call.shapes["x"] for call in chosen(tmp_path, takes, shapes="serving_default/x:4x3").all] == [(4, 3)]
    with pytest.raises(errors.UsageError, match="fills no signature"):
        chosen(tmp_path, calls.Takes.one("serve", SPECS), data=source)


@pytest.mark.parametrize("files", ["one file", "a folder"])
@pytest.mark.parametrize("names", [("one/a", "two/b"), ("a", "b"), ("one/a", "b"), ("a", "two/b")])
def test_arrays_of_a_signature_that_was_not_asked_for_are_left_aside(tmp_path, names, files):
    specs = {"one": (InputSpec("a", "float32", (None, 2)),), "two": (InputSpec("b", "float32", (None, 2)),)}
    for number in range(1 if files == "one file" else 2):
        (tmp_path / "data").mkdir(exist_ok=True)
        np.savez(tmp_path / "data" / f"{number}.npz", **{name: np.zeros((4, 2), np.float32) for name in names})
    data = str(tmp_path / ("data/0.npz" if files == "one file" else "data"))
    found = chosen(tmp_path / "one", calls.Takes.of(specs, keys=("one",)), data=data)
    assert {call.signature for call in found.all} == {"one"} and found.own == ("one",)
    assert found.given.notes == (f"arrays of signatures that were not asked for were left aside: {names[1]}",)
    both = chosen(tmp_path / "both", calls.Takes.of(specs), data=data)
    assert both.own == ("one", "two") and both.given.notes == ()


@pytest.mark.parametrize("name", ["three/b", "c"])
def test_an_array_of_no_signature_is_refused_beside_those_that_are_left_aside(tmp_path, name):
    specs = {"one": (InputSpec("a", "float32", (None, 2)),), "two": (InputSpec("b", "float32", (None, 2)),)}
    source = saved(tmp_path / "d.npz", **{"a": np.zeros((4, 2)), "b": np.zeros((4, 2)), name: np.zeros((4, 2))})
    with pytest.raises(errors.UsageError, match=f"has an array '{name}' that is no input"):
        chosen(tmp_path, calls.Takes.of(specs, keys=("one",)), data=source)


def test_an_input_that_two_signatures_have_is_the_one_that_was_asked_for(tmp_path):
    specs = {"one": (X, TRAINING), "two": (X, TRAINING)}
    takes = calls.Takes.of(specs, keys=("one",), manifest={"signatures": [{**FROZEN["signatures"][0], "name": "one"}]})
    found = chosen(
        tmp_path,
        takes,
        data=saved(tmp_path / "d.npz", **{"x": ROWS, "two/x": ROWS + 1, "two/training": np.array(True)}),
    )
    assert np.array_equal(found.all[0].inputs["x"], ROWS[:2]) and not found.all[0].inputs["training"]
    assert found.given.notes == ("arrays of signatures that were not asked for were left aside: two/x, two/training",)


def test_a_frozen_input_is_sent_with_its_value_and_need_not_be_given(tmp_path):
    takes = calls.Takes.of(SPECS, SAME, manifest=FROZEN)
    # Of eight seeds one at least draws True.
    drawn = [call.inputs["training"] for seed in range(8) for call in chosen(tmp_path, takes, seed=seed).all]
    assert drawn and not any(drawn)
    plain = [
        call.inputs["training"]
        for seed in range(8)
        for call in chosen(tmp_path, calls.Takes.of(SPECS, SAME), seed=seed).all
    ]
    assert any(plain)
    for given in ({"x": ROWS}, {"x": ROWS, "training": np.array(False)}):
        found = chosen(tmp_path, takes, data=saved(tmp_path / "d.npz", **given))
        assert found.own and not any(call.inputs["training"] for call in found.all)
    with pytest.raises(errors.UsageError, match="another value than False, to which it was frozen"):
        chosen(tmp_path, takes, data=saved(tmp_path / "d.npz", x=ROWS, training=np.array(True)))


def test_a_frozen_input_may_be_left_out_of_every_kind_of_data(tmp_path, monkeypatch):
    takes = calls.Takes.of(SPECS, SAME, manifest=FROZEN)
    (tmp_path / "d.csv").write_text("1,2,3\n4,5,6\n")
    for part in (ROWS[:1], ROWS[1:]):
        np.savez(tmp_path / f"{len(part)}.npz", x=part)
    (tmp_path / "inputs_of_test_calls.py").write_text(
        "import numpy as np\ndef rows():\n    yield {'x': np.zeros((2, 3), 'f4')}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for number, source in enumerate((tmp_path / "d.csv", tmp_path / "*.npz", "inputs_of_test_calls:rows")):
        found = chosen(tmp_path / str(number), takes, data=str(source))
        assert found.own == ("serving_default",) and {"x", "training"} == set(found.all[0].inputs), source


NODES, EDGES = InputSpec("nodes", "float32", (None, 4)), InputSpec("edges", "int64", (None,))


@pytest.fixture
def function(tmp_path, monkeypatch, request):
    """Gives the name of a function that yields what the text says."""
    monkeypatch.syspath_prepend(tmp_path)

    def written(text):
        name = f"own_{request.node.name[:40].translate(str.maketrans('[]-', '___'))}_{abs(hash(text))}"
        lines = "".join(f"    {line}\n" for line in text.splitlines())
        (tmp_path / f"{name}.py").write_text(f"import numpy as np\ndef rows():\n{lines}")
        return f"{name}:rows"

    return written


def test_an_item_of_a_function_is_one_call_in_its_own_shapes(tmp_path, function):
    takes = calls.Takes.of({"s": (NODES, EDGES)})
    source = function(
        "for n, e in ((2, 5), (6, 1), (3, 3)):\n    yield {'nodes': np.ones((n, 4), 'f4'), 'edges': np.zeros(e, int)}"
    )
    found = chosen(tmp_path, takes, data=source)
    assert [one.shapes for one in found.all] == [{"nodes": (n, 4), "edges": (e,)} for n, e in ((2, 5), (6, 1), (3, 3))]
    # The third, too, is one graph, though it has as many nodes as edges.
    assert (
        [(one.rows, one.whole) for one in found.all] == [(1, True)] * 3
        and found.items == ("s",)
        and found.rows == {"s": 3}
    )
    with pytest.raises(errors.UsageError, match="different lengths: nodes 2, edges 5") as caught:
        chosen(tmp_path, takes, data=saved(tmp_path / "d.npz", nodes=np.ones((2, 4), "f4"), edges=np.zeros(5, int)))
    assert "module:function" in caught.value.mend


@pytest.mark.parametrize(
    ("shapes", "rows"),
    [({"x": (8, 4), "bank": (10, 4)}, 8), ({"x": (8, 4), "n": ()}, 8), ({"n": ()}, 1), ({"bank": (10, 4)}, 10)],
)
def test_the_rows_of_a_call_are_those_of_its_open_dimension(shapes, rows):
    known = {
        "x": InputSpec("x", "float32", (None, 4)),
        "bank": InputSpec("bank", "float32", (10, 4)),
        "n": InputSpec("n", "int32", ()),
    }
    specs = [known[name] for name in shapes]
    assert drawing.calls("s", specs, [shapes], 0)[0].rows == rows


@pytest.mark.parametrize("form", ["({0}, {1})", "[{0}, {1}]"])
def test_a_tuple_is_in_the_order_of_the_arguments(form, tmp_path, function):
    source = function("yield " + form.format("np.ones((2, 4), 'f4')", "np.zeros(2, int)"))
    placed = {"s": (EDGES.knowing(None, 1), NODES.knowing(None, 0))}
    (found,) = chosen(tmp_path, calls.Takes.of(placed), data=source).all
    assert found.shapes == {"nodes": (2, 4), "edges": (2,)}
    with pytest.raises(errors.UsageError, match="does not tell the order of its inputs") as caught:
        chosen(tmp_path, calls.Takes.of({"s": (EDGES, NODES)}), data=source)
    assert caught.value.mend == "yield {'edges': array, 'nodes': array}"


def test_one_array_is_that_of_an_only_input(tmp_path, function):
    source = function("yield np.ones((2, 4), 'f4')")
    assert chosen(tmp_path, calls.Takes.of({"s": (NODES,)}), data=source).all[0].shapes == {"nodes": (2, 4)}
    with pytest.raises(errors.UsageError, match="is one ndarray"):
        chosen(tmp_path, calls.Takes.of({"s": (NODES, EDGES)}), data=source)


def test_items_of_a_signature_that_was_not_asked_for_are_left_aside_and_said(tmp_path, function):
    every = {"a": (NODES,), "b": (EDGES,)}
    source = function("yield 'a', {'nodes': np.ones((2, 4), 'f4')}\nyield 'b', {'edges': np.zeros(3, int)}")
    found = chosen(tmp_path, calls.Takes.of(every, keys=["a"]), data=source)
    assert list(found.calls) == ["a"] and found.given.notes == (
        "items of signatures that were not asked for were left aside: b",
    )
    assert set(chosen(tmp_path, calls.Takes.of(every), data=source).own) == {"a", "b"}
    with pytest.raises(errors.UsageError, match="yields for signature 'b'"):
        chosen(tmp_path, calls.Takes.of({"a": (NODES,)}), data=source)
    with pytest.raises(errors.UsageError, match="yields nothing for b, but for a"):
        chosen(
            tmp_path, calls.Takes.of(every, keys=["b"]), data=function("yield 'a', {'nodes': np.ones((2, 4), 'f4')}")
        )


def test_one_array_for_several_inputs_asks_for_all_by_name(tmp_path):
    np.save(tmp_path / "one.npy", ROWS)
    with pytest.raises(
        errors.UsageError, match=r"one.npy is one array without a name, and the model has 2 inputs \(nodes, edges\)"
    ) as caught:
        chosen(tmp_path, calls.Takes.of({"s": (NODES, EDGES)}), data=str(tmp_path / "one.npy"))
    assert caught.value.mend == "give an .npz with all of them: np.savez('data.npz', nodes=array, edges=array)"


def test_a_function_that_does_not_end_is_refused(tmp_path, function, monkeypatch):
    monkeypatch.setattr(user_calls_job, "MOST_ITEMS", 20)
    with pytest.raises(errors.UsageError, match="yields too much: 20 items of .* GB, and it goes on"):
        chosen(tmp_path, calls.Takes.of({"s": (NODES,)}), data=function("while True:\n    yield np.ones((2, 4), 'f4')"))


def test_a_missing_scalar_is_asked_for_as_an_array_of_rank_0(tmp_path):
    takes = calls.Takes.of(SPECS, SAME)
    with pytest.raises(
        errors.UsageError, match="names x, which fills no signature: serving_default lacks training"
    ) as caught:
        chosen(tmp_path, takes, data=saved(tmp_path / "d.npz", x=ROWS))
    assert "as an array of rank 0, such as training=np.array(False)" in caught.value.mend
    with pytest.raises(errors.UsageError, match=r"shape \[2\] a call") as caught:
        chosen(tmp_path, takes, data=saved(tmp_path / "d.npz", x=ROWS, training=np.zeros(5, bool)))
    assert "array of rank 0" in caught.value.mend
    np.savez(tmp_path / "e.npz", x=ROWS)
    # Of several files each is read for itself.
    for path, words in (("[de].npz", r"has shape \[5\]"), ("[e].npz", "nothing for input 'training'")):
        np.savez(tmp_path / "ee.npz", x=ROWS)
        with pytest.raises(errors.UsageError, match=words) as caught:
            chosen(tmp_path, takes, data=str(tmp_path / path.replace("[e]", "e*")))
        assert "array of rank 0" in caught.value.mend


@pytest.mark.parametrize("kind", ["npz", "csv"])
def test_calibration_data_may_bear_the_name_of_a_twin(tmp_path, kind):
    spec = InputSpec("x", "float32", (None,))
    np.savez(tmp_path / "d.npz", **{"serve/x": np.zeros(8)})
    (tmp_path / "d.csv").write_text("serve/x,other/x\n" + "1,2\n" * 8)
    options = DataOptions(source=str(tmp_path / f"d.{kind}"))
    (batch,) = calibration_data.open(options, "serving_default", [spec], ("serve",))
    assert batch["x"].shape == (8,) and batch["x"].max() == (0 if kind == "npz" else 1)
    if kind == "npz":
        with pytest.raises(errors.UsageError, match="nothing for input 'x'"):
            list(calibration_data.open(options, "serving_default", [spec]))


def test_shapes_that_no_longer_fit_the_signature_are_not_used(tmp_path):
    for shapes, rows in (
        ({"x": [4, 3], "training": []}, [4]),
        ({"x": [4, 9], "training": []}, [1, 8]),
        ({"x": [4, 3]}, [1, 8]),
    ):
        takes = calls.Takes.of(SPECS, SAME, manifest={"signatures": [{"name": "serving_default", "calls": [shapes]}]})
        assert [call.rows for call in chosen(tmp_path, takes).all] == rows


def test_each_signature_knows_where_its_calls_are_from(tmp_path):
    specs = {name: (InputSpec(name, "float32", (None, 2)),) for name in "abcd"}
    takes = calls.Takes.of(specs).with_known({name: [{name: (3, 2)}] for name in "abc"})
    found = chosen(tmp_path, takes, data=saved(tmp_path / "d.npz", a=np.zeros((2, 2))), shapes="b:5x2")
    assert found.origins == {"a": "data", "b": "shapes", "c": "known", "d": "signature"}
    assert found.rows == {"a": 2, "b": 5, "c": 3, "d": 9}
