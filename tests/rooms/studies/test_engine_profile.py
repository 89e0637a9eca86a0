"""Engines taken apart, from what real ones told on an H100: the digits CNN at batches 1, 8, 32, ResNet-50 at 1 and 32, and an
encoder, all asked for FP16."""

import dataclasses

import pytest

from tests.engine_recordings import DIGITS, ENCODER, RESNET, profiles, recording
from tftrt_tools.studies.profiling import engines, engines_compare
from tftrt_tools.studies.profiling.engine_profile import EngineProfile


def layer(profile, end, role="product"):
    """The layer of a role whose last node has this name."""
    return next(one for one in profile.layers if one.role == role and one.nodes and one.nodes[-1].endswith(end))


@pytest.mark.parametrize("name", [DIGITS, RESNET])
def test_the_layers_add_up_to_the_kernels_and_hold_every_node(name):
    for profile in profiles(name):
        assert profile.kernels_by == "ranges" and profile.other_kernel_seconds == 0
        assert profile.layer_seconds == pytest.approx(profile.kernel_seconds, rel=0.02)
        assert sum(one.share for one in profile.layers) == pytest.approx(1)
        assert not profile.fusion.gone
        # Operations are counted once, in the layer that does them.
        graph = next(
            graph
            for graph in recording(name).graphs
            if graph.nodes[0].outputs[0].shape == profile.shapes["TensorRTInputPH_0"]
        )
        assert sum(one.flops or 0 for one in profile.layers) == graph.flops > 0
        assert all(one.seconds == 0 and not one.kernels for one in profile.layers if one.kind == "NoOp")


def test_iprofiler_agrees_with_the_kernels_once_its_events_are_taken_off():
    one, large = profiles(RESNET)
    assert large.agreement == pytest.approx(1, abs=0.01) and 2e-6 < large.event_seconds < 4e-6
    raw = sum(layer.profiler_seconds for layer in large.layers) / large.layer_seconds
    assert raw > 1.08
    assert not large.notes
    # At batch 1 the GPU waits for launches, which IProfiler counts to the layers. It says so.
    assert one.agreement > 1.05 and one.notes == (
        "the layers' times by IProfiler, less its events, are 1.07 of their kernels' times",
    )


def test_a_transformer_is_one_layer_of_many_kernels_and_its_gaps_are_no_time_of_the_layer():
    """Four layers of an encoder, 8 x 128 tokens: Myelin takes them whole. IProfiler counts the gaps between a layer's kernels, the sum of kernels does not."""
    sizes, large = profiles(ENCODER)
    assert [(one.role, one.kind) for one in sizes.layers] == [("shape", "")] and not sizes.fusion.groups
    first, *moves = sorted(large.layers, key=lambda one: -one.seconds)
    assert (first.kind, first.role, len(first.nodes), len(first.kernels)) == ("Myelin", "fused graph", 236, 52)
    assert {one.role for one in moves} == {"reformat"} and len(moves) == 4 and first.share > 0.95
    assert large.layer_seconds == pytest.approx(large.kernel_seconds, rel=0.001)
    assert first.flops == recording(ENCODER).graphs[1].flops > 6e9
    assert large.notes == ("the layers' times by IProfiler, less its events, are 1.15 of their kernels' times",)
    assert first.profiler_seconds > 1.1 * first.seconds and first.precision == "FP16"


def test_the_slowest_layers_come_first_with_what_they_are():
    large = profiles(RESNET)[1]
    (first, share), (second, both), *_ = large.by_time()
    assert (first.nodes[-1].rsplit("/")[-2:], second.nodes[0].rsplit("/")[-2:]) == (
        ["conv1_relu", "Relu"],
        ["pool1_pad", "Pad"],
    )
    assert (
        first.share == pytest.approx(0.096, abs=0.001)
        and both == pytest.approx(first.share + second.share)
        and share == first.share
    )
    assert (first.kind, first.precision, first.precision_from, first.formats) == (
        "CaskConvolution",
        "FP16",
        "kernels",
        "Half c8 → Half c8",
    )
    assert first.output_shape == (32, 64, 112, 112) and first.tactic.startswith("0x") and len(first.nodes) == 3
    # 7 x 7 x 3 multiplications for each of the outputs.
    assert first.flops == 2 * 7 * 7 * 3 * 32 * 64 * 112 * 112


def test_types_of_kernels_tell_tf32_from_fp32():
    """Asked for FP16, TensorRT took float32 for all layers of the small model; TF32 where its kernels have it."""
    small = profiles(DIGITS)[2]
    assert [one.precision for one in small.layers if one.role == "product"] == ["TF32", "TF32", "TF32", "FP32"]
    assert layer(small, "conv2/Relu").formats == "Float c4 → Float c4"


def test_the_roof_of_a_layer():
    small, (_, large) = profiles(DIGITS)[0], profiles(RESNET)
    assert large.peaks.flops["FP16"] == pytest.approx(1.07e15, rel=0.01) and large.peaks.bytes_per_s == pytest.approx(
        3.352e12, rel=0.001
    )
    copying = layer(large, "conv2_block2_out/Relu")
    assert copying.bound == "memory" and 0.6 < copying.roof_share < 0.8 and 2000 < copying.gb_per_s < 2700
    # Three tensors of 32 x 256 x 56 x 56, one of a quarter, and the weights, two bytes each.
    assert copying.bytes == 2 * (32 * 56 * 56 * (256 + 256 + 64) + 64 * 256 + 4 * 256)
    assert layer(large, "conv5_block1_2_relu/Relu").bound == "compute"
    assert layer(small, "relu1/Relu").bound == "launch" and layer(small, "relu1/Relu").roof_share < 0.01
    assert layer(large, "conv1_relu/Relu").bound == "neither"


def test_usual_groups_are_fused_and_moves_are_counted():
    large = profiles(RESNET)[1]
    groups = large.fusion.groups
    assert (
        {group.kind for group in groups} == {"convolution", "product"}
        and len(groups) == 54
        and all(group.fused for group in groups)
    )
    # A residual sum can be fused to one of its two convolutions.
    sums = [group for group in groups if any(node.endswith("/add") for node in group.nodes)]
    assert len(sums) == 16 and all(len(group.layers) == 1 for group in groups)
    moved = {one.role: one for one in large.fusion.moved}
    assert moved["reformat"].count == 38 and moved["reformat"].running == 2
    assert sum(one.seconds for one in large.fusion.moved) == pytest.approx(99.1e-6, abs=1e-6)


def test_memory_is_told_by_profile():
    one, large = (profile.memory for profile in profiles(RESNET))
    assert (one.activations_of_profile, large.activations_of_profile) == (4072960, 130302976)
    assert one.activations_and_scratch == large.activations_and_scratch == 130302976
    assert large.reuse_saves == large.activations_without_reuse - 130302976 > 700e6
    assert large.inputs_and_outputs == 4 * (32 * 224 * 224 * 3 + 32 * 1000) and large.workspace_asked is None
    assert 100e6 < large.weights_in_model < 105e6 and large.plan == 67124930 and large.engine == 73400320


def test_a_cuda_graph_saves_the_gaps():
    one, large = profiles(RESNET)
    assert one.cuda_graph.nodes == 71 and one.cuda_graph.saves == pytest.approx(71e-6, abs=3e-6)
    assert one.gap_seconds == pytest.approx(48e-6, abs=2e-6)
    assert one.cuda_graph.graph_row == pytest.approx(one.kernel_seconds, rel=0.02)
    assert "+15% saved" in one.cuda_graph.text() and "+3% saved" in large.cuda_graph.text()


def test_without_ranges_kernels_are_aligned_by_their_times():
    for name, least in ((DIGITS, 0.9), (RESNET, 0.94)):
        found = recording(name)
        for answer in found.parts["traced"]["answers"]:
            answer["trace"]["ranges"] = []
        for right, guessed in zip(profiles(name), engines.profiles(found)[0], strict=True):
            assert guessed.kernels_by == "aligned" and any("by their times" in note for note in guessed.notes)
            same = sum(
                len(set(one.kernels) & set(other.kernels))
                for one, other in zip(right.layers, guessed.layers, strict=True)
            )
            assert same >= least * sum(len(set(one.kernels)) for one in right.layers)
            # Then the layers' times are IProfiler's.
            assert guessed.layer_seconds > right.layer_seconds


def test_what_could_not_be_measured_is_said():
    found = recording(DIGITS)
    del found.parts["streams"], found.parts["traced"]
    found.parts["graph"] = {"error": "Traceback …\nRuntimeError: no capture", "log": ""}
    for answer in found.parts["timed"]["answers"]:
        answer["errors"] = {"row_seconds": "RuntimeError: TensorRT refused the call"}
        del answer["row_seconds"]
    made, failed = engines.profiles(
        dataclasses.replace(found, graphs=tuple(dataclasses.replace(one, nodes=()) for one in found.graphs), built={})
    )
    assert failed == ("graph: RuntimeError: no capture",)
    for one in made:
        assert (
            one.kernels_by is None
            and one.kernel_seconds is None
            and one.agreement is None
            and one.latency is None
            and one.fusion is None
        )
        assert one.layer_seconds == sum(layer.profiler_seconds for layer in one.layers) > 0
        assert "timed, row_seconds: RuntimeError: TensorRT refused the call" in one.notes
        assert "the native segment was removed: no operations, no fusion map" in one.notes
        assert any("the log of this engine's build was not kept" in note for note in one.notes)


def test_a_profile_for_a_range_says_at_what_it_was_measured():
    found = recording(DIGITS)
    for answer in found.parts["told"]["answers"]:
        answer["profiles"] = [{"TensorRTInputPH_0": [[1, 8, 8, 1], [32, 8, 8, 1], [32, 8, 8, 1]]}]
    first, second, *_ = engines.profiles(found)[0]
    assert (
        first.notes[-1]
        == "this profile serves TensorRTInputPH_0 from 1x8x8x1 to 32x8x8x1; it was measured at what it was tuned for"
    )
    assert not any("serves" in note for note in second.notes)


def test_a_profile_is_written_and_read():
    for one in (*profiles(DIGITS), *profiles(RESNET)):
        again = EngineProfile.from_dict(one.to_dict())
        assert again.to_dict() == one.to_dict() and len(again.layers) == len(one.layers)


def test_two_engines_are_compared_by_their_nodes():
    small, large = profiles(RESNET)
    found = engines_compare.compare(small, large)
    assert not found.only_one and not found.only_other and not any(row.fused_otherwise for row in found.rows)
    assert sum(row.one.seconds for row in found.rows) == pytest.approx(small.layer_seconds)
    assert sum(row.other.seconds for row in found.rows) == pytest.approx(large.layer_seconds)
    first = found.rows[0]
    assert [node.rsplit("/")[-1] for node in first.nodes] == [
        "Conv2D",
        "FusedBatchNormV3",
        "Relu",
    ] and first.difference > 100e-6
    moves = next(row for row in found.rows if not row.nodes)
    assert len(moves.one.layers) < len(moves.other.layers)


def test_nodes_that_are_fused_otherwise_are_one_row():
    one = profiles(DIGITS)[0]
    conv = layer(one, "conv2/Relu")
    halves = [
        dataclasses.replace(conv, nodes=conv.nodes[:2], seconds=4e-6),
        dataclasses.replace(conv, name="relu", nodes=conv.nodes[2:], seconds=3e-6),
    ]
    other = dataclasses.replace(
        one, layers=tuple(part for two in one.layers for part in (halves if two is conv else [two]))
    )
    rows = [row for row in engines_compare.compare(one, other).rows if row.fused_otherwise]
    assert (
        len(rows) == 1
        and rows[0].nodes == conv.nodes
        and (len(rows[0].one.layers), len(rows[0].other.layers)) == (1, 2)
    )
    assert rows[0].difference == pytest.approx(7e-6 - conv.seconds)


def test_engines_are_paired_by_nodes_and_shapes():
    small, large = profiles(RESNET)
    digits = profiles(DIGITS)[0]
    assert engines_compare.pairs([small, digits], [digits, large, small]) == [(small, small), (digits, digits)]
    assert engines_compare.pairs([small], [digits]) == []


def test_what_ends_every_part_is_said_once():
    """A Python package of TensorRT that does not load, say."""
    parts = {
        "told": {"error": "Traceback\nlibnvinfer.so.8 is missing"},
        "timed": {"error": "libnvinfer.so.8 is missing"},
    }
    assert engines.sorted_answers(parts) == ({}, ("the engines could not be taken apart: libnvinfer.so.8 is missing",))
    assert engines.sorted_answers({**parts, "graph": {"error": "no graph"}})[1] == (
        "told: libnvinfer.so.8 is missing",
        "timed: libnvinfer.so.8 is missing",
        "graph: no graph",
    )
