"""Which flags of a command come first in its help, and under which topic each of the others stands."""

from __future__ import annotations

from collections.abc import Collection, Mapping

NEEDED, OFTEN = "Needed", "Often used"

# {command: the flags without which it ends at once}. What is given by place is in the usage line.
_NEEDED = {
    "optimize": "data accuracy output",
    "convert": "model output",
    "export": "output",
    "wrap": "output",
    "data": "output",
    "calibrate": "output",
    "sensitivity": "data",
    "tune": "data accuracy shapes",
    "publish": "model_name base_path",
    "configure": "output model",
    "smoke": "model_name",
    "promote": "model_name version_label model_version model_config_file",
    "rollback": "model_name model_config_file",
    "regress": "native candidate",
}

# {command: its ten most used flags at most, the first ones first}.
_OFTEN = {
    "doctor": "require",
    "optimize": "labels batch_size precision calibration_data server slo max_minutes publish overwrite",
    "inspect": "shapes check all precision",
    "convert": "precision shapes backend calibration_data calibration_batch_size freeze fix_sizes max_build_minutes overwrite",
    "export": "precision data target calibration_data shapes batch_size rewrite",
    "wrap": "forms top_k argmax image_preset output_types overwrite",
    "data": "data_rows labels output_labels image_size image_preset image_resize overwrite",
    "calibrate": "calibration_data calibration_batch_size calibration_method compare_methods shapes overwrite",
    "build": "shapes output repeat max_build_minutes on overwrite",
    "verify": "data labels shapes thresholds output_kind batch_size html tensors",
    "sensitivity": "precision calibration_data nodes measure html plot",
    "profile": "shapes original engines trace html",
    "diagnose": "shapes try address profile stored",
    "tune": "labels calibration_data backend precision max_trials max_minutes output on html",
    "table": "output",
    "publish": "server server_image model_version warmup_shapes triton_release unverified",
    "configure": "enable_batching allowed_batch_sizes max_batch_size batch_timeout_micros monitoring mount check_files",
    "serve": "model_base_path model_name launch port rest_api_port enable_batching batching_parameters_file log_file",
    "smoke": "shapes data original require_engines native_model_name",
    "versions": "model_name model_config_file version_labels",
    "promote": "wait_seconds unload_previous",
    "rollback": "wait_seconds",
    "bench": "model_name concurrency batch_size duration_seconds slo scenario rate rounds data html",
    "log": "fail_on layers top",
    "regress": "data labels batch_size accuracy address speed_up_at_least p99_ms_at_most save_baseline baseline html",
    "history": "history_name fail_on_step plot",
}

# Flags that nobody sets better than their defaults. They go on working; helps and pages leave them out.
UNLISTED = frozenset({"channels", "least_percent"})

# {topic: its flags}, in the order of the help. A name has one topic in all commands.
_TOPICS = {
    "Model": """tags saved_model_tags signature_keys inputs outputs custom_objects op_library allow_unsafe_deserialization native
        candidate native_signature candidate_signature native_python candidate_python rename original model""",
    "Precision and engines": """backend shapes use_dynamic_shape dynamic_shape_profile_strategy freeze fix_sizes fp32_nodes
        high_precision_nodes
        keep_native_ops keep_native_nodes minimum_segment_size max_engines max_workspace_size_bytes
        maximum_cached_engines allow_build_at_runtime allow_no_engines allow_quantization_changes leave_refused_nodes
        save_engines repeat strip objective_shape max_build_minutes precision layer_precisions""",
    "Plans (--backend=tensorrt)": "plugins refit sparse_weights strongly_typed tactic_sources tf32 version_compatible int8_as",
    "INT8": """calibration_data calibration_batch_size num_calibration_batches calibration_table calibration_method
        calibration_percentile calibrator calibrate_on_random_data compare_methods allow_calibration_data""",
    "Export": "target opset rewrite external_data fix_shapes allow_refused judge_precision bisect",
    "Data": "data data_rows calibration_rows batch_size distinct ranges seed label_feature",
    "Pictures": """image_size image_preset image_scale image_mean image_std image_channels image_resize image_error_limit
        image_max_pixels picture_input broken normalize_again""",
    "Signatures that are added": "forms names as_default argmax top_k scores_output keep_outputs input_types output_types",
    "Accuracy": """compare accuracy accuracy_output labels label_column label_output classes thresholds output_kind metric_direction
        allow_constant_outputs allow_matching_nonfinite epsilon expected tensors""",
    "Goals": """goals slo rate speed_up_at_least p50_ms_at_most p99_ms_at_most throughput_at_least build_seconds_at_most
        engine_mib_at_most gpu_mib_at_most no_engine_fallback require require_engines require_no_errors allow_builds
        allow_worse check fail_on fail_on_step check_files""",
    "Search": """max_trials max_minutes max_trial_minutes retry_failed measure measure_nodes nodes try try_causes
        resolution lowest_rate highest_rate tune_batching work_dir""",
    "Measurement": """scenario concurrency duration_seconds warmup_seconds min_queries distribution schedule_file processes rounds
        max_rounds max_seconds requests metrics must_decide min_effect in_process without_gpu callers traced_calls
        engines breakdown profile stored""",
    "Several GPUs and machines": "on gpu_types wait_seconds generators",
    "Server": """server model_name native_model_name model_version native_version candidate_version version_label native_label
        candidate_label model_dir native_dir candidate_dir model_config_file rest metrics_url server_pid
        unload_previous load_new_models address native_address candidate_address server_image launch timeout_seconds
        server_log version_labels""",
    "TLS": "tls tls_root tls_certificate tls_key tls_server_name",
    "Publishing": """publish base_path custom_ops compute_capability warmup warmup_data warmup_shapes replace_warmup
        allow_older_version allow_unknown_engines unverified""",
    "Triton": """triton_release triton_backend triton_instances triton_instance_kind triton_max_batch_size
        triton_preferred_batch_sizes triton_queue_delay_us triton_replace_config triton_tensorrt triton_versions""",
    "Batching": """enable_batching batching_parameters_file allowed_batch_sizes max_batch_size batch_timeout_micros
        max_enqueued_batches num_batch_threads enable_per_model_batching_parameters allow_uncovered""",
    "What is served": """version model_base_path model_config_file_poll_wait_seconds mount monitoring monitoring_config_file
        platform_config_file
        file_system_poll_wait_seconds max_num_load_retries load_retry_interval_micros num_load_threads
        num_unload_threads enable_model_warmup num_request_iterations_for_warmup flush_filesystem_caches
        allow_version_labels_for_unavailable_models enable_signature_method_name_check prefer_tflite_model
        num_tflite_pools num_tflite_interpreters_per_pool remove_unused_fields_from_bundle_metagraph""",
    "Ports and addresses": """host port grpc_socket_path grpc_channel_arguments grpc_max_threads rest_api_port rest_api_num_threads
        rest_api_timeout_in_ms rest_api_enable_cors_support ssl_config_file use_alts_credentials enable_profiler""",
    "Threads and memory of the server": """tensorflow_inter_op_parallelism tensorflow_intra_op_parallelism
        tensorflow_session_parallelism tensorflow_session_config_file thread_pool_factory_config_file
        per_process_gpu_memory_fraction xla_cpu_compilation_enabled grace_seconds""",
    "Tables": "engine filter sort format how set scale remove layers",
    "Kept results": "baseline save_baseline history_dir history_name machine show write",
    "Engine cache": "engine_cache engine_cache_dir engine_cache_max_bytes",
    "Output": """output output_table output_calibration output_labels output_flagfile overwrite dry_run all notes top allow_empty html
        plot csv requests_csv hdr junit trace log_file json help""",
}
TOPIC = {name: topic for topic, names in _TOPICS.items() for name in names.split()}


def needed(command: str) -> tuple[str, ...]:
    """The flags without which a command ends at once."""
    return tuple(_NEEDED.get(command, "").split())


def often(command: str) -> tuple[str, ...]:
    """The flags of a command that are used most."""
    return tuple(_OFTEN.get(command, "").split())


def grouped(command: str, flags: Collection[str]) -> Mapping[str, tuple[str, ...]]:
    """{heading: flags} in the order of the help: what is needed, what is often used, then the others by topic. Each stands once.

    Args: flags: the names of all flags of the command. Raises: KeyError for one without a topic.
    """
    first = {NEEDED: needed(command), OFTEN: often(command)}
    placed = {name for names in first.values() for name in names}
    rest = sorted(set(flags) - placed, key=list(TOPIC).index)
    for name in rest:
        first[TOPIC[name]] = (*first.get(TOPIC[name], ()), name)
    return {heading: names for heading, names in first.items() if names}
