"""What FP16 leaves in FP32: numbers that are only moved, counts, and what keeps from zero. The graphs run with FP16's rounding, on the
values that it would harm."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser, shape_inference

from tftrt_tools.tensorrt.exporting.job import half, onnx_ranges

RNG = np.random.default_rng(3)


def graph(text, opset=16, integers=(), **values):
    """A model from ONNX's text form, with constants; whole numbers are those of `integers`."""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]>\n{text}')
    for number, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{number}"
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(value, np.int64 if name in integers else np.float32), name)
        for name, value in values.items()
    )
    return shape_inference.infer_shapes(model, check_type=True, data_prop=True)


def answers(model, x, **more):
    """(Of the graph, of the same in FP16, {op: the reasons of those in FP32})."""
    made, bits = (half.convert(model, (), {}, simulated=one) for one in (True, False))
    onnx.checker.check_model(bits.model, full_check=True)
    onnx_ranges.Session(bits.model)
    feed = {"x": np.asarray(x, np.float32), **more}
    return onnx_ranges.Session(model).run(feed), onnx_ranges.Session(made.model).run(feed), made.nodes


TIMES = np.array([[1.7e9, 2049.0, 4097.0, 100003.0]], np.float32)
INTEGERS = ("s", "i", "a", "p", "t", "one", "parts")
# Each moves x, which is float32[N,4], to an output.
MOVED = [
    "y = Identity(x)",
    "y = Reshape(x, s)",
    "y = Flatten(x)",
    "y = Transpose <perm: ints = [1, 0]> (x)",
    "y = Slice(x, a, p, one)",
    "y = Gather <axis: int = 1> (x, i)",
    "y = Concat <axis: int = 0> (x, x)",
    "y, z = Split <axis: int = 1> (x, parts)",
    "y = Pad(x, t)",
    "u = Unsqueeze(x, a) y = Squeeze(u, a)",
    "y = Expand(x, t4)",
    "y = Tile(x, t2)",
    "b = Greater(x, k) y = Where(b, x, k)",
    "v = Gather <axis: int = 1> (x, i) h = Reshape(v, s) y = Identity(h)",
    "r = Relu(k4) c = Concat <axis: int = 0> (x, r) y = Transpose <perm: ints = [1, 0]> (c)",
    "u = Unsqueeze(x, a) y = Resize(u, , sc)",
    "f = Reshape(x, s) c = Cast <to: int = 7> (f) y = Cast <to: int = 1> (c)",
]


@pytest.mark.parametrize("opset", [13, 16, 18])
@pytest.mark.parametrize("nodes", MOVED)
def test_what_is_only_moved_from_an_input_to_an_output_stays(nodes, opset):
    outputs = (
        "float[M,K] y, float[N,O] z" if " z" in nodes else "float y" if nodes.startswith("f =") else "float[A,B] y"
    )
    outputs = outputs if "Resize" not in nodes and "s)" not in nodes and "i)" not in nodes else "y"
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": {opset}]> g (float[N,4] x) => (float[N,3] score) {{ {nodes} m = MatMul(x, w) score = Softmax(m) }}'
    )
    for number, node in enumerate(model.graph.node):
        node.name = f"{node.op_type}_{number}"
    constants = {"w": RNG.normal(size=(4, 3)), "k": 0.0, "k4": np.ones((1, 4)), "sc": [1.0, 2, 2]}
    whole = {
        "s": [-1],
        "i": [0, 3],
        "a": [0],
        "p": [1],
        "t": [0, 0, 0, 1],
        "one": [1],
        "parts": [1, 3],
        "t4": [1, 4],
        "t2": [1, 2],
    }
    model.graph.initializer.extend(
        [
            *(numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in constants.items()),
            *(numpy_helper.from_array(np.asarray(value, np.int64), name) for name, value in whole.items()),
        ]
    )
    known = {one.name: one for one in shape_inference.infer_shapes(model, data_prop=True).graph.value_info}
    model.graph.output.extend(known[name] for name in ("y", "z") if name in known)
    model = shape_inference.infer_shapes(model, check_type=True, data_prop=True)
    plain, rounded, listed = answers(model, TIMES)
    assert np.array_equal(plain["y"], rounded["y"]), [(one.name, one.reason) for one in listed]
    assert {one.op: one.precision for one in listed}["MatMul"] == "FP16"


def test_what_is_moved_to_or_from_fp16_is_in_fp16():
    model = graph(
        "g (float[N,4,1] x) => (float[N,5] y) { r = Squeeze(x, one) m = MatMul(r, w) y = Transpose <perm: ints = [0, 1]> (m) }",
        integers=("one",),
        one=[2],
        w=RNG.normal(size=(4, 5)),
    )
    assert [one.precision for one in half.convert(model, (), {}).nodes] == ["FP16"] * 3


def test_a_branch_and_a_loop_move_what_they_read_from_outside():
    text = """g (float[N,4] x, bool b, int64 n) => (float[N,4] y, float[N,4] z) {
        r = Reshape(x, s)
        y = If(b) <then_branch = t () => (float[N,4] u) { u = Identity(r) }, else_branch = e () => (float[N,4] u) { u = Mul(r, r) }>
        z = Loop(n, , x) <body = d (int64 k, bool more, float[N,4] v) => (bool on, float[N,4] w) { on = Identity(more) w = Identity(v) }> }"""
    model = graph(text, integers=("s",), s=[-1, 4])
    plain, rounded, _ = answers(model, TIMES, b=np.array(True), n=np.array(2))
    assert np.array_equal(plain["y"], rounded["y"]) and np.array_equal(plain["z"], rounded["z"])


def test_ids_that_come_from_integers_stay_whole():
    text = """g (float[N,4096] x) => (float[N,2] y, float[N,1] z) { k = ArgMax <axis: int = 1> (x) f = Cast <to: int = 1> (k) h = Mul(f, two) o = Add(h, one)
        e = Exp(x) m = ReduceMax <axes: ints = [1]> (e) y = Concat <axis: int = 1> (m, o) z = Floor(o) }"""
    x = np.zeros((2, 4096), np.float32)
    x[0, 2049], x[1, 4001] = 1, 2
    plain, rounded, listed = answers(graph(text, two=2.0, one=1.0), x)
    assert (rounded["y"][:, 1] == [4099, 8003]).all() and (rounded["z"] == plain["z"]).all()
    assert {one.op for one in listed if one.precision == "FP16"} == {"Exp", "ReduceMax"}


# (nodes from x [N,64], constants): each keeps from zero; exact zeros, numbers next to zero, and others.
GUARDS = {
    "log max": ("p = Mul(x, x) m = Max(p, e) y = Log(m)", 1e-12),
    "log clip": ("p = Mul(x, x) m = Clip(p, e) y = Log(m)", 1e-10),
    "log add": ("p = Mul(x, x) m = Add(p, e) y = Log(m)", 1e-7),
    "log where": ("p = Mul(x, x) b = Less(p, e) m = Where(b, e, p) y = Log(m)", 1e-12),
    "log mel": ("p = Pow(x, two) q = MatMul(p, w) m = Max(q, e) l = Log(m) y = Mul(l, two)", 1e-10),
    "log of a squared magnitude": (
        "p = Mul(x, x) q = MatMul(p, w) u = Sqrt(q) r = Reshape(u, s) v = Mul(r, r) m = Add(v, e) y = Log(m)",
        1e-10,
    ),
    "log of a scaled clamp": ("p = Mul(x, x) m = Max(p, e) h = Mul(m, two) y = Log(h)", 1e-12),
    "log of a moved clamp": ("p = Mul(x, x) m = Max(p, e) r = Reshape(m, s) y = Log(r)", 1e-12),
    "log of a clamp with two bounds": ("a = Abs(x) m = Max(a, e) u = Min(m, two) y = Log(u)", 1e-7),
    "log of a pooled clamp": (
        "a = Abs(x) m = Max(a, e) r = Reshape(m, s4) q = AveragePool <kernel_shape: ints = [1, 1]> (r) u = Reshape(q, s) y = Log(u)",
        1e-7,
    ),
    "filled with an epsilon": (
        "a = Abs(x) h = Shape(x) c = ConstantOfShape <value: tensor = float[1] {1e-9}> (h) m = Add(a, c) y = Div(x, m)",
        0.0,
    ),
    "rsqrt": ("p = Mul(x, x) m = Add(p, e) s2 = Sqrt(m) r = Reciprocal(s2) y = Mul(x, r)", 1e-12),
    "power": ("p = Mul(x, x) m = Max(p, e) r = Pow(m, mh) y = Mul(x, r)", 1e-12),
    "quotient": ("a = Abs(x) s2 = ReduceSum <keepdims: int = 1> (a, one) m = Add(s2, e) y = Div(x, m)", 1e-12),
    "l2": (
        "n = ReduceL2 <axes: ints = [1], keepdims: int = 1> (x) c = Clip(n, e) q = Expand(c, f) y = Div(x, q)",
        1e-12,
    ),
    "l2 of squares": (
        "p = Mul(x, x) s2 = ReduceSum <keepdims: int = 1> (p, one) m = Max(s2, e) q = Sqrt(m) y = Div(x, q)",
        1e-12,
    ),
    "epsilons of channels": ("p = Mul(x, x) m = Add(p, e64) q = Sqrt(m) y = Div(x, q)", 1e-12),
    "layer norm": (
        "u = ReduceMean <axes: ints = [1]> (x) d = Sub(x, u) p = Pow(d, two) v = ReduceMean <axes: ints = [1]> (p) m = Add(v, e) q = Sqrt(m) y = Div(d, q)",
        1e-12,
    ),
    "clamp in a branch": (
        "p = Mul(x, x) m = If(b) <then_branch = t () => (float[N,64] c) { c = Max(p, e) }, else_branch = f () => (float[N,64] c) { c = Max(p, e) }> y = Log(m)",
        1e-12,
    ),
}


@pytest.mark.parametrize("name", GUARDS)
def test_what_keeps_from_zero_does_so_in_fp16(name):
    nodes, epsilon = GUARDS[name]
    inputs = "float[N,64] x, bool b" if "If(b)" in nodes else "float[N,64] x"
    model = graph(
        f"g ({inputs}) => (float[N,64] y) {{ {nodes} }}",
        integers=("one", "s", "f", "s4"),
        e=epsilon,
        e64=np.full(64, epsilon),
        two=2.0,
        mh=-0.5,
        w=np.abs(RNG.normal(size=(64, 64))),
        one=[1],
        s=[0, 64],
        f=[1, 64],
        s4=[0, 1, 1, 64],
    )
    x = np.concatenate([np.zeros((1, 64)), np.full((1, 64), 1e-4), np.full((1, 64), 3e-6), RNG.normal(size=(2, 64))])
    plain, rounded, listed = answers(model, x, **({"b": np.array(True)} if "If(b)" in nodes else {}))
    assert np.isfinite(rounded["y"]).all() and rounded["y"] == pytest.approx(plain["y"], rel=5e-3, abs=2e-2), [
        (one.name, one.reason) for one in listed
    ]


def test_the_logarithm_of_a_spectrum_keeps_quiet_frequencies_beside_a_loud_one():
    length = 256
    time = np.arange(length)
    turns = 2 * np.pi * np.outer(time, np.arange(length // 2)) / length
    text = """g (float[N,256] x) => (float[N,8] y) {
        r = MatMul(x, cosines) i = MatMul(x, sines) p = Mul(r, r) q = Mul(i, i) a = Add(p, q) s = Sqrt(a) n = Mul(s, scale)
        w = Pow(n, two) m = Add(w, e) l = Log(m) c = Max(l, low) y = MatMul(c, k) }"""
    model = graph(
        text,
        cosines=np.cos(turns),
        sines=np.sin(turns),
        scale=0.5,
        two=2.0,
        e=1e-6,
        low=-30.0,
        k=RNG.normal(size=(128, 8)),
    )
    # A tone of one frequency, and silence in the others; windowed, as an analysis does it.
    loud = np.hanning(length) * np.sin(2 * np.pi * 9 * time / length) * RNG.uniform(0.2, 0.9, (4, 1))
    plain, rounded, listed = answers(model, loud)
    kept = {one.name: one.reason for one in listed if one.precision == "FP32"}
    between = {"MatMul_0", "MatMul_1", "Mul_2", "Mul_3", "Add_4", "Sqrt_5", "Mul_6", "Pow_7", "Add_8"}
    assert kept.keys() == between | {"Log_9"}
    assert all(kept[name] == "Log_9 takes the logarithm of its squares" for name in between)
    # With all of it in FP16 the largest error is 5.
    assert rounded["y"] == pytest.approx(plain["y"], abs=0.3)


BETWEEN = {
    "two bounds": "m = Max(p, e) n = Min(m, most) l = Log(n)",
    "a choice": "b = Less(p, e) m = Where(b, e, p) l = Log(m)",
    "some of it": "g = Gather <axis: int = 1> (p, two) m = Add(g, e) l = Log(m)",
    "parts": "h, k = Split <axis: int = 1> (p) m = Add(h, e) l = Log(m)",
    "a pooling": "u = Reshape(p, s) g = AveragePool <kernel_shape: ints = [1, 2]> (u) m = Add(g, e) l = Log(m)",
    "the largest": "g = ReduceMax <axes: ints = [1]> (p) m = Add(g, e) l = Log(m)",
}


@pytest.mark.parametrize("kind", BETWEEN)
def test_a_spectrum_is_found_through_what_bounds_chooses_and_pools_it(kind):
    text = f"g (float[N,64] x) => (float l) {{ r = MatMul(x, w) p = Mul(r, r) {BETWEEN[kind]} }}"
    model = graph(text, integers=("two", "s"), w=RNG.normal(size=(64, 8)), e=1e-3, most=9.0, two=[1, 3], s=[0, 1, 1, 8])
    reasons = {one.op: one.reason for one in half.convert(model, (), {}).nodes}
    assert all("takes the logarithm of its squares" in reasons[op] for op in ("MatMul", "Mul"))


def test_a_small_number_that_nothing_divides_by_is_no_reason():
    model = graph(
        "g (float[N,64] x) => (float[N,64] y) { m = Max(x, e) y = MatMul(m, w) }", e=1e-12, w=RNG.normal(size=(64, 64))
    )
    assert [(one.op, one.precision) for one in half.convert(model, (), {}).nodes] == [
        ("Max", "FP32"),
        ("MatMul", "FP16"),
    ]
    # An epsilon that FP16 holds.
    model = graph(
        "g (float[N,64] x) => (float[N,64] y) { p = Mul(x, x) m = Add(p, e) q = Sqrt(m) y = Div(x, q) }", e=1e-3
    )
    assert {one.precision for one in half.convert(model, (), {}).nodes} == {"FP16"}


def test_a_mask_beyond_fp16_leaves_rows_that_are_all_masked_as_they_are():
    text = "g (float[N,8] x, float[N,8] k) => (float[N,8] y) { i = Sub(one, k) b = Mul(i, low) s = Add(x, b) y = Softmax(s) }"
    for low in (-1e9, float(np.finfo(np.float32).min)):
        model = graph(text, one=1.0, low=low)
        mask = np.array([[1] * 4 + [0] * 4, [0] * 8], np.float32)
        plain, rounded, _ = answers(model, RNG.normal(size=(2, 8)), k=mask)
        assert np.isfinite(rounded["y"]).all() and rounded["y"] == pytest.approx(plain["y"], abs=2e-3)


def test_a_divisor_of_which_one_number_is_nothing_in_fp16_stays():
    model = graph("g (float[N,4] x) => (float[N,4] y) { y = Div(x, d) }", d=[1.0, 2.0, 1e-8, 1.0])
    plain, rounded, _ = answers(model, np.full((1, 4), 1e-8))
    assert rounded["y"] == pytest.approx(plain["y"], rel=1e-3)


def test_an_instance_normalization_stays_whose_scales_the_parser_reads_as_fp32():
    text = "g (float[N,3,8] x) => (float[N,3,8] y) { r = Mul(x, two) y = InstanceNormalization(r, s, b) }"
    model = graph(text, two=2.0, s=[1.5, -2, 0.25], b=[0.5, 0, -1])
    plain, rounded, listed = answers(model, RNG.normal(size=(4, 3, 8)))
    assert {one.name: one.reason for one in listed if one.precision == "FP32"} == {
        "InstanceNormalization_1": "TensorRT 8's parser reads its scales as FP32, whatever they are"
    }
    assert rounded["y"] == pytest.approx(plain["y"], abs=1e-2)
