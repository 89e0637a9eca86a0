"""Reshapes of packed channels that TensorRT reads otherwise. No plan can be built here; the lists of layers are of plans built on an H200."""

import json
import types

import pytest

from tests import stacks
from tftrt_tools.base import errors
from tftrt_tools.base.logs import engine_layers
from tftrt_tools.tensorrt.plans.job import reshapes

# Of a plan whose answers had 9.9 dB, in its second profile; of one that verified with 66.8 dB; of one with 70.2 dB, and of a copy.
WRONG = "Layer(NoOp): node_Reshape_97 [profile 1], Tactic: 0x0000000000000000, conv2d_8/fp16 [profile 1] (Half[8,8:8,48,48]) -> val_98/fp16 [profile 1] (Half[8:8,4,4608])"
RIGHT = (
    "Layer(NoOp): node_Reshape_97, Tactic: 0x0000000000000000, (Float[8,8,48,48]) -> val_98/fp16 (Float[8,4,4608])",
    "Layer(NoOp): node_Reshape_36, Tactic: 0x0000000000000000, a (Half[8,16,24,24]) -> b (Half[8,4,2304])",
    "Layer(NoOp): flat, Tactic: 0x0000000000000000, a (Half[8,16:8,24,24]) -> b (Half[8,16:8,576,1])",
    "Layer(NoOp): copy, Tactic: 0x0000000000000000, val_35 (Half[8:8,4,2304]) -> other (Half[8:4,4,2304])",
    "Layer(NoOp): open, Tactic: 0x0000000000000000, a (Half[1,64:8,-1,-1]) -> b (Half[1,64:8,-1,1])",
    "Layer(Shuffle): node_Reshape_36, Tactic: 0x0000000000000000, a (Half[8:4,4,2304]) -> b (Half[8,16:4,24,24])",
)
PACKED = "Channel major FP16 format where channel % 8 == 0"


def information(kind="NoOp", name="node_Reshape_97 [profile 1]", given=(8, 4, 4608)):
    """As the inspector of TensorRT 8.5.3 writes it."""
    ends = ("conv2d_8/fp16", (8, 8, 48, 48)), ("val_98/fp16", given)
    taken, made = ({"Name": one, "Dimensions": list(sizes), "Format/Datatype": PACKED} for one, sizes in ends)
    return {"Layers": [{"Name": name, "LayerType": kind, "Inputs": [taken], "Outputs": [made], "TacticValue": "0x0"}]}


def test_sizes_that_are_open_in_the_profile_say_nothing_and_the_others_do():
    """A batch that is open; a picture that is."""
    line = "Layer(NoOp): r, Tactic: 0x0000000000000000, a (Half[{}]) -> b (Half[{}])"
    found = [
        engine_layers.misread(engine_layers.rows(line.format(*sizes)))
        for sizes in (("-1,8:8,48,48", "-1:8,4,4608"), ("-1,8:8,-1,-1", "-1:8,4,-1"))
    ]
    assert found == [("r",), ()]


def test_a_reshape_that_moves_nothing_and_packs_another_axis_is_found():
    assert engine_layers.misread(engine_layers.rows("\n".join([*RIGHT, WRONG, WRONG]))) == ("node_Reshape_97",)
    assert engine_layers.misread(engine_layers.rows("\n".join(RIGHT))) == ()


@pytest.mark.parametrize(
    ("said", "names"),
    [
        (information(), ("node_Reshape_97",)),
        (information(kind="Shuffle"), ()),
        (information(given=(8, 8, 2304, 1)), ()),
        ({"text": "no JSON"}, ()),
        ({"Layers": ["node_Reshape_97"]}, ()),
    ],
)
def test_the_inspectors_document_is_read(said, names):
    assert reshapes.misread(json.loads(json.dumps(said))) == names


class Build:
    """A build whose plan has the reshape until the layer is held. refused: the second build fails."""

    def __init__(self, refused=False, known=True):
        self.built, self.held, self.refused, self.known = 0, (), refused, known

    def __call__(self):
        if self.built and self.refused:
            raise errors.TftrtError("TensorRT does not build the plan", "")
        self.built += 1
        return 10.0

    def look(self):
        return information(kind="Reformat" if self.held else "NoOp")

    def hold(self, names):
        self.held = names if self.known else ()
        return len(self.held)


def test_a_plan_with_such_a_reshape_is_built_once_more_with_it_in_fp32():
    build = Build()
    assert reshapes.built(build, build.look, build.hold) == 20.0
    assert build.built == 2 and build.held == ("node_Reshape_97",)
    build.built = 0
    assert reshapes.built(build, build.look, build.hold) == 10.0 and build.built == 1


def test_the_first_plan_stays_where_the_second_cannot_be_built():
    build = Build(refused=True)
    assert reshapes.built(build, build.look, build.hold) == 10.0 and build.built == 1
    build = Build(known=False)
    assert reshapes.built(build, build.look, build.hold) == 10.0 and reshapes.misread(build.look())


@stacks.needs_bindings
def test_the_layers_of_these_names_are_held_and_the_builder_has_to_obey():
    import tensorrt as trt

    from tests.rooms.tensorrt.test_plans_mixed import Layer

    layers = [Layer("SHUFFLE", ("val_98", trt.DataType.FLOAT)) for _ in range(3)]
    for layer, name in zip(layers, ("a", "node_Reshape_97", "other"), strict=True):
        layer.name = name
    network = types.SimpleNamespace(num_layers=3, get_layer=layers.__getitem__)
    flags = []
    config = types.SimpleNamespace(set_flag=flags.append)
    assert reshapes.hold(trt, network, config, ("a + node_Reshape_97",)) == 2
    assert [layer.precision for layer in layers] == [trt.DataType.FLOAT, trt.DataType.FLOAT, None]
    assert flags == [trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS]
    # Held already: another build would make the same plan.
    flags.clear()
    assert reshapes.hold(trt, network, config, ("node_Reshape_97",)) == 0 and not flags
    assert reshapes.hold(trt, network, config, ("nobody",)) == 0 and not flags
