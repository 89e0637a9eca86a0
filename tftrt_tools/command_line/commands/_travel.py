"""Which flags of a command name files, when the whole command runs on another machine (`_elsewhere`): each flag of each of these commands
is in one class. A name has one class in all commands, except where OF_ONE says otherwise."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

# model: the path of a model. data: what `find` finds. read: another file or folder. file, family, folder: what is written, as of Request.
# plain: no path. fleet: where the command runs. stays: it speaks of this machine, and does not travel. code: may name a function of the
# user's own, module:function, which does not travel; otherwise plain.
Class = Literal["model", "data", "read", "file", "family", "folder", "plain", "fleet", "stays", "code"]
WRITTEN: tuple[Class, ...] = ("file", "family", "folder")

_CLASSES: Mapping[Class, str] = {
    "model": "candidate calibration_table int8_as model native original",
    "data": "calibration_data data",
    "read": "baseline classes goals labels op_library plugins",
    "file": "html json junit log_file output_flagfile output_table plot save_baseline trace",
    "folder": "output work_dir",
    "code": "accuracy custom_objects thresholds",
    "fleet": "gpu_types on wait_seconds",
    "stays": """address candidate_address candidate_dir candidate_label candidate_python candidate_version engine_cache_dir history_dir
        history_name launch native_address native_dir native_label native_python native_version publish server_image tls
        tls_certificate tls_key tls_root tls_server_name""",
    "plain": """accuracy_output allow_build_at_runtime allow_builds allow_calibration_data allow_constant_outputs
        allow_matching_nonfinite allow_no_engines allow_quantization_changes allow_refused allow_unsafe_deserialization allow_worse
        backend batch_size bisect build_seconds_at_most calibrate_on_random_data calibration_batch_size calibration_method
        calibration_percentile calibrator callers candidate_signature compare concurrency data_rows distinct dry_run
        dynamic_shape_profile_strategy engine_cache engine_cache_max_bytes engine_mib_at_most engines epsilon external_data
        fix_shapes fix_sizes fp32_nodes freeze gpu_mib_at_most help high_precision_nodes image_channels image_error_limit image_mean
        image_preset image_resize image_scale image_size image_std in_process inputs judge_precision keep_native_nodes
        keep_native_ops label_column label_output layer_precisions leave_refused_nodes max_build_minutes max_engines max_minutes
        max_rounds max_seconds max_trial_minutes max_trials max_workspace_size_bytes maximum_cached_engines metric_direction metrics
        min_effect minimum_segment_size must_decide native_signature no_engine_fallback num_calibration_batches objective_shape
        opset output_kind outputs overwrite p50_ms_at_most p99_ms_at_most precision ranges rate refit rename repeat requests
        retry_failed rewrite rounds save_engines seed server shapes signature_keys slo sparse_weights speed_up_at_least stored
        strongly_typed tactic_sources tags target tensors tf32 throughput_at_least timeout_seconds top traced_calls
        use_dynamic_shape version_compatible without_gpu write""",
}
# {(command, flag): its class}, where other commands have the flag in another one.
# regress writes a log for each of several batch sizes.
OF_ONE: Mapping[tuple[str, str], Class] = {("export", "output"): "family", ("regress", "log_file"): "family"}
# {flag: words that are no path}.
WORDS = {"labels": ("folders",)}
_SERVER = "a server that this machine reaches"
# {flag: why it stays here}.
STAYS = {
    **dict.fromkeys(
        """address candidate_address candidate_dir candidate_label candidate_version native_address native_dir native_label native_version
        tls tls_certificate tls_key tls_root tls_server_name""".split(),
        _SERVER,
    ),
    **dict.fromkeys(("launch", "server_image"), "a server that would start on this machine"),
    **dict.fromkeys(("candidate_python", "native_python"), "a Python of this machine"),
    **dict.fromkeys(("history_dir", "history_name"), "results that are kept on this machine"),
    "engine_cache_dir": "a folder of this machine, and each machine has its own cache",
    "publish": "a folder that servers read, and what comes back may be for another GPU",
}
# {(flag, its value): what to give instead}: words that stand for files of this machine's history.
OF_HISTORY = {
    ("baseline", "latest"): "give the file of a result that was kept",
    ("save_baseline", "auto"): "give a file: --save_baseline=FILE, which takes one --batch_size",
}


@dataclasses.dataclass(frozen=True)
class Command:
    """A command that can run elsewhere. keeps: the place among its arguments of the model in which it keeps its result, where --write says
    so. work_dir: how the default of --work_dir begins, to which the model's name is added."""

    keeps: int | None = None
    work_dir: str = ""


COMMANDS: Mapping[str, Command] = {
    "convert": Command(),
    "export": Command(),
    "optimize": Command(work_dir="optimize-"),
    "profile": Command(keeps=0),
    "regress": Command(),
    "tune": Command(work_dir="tune-"),
    "verify": Command(keeps=1),
}
_CLASS_OF = {name: kind for kind, names in _CLASSES.items() for name in names.split()}


def class_of(command: str, flag: str) -> Class:
    """The class of a flag. Raises: KeyError for one that has none."""
    return OF_ONE.get((command, flag)) or _CLASS_OF[flag]


def names() -> tuple[str, ...]:
    """All flags that have a class, one for each time that they stand in one."""
    return tuple(name for names in _CLASSES.values() for name in names.split())
