"""Engines of TensorRT 8 and 10 are asked for the same facts by the names that each release has: stand-ins have only those."""

import types

import pytest

from tests import tensorrt_names
from tftrt_tools.base import errors
from tftrt_tools.models.kinds.plan.job import differences
from tftrt_tools.tensorrt.plans import settings
from tftrt_tools.tensorrt.plans.job import mixed


class Explicit8:
    """An ICudaEngine of TensorRT 8 with two profiles: x, and "sizes", whose values are shapes."""

    has_implicit_batch_dimension = False
    num_bindings = 4
    num_optimization_profiles = 2
    device_memory_size = 100

    def get_binding_index(self, name):
        return ["x", "sizes"].index(name)

    def get_profile_shape_input(self, profile, binding):
        assert (profile, binding) == (1, 3)
        return [(1, 2), (3, 4), (5, 6)]


class Implicit8:
    """One with an implicit batch."""

    has_implicit_batch_dimension = True
    num_bindings = 2

    def get_binding_name(self, index):
        return "xy"[index]

    def get_binding_shape(self, index):
        return (8, 8)

    def get_binding_dtype(self, index):
        return "FLOAT"

    def binding_is_input(self, index):
        return not index


class Explicit10:
    """An ICudaEngine of TensorRT 10."""

    num_optimization_profiles = 2
    device_memory_size_v2 = 200

    @property
    def has_implicit_batch_dimension(self):
        raise AssertionError("it is deprecated")

    @property
    def device_memory_size(self):
        raise AssertionError("it is deprecated")

    def get_tensor_profile_values(self, profile, name):
        # As the module's own signature is: its documentation has the two the other way around.
        if not isinstance(profile, int) or not isinstance(name, str):
            raise TypeError("incompatible function arguments")
        return [[1, 2], [3, 4], [5, 6]]


@pytest.mark.parametrize(
    ("engine", "release"),
    [(Explicit8, "8.5.3.1"), (Explicit8, "8.6.1"), (Implicit8, "8.5.3.1"), (Explicit10, "10.8.0.43")],
)
def test_the_stand_ins_have_names_of_their_release_alone(engine, release):
    assert {name for name in vars(engine) if not name.startswith("_")} <= tensorrt_names.of(release, "ICudaEngine")


@pytest.mark.parametrize("engine", [Explicit8(), Explicit10()])
def test_values_of_a_profile(engine):
    assert differences.profile_values(engine, 1, "sizes") == [[1, 2], [3, 4], [5, 6]]
    assert not differences.implicit_batch(engine)


@pytest.mark.parametrize(("engine", "size"), [(Explicit8(), 100), (Explicit10(), 200)])
def test_the_memory_of_a_context(engine, size):
    assert differences.context_memory(engine) == size


def test_an_implicit_batch_is_called_by_numbers():
    engine, calls = Implicit8(), []
    assert differences.implicit_batch(engine)
    assert differences.bindings(engine) == [
        differences.Binding("x", True, "FLOAT", (8, 8)),
        differences.Binding("y", False, "FLOAT", (8, 8)),
    ]
    context = types.SimpleNamespace(execute_async=lambda *given: calls.append(given) or True)
    assert differences.call_implicit(context, 4, [11, 12], 1) and calls == [(4, [11, 12], 1)]


@pytest.mark.parametrize("name", ["plugin_creator_list", "all_creators"])
def test_plugin_creators(name):
    assert differences.creators(types.SimpleNamespace(**{name: ["NMS"]})) == ["NMS"]


def test_an_error_of_the_parser_names_its_node():
    new = types.SimpleNamespace(node=lambda: 1, node_name=lambda: "conv", desc=lambda: "no such kernel")
    old = types.SimpleNamespace(node=lambda: 1, desc=lambda: "no such kernel")
    assert differences.parser_error(new, []) == "node conv (no such kernel)"
    assert differences.parser_error(old, ["a", "b"]) == "node b (no such kernel)"


def release(version):
    """A module with the recorded enumerations of a release."""

    def enumeration(kind):
        return types.SimpleNamespace(__members__={name: name for name in tensorrt_names.of(version, kind)})

    # As the headers of all three number them.
    flags = {"EXPLICIT_BATCH": 0, "EXPLICIT_PRECISION": 1, "STRONGLY_TYPED": 1}
    known = tensorrt_names.of(version, "NetworkDefinitionCreationFlag")
    return types.SimpleNamespace(
        __version__=version,
        BuilderFlag=enumeration("BuilderFlag"),
        TacticSource=enumeration("TacticSource"),
        NetworkDefinitionCreationFlag=types.SimpleNamespace(
            __members__={name: value for name, value in flags.items() if name in known}
        ),
    )


@pytest.mark.parametrize("version", tensorrt_names.RELEASES)
def test_flags_that_builds_set_are_in_each_release(version):
    trt = release(version)
    for name in ("FP16", "INT8", "TF32", "SPARSE_WEIGHTS", "REFIT", mixed.FLAG):
        assert differences.flag(trt, "any", name) == name
    assert differences.weakly_typed(trt) and differences.network_flags(trt, False) == 1
    assert set(settings.TACTIC_SOURCES) <= set(trt.TacticSource.__members__)


def test_what_came_later_is_asked_of_later_releases_alone():
    assert differences.network_flags(release("10.8.0.43"), True) == 3
    assert differences.flag(release("8.6.1"), "version_compatible") == "VERSION_COMPATIBLE"
    for version in ("8.5.3.1", "8.6.1"):
        with pytest.raises(errors.TftrtError, match="--strongly_typed"):
            differences.network_flags(release(version), True)
