"""PyTorch programs (.pt2) without PyTorch: what is read of them, what is refused, and the line that says what to install.

The archives are written here, with the entries that torch.export.save writes; tests with PyTorch's own are in test_new_sources.
"""

import copy
import io
import json
import pickle
import zipfile

import pytest

from tftrt_tools.base import errors
from tftrt_tools.base.files import archives
from tftrt_tools.command_line import cli
from tftrt_tools.models.kinds import table
from tftrt_tools.models.kinds.pytorch import program
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.models.sources import kinds
from tftrt_tools.models.sources.source import Source

OPEN = {"as_expr": {"expr_str": "Symbol('s7', positive=True, integer=True)"}}
LEAF = {"type": None, "context": None, "children_spec": []}


def tree(kind, children, context=None):
    return {"type": f"builtins.{kind}", "context": json.dumps(context), "children_spec": children}


def tensor(*sizes, dtype=7, device="cpu"):
    return {
        "dtype": dtype,
        "sizes": [one if isinstance(one, dict) else {"as_int": one} for one in sizes],
        "device": {"type": device, "index": None},
    }


def said(name):
    return {"as_tensor": {"name": name}}


MODEL = {
    "torch_version": "2.14.1",
    "opset_version": {"aten": 10},
    "graph_module": {
        "graph": {
            "nodes": [{"target": "torch.ops.aten.linear.default"}, {"target": "torch.ops.aten.relu.default"}],
            "tensor_values": {
                "p_w": tensor(3, 4),
                "rows": tensor(OPEN, 4),
                "linear": tensor(OPEN, 3),
                "relu": tensor(OPEN, 3),
            },
        },
        "signature": {
            "input_specs": [
                {"parameter": {"arg": {"name": "p_w"}, "parameter_name": "w"}},
                {"user_input": {"arg": said("rows")}},
            ],
            "output_specs": [{"user_output": {"arg": said("linear")}}, {"user_output": {"arg": said("relu")}}],
        },
        "module_call_graph": [
            {
                "fqn": "",
                "signature": {
                    "in_spec": json.dumps([1, tree("tuple", [tree("tuple", [LEAF]), tree("dict", [], [])])]),
                    "out_spec": json.dumps([1, tree("dict", [LEAF, tree("list", [LEAF])], ["scores", "others"])]),
                    "forward_arg_names": ["rows"],
                },
            }
        ],
    },
}


class Harmful:
    def __reduce__(self):
        return print, ("this code ran",)


def saved(content):
    """Bytes as torch.save writes them around a pickle."""
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as file:
        file.writestr("archive/data.pkl", content)
    return raw.getvalue()


def write(path, model=MODEL, **entries):
    """A .pt2 file. entries: {name of an entry with _ for /: content}, more of them."""
    with zipfile.ZipFile(path, "w") as file:
        if model:
            file.writestr("m/models/model.json", json.dumps(model))
        for name, content in entries.items():
            file.writestr(f"m/{name}", content)
    return path


def changed(edit):
    model = copy.deepcopy(MODEL)
    edit(model["graph_module"])
    return model


def sized(text):
    return changed(lambda one: one["graph"]["tensor_values"]["linear"]["sizes"].append({"as_expr": {"expr_str": text}}))


def config(use_pickle, place="weight_0"):
    return json.dumps({"config": {"w": {"path_name": place, "use_pickle": use_pickle}}})


def guarded(text):
    return {**MODEL, "guards_code": [text]}


def called(target):
    return changed(lambda one: one["graph"]["nodes"].append({"target": target, "inputs": []}))


def treed(context):
    """An argument that PyTorch makes out of `context`."""
    spec = json.dumps(
        [
            1,
            tree(
                "tuple",
                [
                    tree("tuple", [{"type": "x", "context": json.dumps(context), "children_spec": [LEAF]}]),
                    tree("dict", [], []),
                ],
            ),
        ]
    )
    return changed(lambda one: one["module_call_graph"][0]["signature"].update(in_spec=spec))


def twice(path):
    write(path, **{"data/weights/model_weights_config.json": config(False)})
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("m/data/WEIGHTS/model_weights_config.json", config(True))


def packed(path):
    with (
        zipfile.ZipFile(write(path), "a", zipfile.ZIP_DEFLATED) as file,
        file.open("m/data/weights/weight_0", "w") as member,
    ):
        for _ in range(40):
            member.write(bytes(1 << 20))


def test_what_a_program_says_of_itself(tmp_path, capsys):
    harmless = pickle.dumps(("ctorch._utils\n_rebuild_tensor_v2\n",), 2)
    path = write(
        tmp_path / "m.pt2",
        **{"data/weights/model_weights_config.json": config(False), "data/sample_inputs/model.pt": saved(harmless)},
    )
    found = program.read(str(path))
    assert [one.text() for one in found.signature.inputs] == ["float32[?,4]"]
    assert [(one.name, one.text()) for one in found.signature.outputs] == [
        ("scores", "float32[?,3]"),
        ("others_0", "float32[?,3]"),
    ]
    assert (
        found.ops == {"aten.linear.default": 1, "aten.relu.default": 1}
        and found.weights == {"float32": 12}
        and found.fed == (True,)
    )
    assert cli.main(["inspect", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "PyTorch program" in shown and "producer: PyTorch 2.14.1" in shown and "rows float32[?,4]" in shown


@pytest.mark.parametrize(
    ("outputs", "names"),
    [
        (LEAF, ["output"]),
        (tree("tuple", [LEAF, LEAF]), ["output_0", "output_1"]),
        (tree("tuple", [LEAF]), ["output"]),
        (tree("dict", [tree("tuple", [LEAF, LEAF]), LEAF], ["a", "b"]), ["a_0", "a_1", "b"]),
    ],
)
def test_names_of_outputs(outputs, names):
    assert program._output_names(outputs) == names


def test_two_outputs_of_one_name_are_refused():
    joined = program._output_names(tree("dict", [LEAF, tree("dict", [LEAF], ["b"])], ["a_b", "a"]))
    with pytest.raises(errors.TftrtError, match="two outputs of the program are called 'a_b'"):
        program._check_names("outputs", [InputSpec(name, "float32", None) for name in joined])
    program._check_names("outputs", [InputSpec(name, "float32", None) for name in ("a", "b")])


def test_names_of_arguments():
    spec = tree("tuple", [tree("tuple", [LEAF, tree("list", [LEAF, LEAF])]), tree("dict", [LEAF], ["mask"])])
    assert program._argument_names(spec, ["rows", "pair", "mask"]) == ["rows", "pair_0", "pair_1", "mask"]


CUT = "is truncated"
BAD = {
    "empty": (lambda path: path.write_bytes(b""), errors.TftrtError, "is empty"),
    "cut": (lambda path: path.write_bytes(write(path).read_bytes()[:-40]), errors.TftrtError, CUT),
    "text": (lambda path: path.write_text("hello"), errors.TftrtError, "is no PyTorch program, whatever its name says"),
    "pickle": (
        lambda path: path.write_bytes(pickle.dumps(Harmful())),
        errors.UsageError,
        "is a pickle (torch.save), which runs the code",
    ),
    "torch.save": (
        lambda path: write(path, None, **{"data.pkl": pickle.dumps(Harmful())}),
        errors.UsageError,
        "is a pickle (torch.save)",
    ),
    "TorchScript": (
        lambda path: write(path, None, **{"code/m.py": "", "data.pkl": ""}),
        errors.UsageError,
        "is a TorchScript program",
    ),
    "another archive": (
        lambda path: write(path, None, readme=""),
        errors.TftrtError,
        "is an archive, and no PyTorch program",
    ),
    "another name": (
        lambda path: write(path, None, **{"models/two.json": "{}"}),
        errors.UsageError,
        "holds no program called model, but models/two",
    ),
    "no JSON": (lambda path: write(path, None, **{"models/model.json": "{"}), errors.TftrtError, "is damaged"),
    "no graph": (lambda path: write(path, {"graph_module": {}}), errors.TftrtError, "is damaged ('graph')"),
    "a pickled weight": (
        lambda path: write(path, **{"data/weights/model_weights_config.json": config(True)}),
        errors.UsageError,
        "runs code when PyTorch loads it: w is a pickle",
    ),
    "harmful inputs": (
        lambda path: write(path, **{"data/sample_inputs/model.pt": saved(pickle.dumps(Harmful(), 2))}),
        errors.UsageError,
        "model.pt names __builtin__ print",
    ),
    "harmful new pickle": (
        lambda path: write(path, **{"data/sample_inputs/model.pt": saved(pickle.dumps(Harmful(), 4))}),
        errors.UsageError,
        "model.pt names a function (STACK_GLOBAL)",
    ),
    "compiled": (
        lambda path: write(path, **{"data/aotinductor/model/a.so": ""}),
        errors.UsageError,
        "a.so is compiled code",
    ),
    "a size that calls": (
        lambda path: write(path, sized("exec('import os')")),
        errors.UsageError,
        "is no plain expression",
    ),
    "a size that reaches": (
        lambda path: write(path, sized("Symbol('s').func")),
        errors.UsageError,
        "is no plain expression",
    ),
    "a size with a text": (
        lambda path: write(path, sized("S('ev'+'al'+'(1)')")),
        errors.UsageError,
        "is no plain expression",
    ),
    "a size of two lines": (
        lambda path: write(path, sized("Symbol('s7')\\nimport os")),
        errors.UsageError,
        "is no plain expression",
    ),
    "a condition that calls": (
        lambda path: write(path, guarded("open('x', 'w')")),
        errors.UsageError,
        "is no plain one of shapes",
    ),
    "a condition of two lines": (
        lambda path: write(path, guarded("True)\n  import os\n  (True")),
        errors.UsageError,
        "is no plain one of shapes",
    ),
    "a condition that reaches": (
        lambda path: write(path, guarded("L['x'].size.__globals__")),
        errors.UsageError,
        "is no plain one of shapes",
    ),
    "an opaque object": (
        lambda path: write(path, **{"data/constants/model_constants_config.json": config(False, "opaque_obj_0")}),
        errors.UsageError,
        "w is a pickle",
    ),
    "an object of TorchScript": (
        lambda path: write(path, **{"data/constants/model_constants_config.json": config(False, "custom_obj_0")}),
        errors.UsageError,
        "w is a pickle",
    ),
    "old constants": (
        lambda path: write(path, **{"data/constants/model.pt": saved(pickle.dumps(Harmful(), 2))}),
        errors.UsageError,
        "names __builtin__ print",
    ),
    "old weights": (
        lambda path: write(path, **{"data/Weights/model.PT": saved(pickle.dumps(Harmful(), 2))}),
        errors.UsageError,
        "names __builtin__ print",
    ),
    "an op of Python": (lambda path: write(path, called("torch.hub.load")), errors.UsageError, "is none of tensors"),
    "an op of files": (
        lambda path: write(path, called("torch.ops.aten.from_file.default")),
        errors.UsageError,
        "is none of tensors",
    ),
    "an enum": (
        lambda path: write(path, treed({"__enum__": True, "fqn": "evil:Kind", "name": "A"})),
        errors.UsageError,
        "an argument is of evil:Kind",
    ),
    "a defaultdict": (
        lambda path: write(
            path, treed({"default_factory_module": "evil", "default_factory_name": "make", "dict_context": []})
        ),
        errors.UsageError,
        "an argument is of evil",
    ),
    "a context in a text": (
        lambda path: write(path, treed(json.dumps({"__enum__": True, "fqn": "evil:Kind"}))),
        errors.UsageError,
        "is of evil:Kind",
    ),
    "two entries of one name": (twice, errors.TftrtError, "two entries of one name"),
    "deep JSON": (
        lambda path: write(path, None, **{"models/model.json": "[" * 100_000}),
        errors.TftrtError,
        "nested too deeply",
    ),
    "a bomb": (packed, errors.TftrtError, "would unpack to"),
    "an int input": (
        lambda path: write(
            path, changed(lambda one: one["signature"]["input_specs"][1]["user_input"].update(arg={"as_int": 1}))
        ),
        errors.TftrtError,
        "input 'rows' of the program is no tensor (as_int)",
    ),
    "bfloat16": (
        lambda path: write(
            path, changed(lambda one: one["graph"]["tensor_values"].update(rows=tensor(OPEN, 4, dtype=13)))
        ),
        errors.TftrtError,
        "input 'rows' of the program is bfloat16",
    ),
    "missing": (lambda path: None, errors.UsageError, "no such file"),
}


@pytest.mark.parametrize("name", BAD)
def test_files_that_cannot_be_loaded_are_told_in_a_line(name, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(archives, "_UNPACKED_BYTES", 1 << 24)
    make, kind, cause = BAD[name]
    path = tmp_path / "m.pt2"
    make(path)
    with pytest.raises(kind) as refused:
        program.read(str(path))
    assert type(refused.value) is kind and cause in refused.value.cause and refused.value.mend
    assert "this code ran" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "text",
    [
        "L['x'].size()[0] >= 2",
        "2 <= L['a.b'][0].size()[1]",
        "Ne(L['x'].size()[0], 1)",
        "L['x'].size()[1] % 2 == 0",
        "not (L['x'].storage_offset() == 0)",
        "max(1, L['x'].shape[0]) * 2.5 < 7",
        "Eq(Mod(L['x'].size()[0], 8), 0)",
    ],
)
def test_conditions_of_shapes_are_plain(text):
    assert program._is_guard(text)


@pytest.mark.parametrize(
    "text",
    [
        "Symbol('s7', positive=True, integer=True)",
        'Mul(Integer(2), Symbol("s0", integer=True))',
        "Max(1, Symbol('s1'))",
        "FloorDiv(Symbol('s0'), 2) + 1",
        "2*s0 - 1",
        "Eq(Mod(s0, 8), 0)",
        "floor(s0/2)",
        "Pow(Symbol('u0'), -1)",
    ],
)
def test_sizes_are_plain_expressions(text):
    assert program._is_expression(text)


@pytest.mark.parametrize(
    "target",
    [
        "torch.ops.aten.linear.default",
        "_operator.getitem",
        "torch.ops.higher_order.cond",
        "torch.sym_max",
        "math.trunc",
        "torch._sym_sqrt",
        "torch.fx.experimental.symbolic_shapes.cast_symbool_to_symint_guardless",
    ],
)
def test_ops_of_tensors_and_sizes_are_taken(target, tmp_path):
    assert program.read(str(write(tmp_path / "m.pt2", called(target)))).fed == (True,)


def test_who_trusts_a_file_may_load_it(tmp_path):
    path = write(tmp_path / "m.pt2", **{"data/weights/model_weights_config.json": config(True)})
    assert program.read(str(path), unsafe=True).fed == (True,)


@pytest.mark.parametrize(
    ("model", "flags", "cause", "mend"),
    [
        (
            changed(
                lambda one: one["signature"]["output_specs"].insert(
                    0, {"buffer_mutation": {"arg": {"name": "x"}, "buffer_name": "n.mean"}}
                )
            ),
            {},
            "changes its buffers (n.mean) in each call",
            "module.eval()",
        ),
        (
            changed(
                lambda one: one["graph"]["nodes"].append(
                    {
                        "target": "torch.ops.aten.dropout.default",
                        "inputs": [{"name": "train", "arg": {"as_bool": True}}],
                    }
                )
            ),
            {},
            "is a module in training: its aten.dropout.default",
            "module.eval()",
        ),
        (
            changed(lambda one: one["graph"]["tensor_values"].update(p_w=tensor(3, 4, device="cuda"))),
            {},
            "for another device (cuda)",
            "module.cpu()",
        ),
        (MODEL, {"inputs": ("a",)}, "--inputs has no effect", "leave it out"),
    ],
)
def test_programs_that_cannot_be_exported_are_told_in_a_line(model, flags, cause, mend, tmp_path):
    path = write(tmp_path / "m.pt2", model)
    with pytest.raises(errors.UsageError) as refused:
        table.kind(str(path)).check(Source(path=str(path), **flags), False)
    assert cause in refused.value.cause and mend in refused.value.mend


def test_a_missing_package_is_a_line_that_says_what_to_install(tmp_path, capsys, monkeypatch):
    import importlib.util

    real = importlib.util.find_spec
    path = str(write(tmp_path / "m.pt2"))
    for package, title in (("torch", "PyTorch"), ("onnxscript", "onnxscript")):
        monkeypatch.setattr(
            "importlib.util.find_spec",
            lambda name, missing=package: (
                None if name == missing else object() if name in ("torch", "onnxscript") else real(name)
            ),
        )
        for source in (path, "some.module:function"):
            assert cli.main(["export", source, f"--output={tmp_path / 'm.onnx'}"]) == 1
            cause, mend = capsys.readouterr().err.splitlines()
            assert f"{title}, which an export needs, is not installed" in cause and "'.[export-torch]'" in mend
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name in ("torch", "tensorflow") else real(name)
    )
    assert cli.main(["verify", path, path]) == 1
    assert "PyTorch, which runs" in capsys.readouterr().err
    assert cli.main(["export", str(tmp_path), f"--output={tmp_path / 'm.onnx'}"]) == 1
    assert "TensorFlow, which an export needs, is not installed" in capsys.readouterr().err
    assert not (tmp_path / "m.onnx").exists()


def test_a_program_is_not_converted(tmp_path, capsys):
    path = write(tmp_path / "m.pt2")
    assert cli.main(["convert", f"--model={path}", f"--output={tmp_path / 'out'}"]) == 2
    cause, mend = capsys.readouterr().err.splitlines()
    assert "is a PyTorch program" in cause and "`tftrt export`" in mend


def test_an_old_pickle_is_refused_with_the_way_to_a_program(tmp_path, capsys):
    (tmp_path / "m.pt").write_bytes(pickle.dumps(Harmful()))
    assert cli.main(["export", str(tmp_path / "m.pt"), f"--output={tmp_path / 'm.onnx'}"]) == 2
    shown = capsys.readouterr()
    cause, mend = shown.err.splitlines()
    assert (
        "a PyTorch file, which runs the code" in cause
        and "torch.export.save" in mend
        and "this code ran" not in shown.out
    )


@pytest.mark.parametrize(
    ("path", "taken"),
    [
        ("a.pt2", True),
        ("nets:small", True),
        ("pkg.nets:Small", True),
        ("a.onnx", False),
        ("model", False),
        ("localhost:8500", False),
        ("a/b:c", False),
        ("a.pt", False),
    ],
)
def test_paths_of_the_kind(path, taken):
    assert (table.kind(kinds.resolved(path)).name == program.FORM) is taken
