"""`tftrt table`, as someone types it who has a calibration file or a table of TensorRT."""

import json
import re

import pytest

from tests.calibration_tables import HEADER, WRITTEN, calibration, engine
from tests.command_line import assert_clear
from tftrt_tools.command_line import cli
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.tftrt.calibration import file, table

CONV, RELU = "StatefulPartitionedCall/model/c1/Conv2D", "StatefulPartitionedCall/model/r1/Relu"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with one.table (TensorRT's text), a.json and b.json (two engines each), where the commands run."""
    (tmp_path / "one.table").write_text(WRITTEN)
    a = calibration(
        engine("sha256:s1", "E_0", (("m/const", "constant"),), **{"m/in": 0.5, "m/relu": 0.25}),
        engine("sha256:s2", "E_1", **{"n/in": 1.0}),
    )
    b = calibration(
        engine("sha256:s1", "F_0", **{"m/in": 0.5, "m/relu": 0.5, "m/new": 1.0}),
        engine("sha256:s2", "F_1", **{"n/in": 2.0}),
    )
    a.write(tmp_path / "a.json")
    b.write(tmp_path / "b.json")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(here, capfd):
    """A function (*arguments) -> (exit code, stdout), with nothing on stderr unless stdout is JSON."""

    def call(*arguments):
        code = cli.main(["table", *arguments])
        said = capfd.readouterr()
        assert said.err == "" or "--json=-" in arguments, said.err
        return code, said.out

    return call


def lines(text):
    """Lines without the layout: words parted by one blank."""
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def tensors(text):
    """The last column of the first table, in order."""
    rows = re.split(r"─{5,}", text)[1].splitlines()[1:]
    return [re.split(r"\s{2,}", row.strip())[-1] for row in rows[: [*map(str.strip, rows), ""].index("")]]


def test_show_lists_what_a_table_of_tensorrt_holds(run):
    code, out = run("show", "one.table")
    assert code == 0 and "one.table: a table of TensorRT 8.5.3; made from which model and data is not known" in out
    assert f"Table ({HEADER})" in out and "7 tensors" in lines(out)
    assert "0.795559 0.00626424 StatefulPartitionedCall/model/c1/Conv2D" in lines(out)
    assert "0.321255 0.00252956 (Unnamed Layer* 10) [Shuffle]_output" in lines(out)


def test_show_says_where_a_calibration_comes_from_and_what_was_left_out(run):
    code, out = run("show", "a.json")
    assert code == 0
    assert "a.json: entropy (toolkit), TensorRT 8.5.3, TensorFlow 2.14.1, by tftrt-tools 0 on 2026-01-01" in out
    assert "model /m sha256:mm" in out and "data: 10 samples in batches of 5 of a.npz" in out
    assert f"E_0, serving_default ({HEADER})" in out and f"E_1, serving_default ({HEADER})" in out
    assert "m/const constant" in lines(out) and "Left out: layers that need them stay out of INT8" in out


def test_show_in_the_three_orders(run):
    graph = list(table.parse(WRITTEN).scales)
    assert tensors(run("show", "one.table")[1]) == graph
    assert tensors(run("show", "one.table", "--sort=name")[1]) == sorted(graph)
    assert tensors(run("show", "one.table", "--sort=scale")[1])[:4] == [*graph[:2], RELU, CONV]


def test_show_filters_by_whole_names(run):
    code, out = run("show", "one.table", "--filter=.*/(Relu|Conv2D)")
    assert code == 0 and tensors(out) == [CONV, RELU] and "7 tensors, 5 hidden by --filter" in out


def test_show_one_engine(run):
    code, out = run("show", "a.json", "--engine=E_1")
    assert code == 0 and tensors(out) == ["n/in"] and "E_0" not in out


def test_show_a_converted_models_calibration(run, here):
    passport.write("model", passport.CALIBRATION, file.read("a.json").to_dict())
    assert tensors(run("show", "model", "--engine=E_0")[1]) == ["m/in", "m/relu"]


def test_show_gives_tensorrt_its_own_text(run, here):
    assert run("show", "one.table", "--format=tensorrt") == (0, WRITTEN)
    code, out = run("show", "a.json", "--engine=E_0", "--format=tensorrt", "--output=e0.table")
    assert code == 0 and out == f"written: {here / 'e0.table'}\n"
    assert (here / "e0.table").read_text() == f"{HEADER}\nm/in: 3f000000\nm/relu: 3e800000\n"


def test_diff_names_each_tensor_that_differs_and_sums_up(run):
    code, out = run("diff", "a.json", "b.json")
    assert code == 0 and "A: a.json" in lines(out) and "B: b.json" in lines(out)
    assert {"E_0 0.25 0.5 2 m/relu", "E_1 1 2 2 n/in", "E_0 1 m/new (only in B)"} <= set(lines(out))
    assert "3 tensors in both, 1 of them equal; 0 only in A, 1 only in B" in lines(out)
    assert "B / A: median 2, 5th to 95th percentile 1.07177 to 2, standard deviation 0.471405 octaves (log2)" in lines(
        out
    )
    assert "worst: 2 at m/relu" in lines(out) and lines(out)[-1] == "DIFFERENT"


def test_diff_check_fails_where_they_differ_and_only_there(run):
    assert run("diff", "a.json", "b.json", "--check")[0] == 3
    code, out = run("diff", "a.json", "a.json", "--check")
    assert code == 0 and lines(out)[-1] == "EQUAL" and "worst" not in out


def test_merge_takes_the_larger_scales_and_keeps_the_story(run, here):
    code, out = run("merge", "a.json", "b.json", "--how=max", "--output=both.json")
    assert (
        code == 0
        and "2 files merged by --how=max: 2 engines, 4 tensors, 1 left out" in out
        and f"written: {here / 'both.json'}" in out
    )
    assert "warning: the merged calibrations share data" in out
    merged = file.read("both.json")
    assert [one.table.scales for one in merged.engines] == [{"m/in": 0.5, "m/relu": 0.5, "m/new": 1.0}, {"n/in": 2.0}]
    shown = run("show", "both.json")[1]
    assert (
        re.search(r"merged by --how=max of a.json, b.json on 20\d\d-", shown) and "both.json: merged (toolkit)" in shown
    )


def test_edit_prints_what_changed(run, here):
    code, out = run(
        "edit", "one.table", "--output=new.json", "--remove=.*Conv2D.*", f"--set={RELU}=6", "--scale=TensorRT.*=2"
    )
    assert code == 0 and "5 tensors changed" in lines(out) and f"written: {here / 'new.json'}" in out
    assert {f"0.795559 removed {CONV}", f"0.82958 6 {RELU}", "0.211483 0.422965 TensorRTOutputPH_0"} <= set(lines(out))
    shown = lines(run("show", "new.json")[1])
    assert f"{CONV} removed by hand" in shown and f"6 0.0472441 {RELU}" in shown
    assert any(line.startswith("edited from one.table on ") for line in shown)


def test_edit_can_repeat_its_flags_and_name_the_engine(run):
    code, out = run("edit", "a.json", "--output=a.json", "--engine=E_0", "--scale=m/in=2", "--scale=m/relu=4")
    assert code == 0 and [one.table.scales for one in file.read("a.json").engines] == [
        {"m/in": 1.0, "m/relu": 1.0},
        {"n/in": 1.0},
    ]
    assert "engine" not in out


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (("show", "a.json", "--filter=m/.*"), "calibration_listing"),
        (("diff", "a.json", "b.json"), "calibration_difference"),
        (("merge", "a.json", "b.json", "--how=mean", "--output=x.json"), "calibration"),
        (("edit", "a.json", "--remove=m/in", "--output=x.json"), "calibration_edit"),
        (("show", "one.table", "--format=tensorrt", "--output=x.table"), "calibration_listing"),
    ],
)
def test_json_on_stdout_is_json_alone_and_in_a_file_the_same(run, here, arguments, kind):
    code, out = run(*arguments, "--json=-")
    assert code == 0 and json.loads(out)["kind"] == kind
    assert (
        run(*arguments, "--json=result.json")[0] == 0 and json.loads((here / "result.json").read_text())["kind"] == kind
    )


def test_json_of_show_has_ranges_and_keeps_the_order(run):
    shown = json.loads(run("show", "one.table", "--sort=scale", "--json=-")[1])
    assert shown["source"] == "one.table" and shown["method"] == "entropy2"
    first = shown["engines"][0]["tensors"][0]
    assert first["name"] == "TensorRTInputPH_0" and first["range"] == first["scale"] * 127


WRONG = {
    "nothing": ((), "usage: tftrt table show|diff|merge|edit"),
    "a mistyped subcommand": (("shwo", "a.json"), "did you mean `tftrt table show`?"),
    "an unknown subcommand": (("frobnicate",), "no `tftrt table frobnicate`"),
    "no file": (("show",), "usage: tftrt table show FILE"),
    "two files": (("show", "a.json", "b.json"), "2 given"),
    "one file to diff": (("diff", "a.json"), "usage: tftrt table diff A B"),
    "nothing to merge": (("merge", "--how=max", "--output=x"), "no file given"),
    "a file that is not there": (("show", "c.json"), "no such file or directory: c.json"),
    "a model without calibration": (("show", "."), "holds no assets.extra/tftrt/calibration.json"),
    "a mistyped flag": (("show", "a.json", "--fliter=x"), "filter"),
    "a flag of another subcommand": (("show", "a.json", "--how=max"), "`tftrt table merge` does"),
    "a flag of two others": (
        ("diff", "a.json", "b.json", "--engine=E_0"),
        "`tftrt table show` and `tftrt table edit` do",
    ),
    "an unknown order": (("show", "a.json", "--sort=size"), "graph|scale|name"),
    "an unknown way to merge": (("merge", "a.json", "b.json", "--how=most", "--output=x"), "max|min|mean|median|first"),
    "no way to merge": (("merge", "a.json", "b.json", "--output=x"), "--how=max, --how=min"),
    "no output of merge": (("merge", "a.json", "b.json", "--how=max"), "no --output=FILE"),
    "no output of edit": (("edit", "a.json", "--remove=m/in"), "no --output=FILE"),
    "an output that is a directory": (("edit", "a.json", "--remove=m/in", "--output=."), "is a directory"),
    "a filter that matches a part only": (("show", "a.json", "--filter=relu"), "did you mean --filter='.*relu.*'?"),
    "a filter without a match": (("show", "a.json", "--filter=zzz"), "tensors here: m/in, m/relu"),
    "a mistyped engine": (("show", "a.json", "--engine=E_2"), "did you mean E_1 or E_0?"),
    "an engine of a plain table": (("show", "one.table", "--engine=E_0"), "leave --engine out"),
    "a mistyped tensor": (("edit", "a.json", "--output=x", "--set=m/rleu=6"), "did you mean m/relu"),
    "a range that is none": (("edit", "a.json", "--output=x", "--set=m/relu"), "NAME=RANGE"),
    "nothing to edit": (("edit", "a.json", "--output=x"), "nothing to change"),
    "one of several tables": (("show", "a.json", "--format=tensorrt"), "--engine=E_0 or --engine=E_1"),
    "a part of a table for TensorRT": (
        ("show", "one.table", "--format=tensorrt", "--filter=.*Relu"),
        "the whole table is written",
    ),
    "an output of show alone": (("show", "a.json", "--output=x"), "--output goes with --format=tensorrt"),
    "two texts on stdout": (("show", "one.table", "--format=tensorrt", "--json=-"), "name an --output=FILE"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_can_never_work_is_said_in_one_line_and_writes_nothing(name, here, capfd, tmp_path):
    arguments, says = WRONG[name]
    before = sorted(tmp_path.iterdir())
    code = cli.main(["table", *arguments])
    said = capfd.readouterr()
    assert code == 2 and says in said.err and said.out == "", said.err
    assert re.match(r"tftrt: error: [^\n]+\n  [^\n]+\n$", said.err), said.err
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ("edit", "a.json", "--remove=m/in"),
        ("merge", "a.json", "b.json", "--how=max"),
        ("show", "one.table", "--format=tensorrt"),
    ],
)
def test_what_is_no_table_is_not_replaced(arguments, here, capfd):
    (here / "rows.npz").write_bytes(b"PK of some rows")
    assert cli.main(["table", *arguments, "--output=rows.npz"]) == 2
    assert "--output=rows.npz is there, and is no table" in capfd.readouterr().err
    assert (here / "rows.npz").read_bytes() == b"PK of some rows"
    # A table is, as it was.
    assert cli.main(["table", *arguments, "--output=new"]) == cli.main(["table", *arguments, "--output=new"]) == 0


def test_files_that_do_not_go_together_end_with_1(here, capfd):
    assert cli.main(["table", "merge", "a.json", "one.table", "--how=max", "--output=x"]) == 1
    assert "a.json and one.table were made for different graphs" in capfd.readouterr().err and not (here / "x").exists()


def test_a_damaged_file_is_named_with_its_line(tftrt, here):
    (here / "bad.table").write_text(f"{HEADER}\na: 3c03\n")
    assert_clear(tftrt("table", "show", "bad.table", cwd=here), 1, "bad.table, line 2: '3c03' is no scale of 'a'")


def test_help_explains_the_subcommands(tftrt):
    said = tftrt("table", "show", "--help")
    assert said.returncode == 0 and all(
        f"tftrt table {name} " in said.stdout for name in ("show", "diff", "merge", "edit")
    )
