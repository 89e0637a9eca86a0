"""Lines of real logs, each with the known message that it has. Those of TensorFlow 2.14.1 and TensorRT 8.5.3 were written here; those of other
versions have the form in which users report them."""

_OP = "2026-11-24 07:44:43.582365: {} tensorflow/compiler/tf2tensorrt/kernels/trt_engine_op.cc:959] "
_TRT = "2026-11-24 07:38:26.513333: W tensorflow/compiler/tf2tensorrt/utils/trt_logger.cc:83] TF-TRT Warning: DefaultLogger "
_TRT_ERROR = "2026-11-24 07:38:26.513333: E tensorflow/compiler/tf2tensorrt/utils/trt_logger.cc:87] DefaultLogger "
_SERVING = "2026-11-23 10:00:00.000000: {} tensorflow_serving/{}] "
_PYTHON, _TRTEXEC = "[10/18/2023-20:27:00] [TRT] [{}] ", "[04/22/2022-21:36:34] [{}] [TRT] "

# [(name of the message, line)].
LINES = [
    (
        "no_engine_fits",
        _OP.format("W")
        + "TF-TRT Warning: Engine retrieval for input shapes: [[4,8,8,1]] failed. Running native segment for PartitionedCall/TRTEngineOp_65d45f244b_0_0",
    ),
    (
        "no_engine_fits",
        _OP.format("W")
        + "TF-TRT Warning: Engine retrieval for input shapes: [[1,128], [1,128], [2,5]] failed. Running native segment for TRTEngineOp_0_2",
    ),
    (
        "shapes_contradict_engine",
        _OP.format("W")
        + "TF-TRT Warning: Running native segment forPartitionedCall/TRTEngineOp_000_000 due to failure in verifying input shapes: Input shapes do not match input partial shapes stored in graph, for PartitionedCall/TRTEngineOp_000_000: [[5,4,3]] != [[?,4,2]]",
    ),
    (
        "no_engine_and_no_build",
        _OP.format("W")
        + "TF-TRT Warning: Found no engine in cache matching input shapes. Not building a new engine because allow_build_at_runtime=False. The native segment will be used instead.",
    ),
    (
        "engine_not_executed",
        _OP.format("W")
        + "TF-TRT Warning: Failed to execute engine: INTERNAL: Failed to enqueue batch for TRT engine Retrying with native segment for TRTEngineOp_000_001",
    ),
    (
        "engine_not_executed",
        "2020-02-13 02:33:41.316816: W tensorflow/compiler/tf2tensorrt/kernels/trt_engine_op.cc:506] Failed to execute engine, retrying with native segment for StatefulPartitionedCall/TRTEngineOp_81",
    ),
    (
        # Of the port to TensorRT 10, as its source has the words.
        "implicit_batch_gone",
        _OP.format("W")
        + "TF-TRT Warning: Failed to execute engine: INTERNAL: Implicit batch is not supported with TensorRT >=10 Retrying with native segment for TRTEngineOp_000_001",
    ),
    (
        "engine_not_enqueued",
        "2020-02-13 02:33:41.316800: W tensorflow/compiler/tf2tensorrt/kernels/trt_engine_op.cc:635] Failed to enqueue batch for TRT engine: StatefulPartitionedCall/TRTEngineOp_81",
    ),
    (
        "engine_not_built",
        _OP.format("W")
        + "TF-TRT Warning: Engine creation for TRTEngineOp_22 failed. The native segment will be used instead. Reason: INTERNAL: Failed to build TensorRT engine",
    ),
    (
        "no_kernel_for_layer",
        _TRTEXEC.format("E")
        + "10: [optimizer.cpp::computeCosts::2011] Error Code 10: Internal Error (Could not find any implementation for node {ForeignNode[transformer.wte.weight...MatMul_2899]}.)",
    ),
    (
        "no_kernel_for_layer",
        "2019-09-03 12:23:15.537205: E tensorflow/compiler/tf2tensorrt/utils/trt_logger.cc:41] DefaultLogger Internal error: could not find any implementation for node generator/conv2d_transpose_1, try increasing the workspace size with IBuilder::setMaxWorkspaceSize()",
    ),
    (
        "network_without_output",
        _TRTEXEC.format("E")
        + "4: [network.cpp::validate::2998] Error Code 4: Internal Error (Network must have at least one output)",
    ),
    (
        "no_profile",
        _TRTEXEC.format("E")
        + "4: [network.cpp::validate::3008] Error Code 4: Internal Error (Network has dynamic or shape inputs, but no optimization profile has been defined.)",
    ),
    ("trtexec_failed", "&&&& FAILED TensorRT.trtexec [TensorRT v8601] # trtexec --onnx=model.onnx"),
    (
        "tensorrt_assertion",
        _TRTEXEC.format("E")
        + "2: [builder.cpp::buildSerializedNetwork::609] Error Code 2: Internal Error (Assertion enginePtr != nullptr failed. )",
    ),
    (
        "tactics_skipped",
        _PYTHON.format("W")
        + "Skipping tactic 3 due to insuficient memory on requested size of 449 detected for tactic 4.",
    ),
    (
        "tactics_skipped",
        _PYTHON.format("W")
        + "UNSUPPORTED_STATESkipping tactic 4 due to insufficient memory on requested size of 66048 detected for tactic 0x000000000000001f.",
    ),
    (
        "tactic_over_memory",
        _PYTHON.format("W")
        + "Tactic Device request: 448MB Available: 425MB. Device memory is insufficient to use tactic.",
    ),
    (
        "workspace_short",
        _PYTHON.format("I")
        + "Some tactics do not have sufficient workspace memory to run. Increasing workspace size will enable more tactics, please check verbose output for requested sizes.",
    ),
    (
        "tactics_failed",
        "[03/28/2024-14:47:58] [W] [TRT] Skipping tactic 0x0000000000000000 due to exception an illegal memory access was encountered",
    ),
    (
        "gpu_fault",
        "[03/28/2024-14:47:58] [W] [TRT] Skipping tactic 0x0000000000000000 due to exception an illegal memory access was encountered",
    ),
    (
        "allocator_short",
        "2018-10-19 17:53:13.156435: W tensorflow/core/common_runtime/bfc_allocator.cc:271] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.59GiB (rounded to 2781020928)requested by op Conv2D",
    ),
    (
        "allocator_short_soft",
        "2018-10-19 17:53:02.416762: W tensorflow/core/common_runtime/bfc_allocator.cc:215] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.59GiB. The caller indicates that this is not a failure, but may mean that there could be performance gains if more memory were available.",
    ),
    (
        "tensor_without_memory",
        "2018-10-19 17:53:13.158377: W tensorflow/core/framework/op_kernel.cc:1273] OP_REQUIRES failed at conv_ops.cc:693 : Resource exhausted: OOM when allocating tensor with shape[10000,64,24,24] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
    ),
    (
        "tensorrt_without_memory",
        "[12/07/2020-10:32:37] [E] [TRT] C:\\source\\rtSafe\\safeRuntime.cpp (25) - Cuda Error in nvinfer1::internal::DefaultAllocator::allocate: 2 (out of memory)",
    ),
    (
        "tensorrt_without_memory",
        _TRT_ERROR
        + "2: [virtualMemoryBuffer.cpp::resizePhysical::145] Error Code 2: OutOfMemory (no further information)",
    ),
    ("layer_without_memory", "WARNING: Get cuda error during getBestTactic: (Unnamed Layer* 1) [ElementWise]"),
    (
        "engine_of_other_tensorrt",
        "[06/08/2022-15:28:47] [TRT] [E] 1: [stdArchiveReader.cpp::StdArchiveReader::40] Error Code 1: Serialization (Serialization assertion stdVersionRead == serializationVersion failed.Version tag does not match. Note: Current Version: 213, Serialized Engine Version: 205)",
    ),
    (
        "engine_of_other_tensorrt",
        "[TensorRT] ERROR: 6: The engine plan file is not compatible with this version of TensorRT, expecting library version 8.0.0 got 8.0.1, please rebuild.",
    ),
    (
        "engine_of_other_gpu",
        "[TensorRT] ERROR: INVALID_CONFIG: The engine plan file is generated on an incompatible device, expecting compute 6.1 got compute 7.5, please rebuild.",
    ),
    (
        "engine_of_similar_gpu",
        _PYTHON.format("W")
        + "Using an engine plan file across different models of devices is not recommended and is likely to affect performance or even cause errors.",
    ),
    (
        "no_engine_file",
        "[TensorRT] ERROR: coreReadArchive.cpp (31) - Serialization Error in verifyHeader: 0 (Magic tag does not match)",
    ),
    (
        "no_engine_to_load",
        "[06/08/2022-15:28:47] [TRT] [E] 4: [runtime.cpp::deserializeCudaEngine::50] Error Code 4: Internal Error (Engine deserialization failed.)",
    ),
    (
        "tensorrt_major_differs",
        "WARNING:tensorflow:TensorRT mismatch. Compiled against version 5.0.2, but loaded 5.1.2. Things may not work.",
    ),
    (
        "tensorrt_minor_differs",
        "INFO:tensorflow:Loaded TensorRT 8.5.3 and linked TensorFlow against TensorRT 8.4.3. This is supported because TensorRT minor/patch upgrades are backward compatible.",
    ),
    (
        "tensorrt_not_found",
        "2024-05-03 14:51:51.684995: W tensorflow/compiler/tf2tensorrt/utils/py_utils.cc:38] TF-TRT Warning: Could not find TensorRT",
    ),
    (
        "no_gpu",
        "2024-05-03 14:51:52.375372: W tensorflow/core/common_runtime/gpu/gpu_device.cc:2251] Cannot dlopen some GPU libraries. Please make sure the missing libraries mentioned above are installed properly",
    ),
    (
        "library_not_loaded",
        "2020-01-13 11:01:04.871285: I tensorflow/stream_executor/platform/default/dso_loader.cc:53] Could not dlopen library 'libcublas.so.10.0'; dlerror: libcublas.so.10.0: cannot open shared object file: No such file or directory",
    ),
    (
        "library_not_loaded",
        "Could not load library libcudnn_cnn_infer.so.8. Error: libnvrtc.so: cannot open shared object file: No such file or directory",
    ),
    (
        "tensorrt_libraries_differ",
        "[03/23/2023-15:23:21] [TRT] [W] TensorRT was linked against cuDNN 8.2.1 but loaded cuDNN 8.0.4",
    ),
    (
        "kernels_compiled_at_first_use",
        "2026-11-24 07:44:35.672149: W tensorflow/core/common_runtime/gpu/gpu_device.cc:2303] TensorFlow was not built with CUDA kernel binaries compatible with compute capability 9.0. CUDA kernels will be jit-compiled from PTX, which could take 30 minutes or longer.",
    ),
    (
        "driver_too_old",
        "[11/24/2026-07:20:27] [TRT] [W] CUDA initialization failure with error: 35. Please check your CUDA installation:  http://docs.nvidia.com/cuda/cuda-installation-guide-linux/index.html",
    ),
    ("cuda_not_started", "[11/24/2026-07:20:27] [TRT] [W] CUDA initialization failure with error: 100"),
    ("gpu_memory_unknown", "[11/24/2026-07:20:27] [TRT] [W] Unable to determine GPU memory usage"),
    (
        "op_not_registered",
        "2019-06-28 04:38:22.403601: E tensorflow_serving/util/retrier.cc:37] Loading servable: {name: trt-frcnn version: 1} failed: Not found: Op type not registered 'TRTEngineOp' in binary running on 1e69d63dfee9. Make sure the Op and Kernel are registered in the binary running in this process.",
    ),
    (
        "version_not_loaded",
        "2019-06-28 04:38:22.403601: E tensorflow_serving/util/retrier.cc:37] Loading servable: {name: trt-frcnn version: 1} failed: Not found: Op type not registered 'TRTEngineOp' in binary running on 1e69d63dfee9.",
    ),
    (
        "version_not_loaded",
        "2026-11-24 07:55:44.249: E loading {name: broken version: 1} failed: OUT_OF_RANGE: Read less bytes than requested",
    ),
    (
        "version_given_up",
        _SERVING.format("I", "util/retrier.cc:50")
        + "Retrying of Loading servable: {name: m version: 1} exhausted max_num_retries: 5",
    ),
    (
        "version_given_up",
        "2026-11-24 07:55:44.249: E servable {name: broken version: 1} cannot be loaded: OUT_OF_RANGE: Read less bytes than requested",
    ),
    (
        "server_not_started",
        "Failed to start server. Error: UNKNOWN: 1 servable(s) did not become available: {{{name: m version: 1} due to error: NOT_FOUND: x}, }",
    ),
    (
        "no_version",
        "2026-11-24 07:55:43.237: W no versions of none under base path /models/none: a version is a directory with a number for a name, like /models/none/1",
    ),
    (
        "no_version",
        _SERVING.format("W", "sources/storage_path/file_system_storage_path_source.cc:268")
        + "No versions of servable b found under base path gs://a/b. Did you forget to name your leaf directory as a number (eg. '/1/')?",
    ),
    (
        "base_path_unreadable",
        _SERVING.format("E", "sources/storage_path/file_system_storage_path_source.cc:353")
        + "FileSystemStoragePathSource encountered a filesystem access error: Could not find base path gs://a/b for servable b with error NOT_FOUND: no bucket",
    ),
    (
        "no_warmup",
        "2026-11-24 07:55:42.392: I No warmup data file found at /models/digits/1/assets.extra/tf_serving_warmup_requests",
    ),
    (
        "version_loaded",
        _SERVING.format("I", "core/loader_harness.cc:95") + "Successfully loaded servable version {name: a version: 1}",
    ),
    (
        "batch_queue_full",
        _SERVING.format("W", "x.cc:1")
        + "UNAVAILABLE: The batch scheduling queue to which this task was submitted is full; currently 10 batches enqueued and max_enqueued_batches is 10",
    ),
    ("calibration_failed", _OP.format("E") + "Calibration failed: INTERNAL: Failed to build TensorRT engine"),
    ("calibration_not_kept", "WARNING:tensorflow:Warning calibration error for PartitionedCall/TRTEngineOp_000_000"),
    (
        "tensor_without_range",
        _PYTHON.format("W")
        + "Missing scale and zero-point for tensor (Unnamed Layer* 321) [Shuffle]_output, expect fall back to non-int8 implementation for any layer consuming or producing given tensor",
    ),
    (
        "no_calibrator",
        "2023-08-21 17:24:59.358624197 [W:onnxruntime:Default, tensorrt_execution_provider.h:75 log] [2023-08-21 15:24:59 WARNING] Calibrator is not being used. Users must provide dynamic range for all tensors that are not Int32 or Bool.",
    ),
    (
        "calibrator_not_used",
        "[01/10/2024-21:52:52] [W] [TRT] Calibrator won't be used in explicit precision mode. Use quantization aware training to generate network with Quantize/Dequantize nodes.",
    ),
    (
        "weights_changed",
        _TRT + "TensorRT encountered issues when converting weights between types and that could affect accuracy.",
    ),
    (
        "weights_changed",
        "[09/19/2022-11:36:03] [TRT] [W] Weights [name=Conv_620 + PWN(PWN(Sigmoid_621), Mul_622).weight] had the following issues when converted to FP16:",
    ),
    (
        "weights_overflow_fp16",
        _TRT
        + "- 2 weights are affected by this issue: Detected finite FP32 values which would overflow in FP16 and converted them to the closest finite FP16 value.",
    ),
    (
        "weights_overflow_fp16",
        "[10/31/2022-11:31:08] [TRT] [W]  - Finite FP32 values which would overflow in FP16 detected.  Converting to closest finite FP16 value.",
    ),
    ("weights_subnormal_fp16", _TRT + "- 6 weights are affected by this issue: Detected subnormal FP16 values."),
    ("weights_subnormal_fp16", "[09/19/2022-11:36:03] [TRT] [W]  - Subnormal FP16 values detected. "),
    (
        "cpu_kernel_on_gpu",
        "2026-11-28 16:52:11.086455: W tensorflow/core/framework/op_kernel.cc:1817] INVALID_ARGUMENT: No registered '_MklLayerNorm' OpKernel for 'GPU' devices compatible with node {{node functional_1/layer_normalization_1/add}}",
    ),
    (
        "layernorm_in_fp16",
        _PYTHON.format("W")
        + "Running layernorm after self-attention in FP16 may cause overflow. Exporting the model to the latest available ONNX opset (later than opset 17) to use the INormalizationLayer, or forcing layernorm layers to run in FP32 precision can help with preserving accuracy.",
    ),
    (
        "int64_narrowed",
        _TRTEXEC.format("W")
        + "onnx2trt_utils.cpp:365: Your ONNX model has been generated with INT64 weights, while TensorRT does not natively support INT64. Attempting to cast down to INT32.",
    ),
    (
        "int64_cut",
        "[TensorRT] WARNING: onnx2trt_utils.cpp:222: One or more weights outside the range of INT32 was clamped",
    ),
    ("node_not_parsed", 'ERROR: ModelImporter.cpp:773: While parsing node number 22 [Reshape -> "pred/Conv2D__49:0"]:'),
    (
        "op_not_imported",
        _TRTEXEC.format("E")
        + 'ModelImporter.cpp:726: ERROR: builtin_op_importers.cpp:5415 In function importFallbackPluginImporter: [8] Assertion failed: creator && "Plugin not found, are the plugin name, version, and namespace correct?"',
    ),
    (
        "op_not_imported",
        _TRTEXEC.format("I") + "No importer registered for op: DCNv2_TRT. Attempting to import as plugin.",
    ),
    (
        "shape_outside_of_profiles",
        "[01/05/2024-03:20:20] [TRT] [E] 3: [executionContext.cpp::setInputShape::2288] Error Code 3: API Usage Error (Parameter check failed at: runtime/api/executionContext.cpp::setInputShape::2288, condition: satisfyProfile Runtime dimension does not satisfy any optimization profile.)",
    ),
    (
        "shape_outside_of_profiles",
        "[08/14/2023-18:08:38] [E] [TRT] 3: [executionContext.cpp::validateInputBindings::1831] Error Code 3: API Usage Error (Parameter check failed at: executionContext.cpp::validateInputBindings::1831, condition: profileMaxDims.d[i] >= dimensions.d[i]. Supplied binding dimension [10,3,128,64] for bindings[0] exceed min ~ max range at index 0, maximum dimension in profile is 1, minimum dimension in profile is 1, but supplied dimension is 10.)",
    ),
    (
        "shape_chosen",
        "[11/01/2024-10:32:48] [W] Dynamic dimensions required for input: input, but no shapes were provided. Automatically overriding shape to: 1x3x224x224",
    ),
    (
        "times_unstable",
        "[11/01/2024-10:32:48] [W] * GPU compute time is unstable, with coefficient of variance = 5.1%.",
    ),
    (
        "no_lazy_loading",
        "[08/07/2024-07:04:40] [TRT] [W] CUDA lazy loading is not enabled. Enabling it can significantly reduce device memory usage and speed up TensorRT initialization.",
    ),
    ("process_ended", "Segmentation fault (core dumped)"),
    (
        "check_failed",
        "2020-02-13 02:33:41.317620: F tensorflow/core/framework/op_kernel.cc:898] Check failed: mutable_output(index) == nullptr (0x7ff68c02e790 vs. nullptr)",
    ),
    (
        "ops_left",
        "2026-11-24 07:17:07.435534: W tensorflow/compiler/tf2tensorrt/segment/segment.cc:970] \n\n####\nTensorRT unsupported/non-converted OP Report:\n\t- NoOp -> 2x\n\t- Identity -> 1x",
    ),
    (
        "engine_limit_unused",
        "2026-11-24 07:17:07.435662: W tensorflow/compiler/tf2tensorrt/segment/segment.cc:1298] The environment variable TF_TRT_MAX_ALLOWED_ENGINES=20 has no effect since there are only 1 TRT Engines with  at least minimum_segment_size=3 nodes.",
    ),
    (
        "libraries_registered_twice",
        "2026-11-24 07:17:04.301116: E tensorflow/compiler/xla/stream_executor/cuda/cuda_dnn.cc:9342] Unable to register cuDNN factory: Attempting to register factory for plugin cuDNN when one has already been registered",
    ),
    (
        "memory_growth",
        "2026-11-24 07:44:36.086455: W tensorflow/core/common_runtime/gpu/gpu_bfc_allocator.cc:47] Overriding orig_value setting because the TF_FORCE_GPU_ALLOW_GROWTH environment variable is set. Original config value was 0.",
    ),
    (
        "binding_of_other_profile",
        _TRT + "ICudaEngine::getProfileDimensions: bindingIndex 0 is not in profile 1. Using bindingIndex = 2 instead.",
    ),
    (
        "preview_feature_off",
        _TRT
        + "Using PreviewFeature::kFASTER_DYNAMIC_SHAPES_0805 can help improve performance and resolve potential functional issues.",
    ),
    (
        "rank_ended_server",
        "2026-11-25 10:11:12.386455: F ./tensorflow/core/util/tensor_format.h:428] Check failed: index >= 0 && index < num_total_dims Invalid index from the dimension: 3, 0, C",
    ),
    (
        "no_rows_ended_server",
        "2026-11-25 10:11:12.386455: F tensorflow/core/framework/tensor.cc:1003] Check failed: limit <= dim0_size (1 vs. 0)",
    ),
    (
        "engines_run_natively",
        "2026-11-25 10:11:12.386: W no GPU here: 2 TF-TRT engines of /models/digits/1 run natively",
    ),
    (
        "engines_run_natively",
        "2026-11-25 10:11:12.386: W no GPU here: 1 TF-TRT engine of /models/digits/1 runs natively",
    ),
    (
        "engines_of_other_tensorrt_not_loaded",
        "2026-11-28 10:11:12.386: W engines of another TensorRT: /models/digits/1 has those of 8.5.3.1, and 8.6.0 is here, which loads none of "
        "them on any GPU",
    ),
    ("ended_under_way", "2026-11-25 10:11:12.386: W requests or loads still run, they end with the process"),
    (
        "configuration_not_reloaded",
        "2026-11-25 10:11:12.386: E a reload of /models/models.config failed: INVALID_ARGUMENT: Invalid protobuf file: '/models/models.config'",
    ),
    (
        "development_server_fault",
        "2026-11-25 10:11:12.386: E a fault of the development server: a PredictRequest failed",
    ),
    (
        "development_server_fault",
        "2026-11-25 10:11:12.386: E a fault of the development server: the REST request POST /v1/models/digits:predict failed",
    ),
]
