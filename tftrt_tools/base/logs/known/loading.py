"""What TensorFlow Serving says of its models, its configuration and itself (2.14.1), and the development server."""

from tftrt_tools.base.logs.message import known

_AGAIN = "the server looks again by itself once that is fixed"

FAILED = known(
    "version_not_loaded",
    "load",
    "error",
    "oading servable: {name: {model} version: {version}} failed: {said}",
    "oading {name: {model} version: {version}} failed: {said}",
    meaning="A version could not be loaded. The server tries again for minutes (--max_num_load_retries, --load_retry_interval_micros).",
    mend="fix what the message names",
    subject="model",
)
GIVEN_UP = known(
    "version_given_up",
    "load",
    "error",
    "Retrying of Loading servable: {name: {model} version: {version}} exhausted max_num_retries",
    "Encountered an error for servable version {name: {model} version: {version}}: {said}",
    "ervable {name: {model} version: {version}} cannot be loaded: {said}",
    meaning="The server has given a version up. Others of the model go on serving, if there are any.",
    mend="publish it again under a new number, fixed",
    subject="model",
)
NOT_STARTED = known(
    "server_not_started",
    "load",
    "error",
    "Failed to start server. Error: {said}",
    meaning="The server ended, because a model of its start did not load, or its configuration is wrong.",
    mend="fix what the message names",
)
FILE_SYSTEM = known(
    "base_path_unreadable",
    "load",
    "error",
    "filesystem access error: {said}",
    "file system access error: {said}",
    meaning="A base path cannot be read. Until that is fixed, the server finds no new version of any model.",
    mend=_AGAIN,
)
NO_VERSION = known(
    "no_version",
    "load",
    "warning",
    "No versions of servable {model} found under base path {path}",
    "no versions of {model} under base path {path}",
    meaning="A base path holds no version, so the model is not served.",
    mend="publish one: a directory with a number for a name; " + _AGAIN,
    subject="model",
)
NO_SUCH_VERSION = known(
    "version_not_found",
    "load",
    "warning",
    "Version {version} of servable {model}, which was requested to be served as a 'specific' version",
    "ersion {version} of {model}, a specific version of its policy, is not in the file system",
    meaning="models.config names a version that is not there.",
    mend="publish it, or take it out of model_version_policy",
    subject="model",
)
DUPLICATE = known(
    "version_twice",
    "load",
    "warning",
    "Duplicate version directories detected. Version {version} will be loaded from {path}",
    "ersion {version} of {model} is there twice: {taken} is taken",
    meaning="Two directories have the same number (such as 1 and 001); one is not served.",
    mend="take one of them away",
)
KEPT = known(
    "versions_kept",
    "load",
    "warning",
    "Refusing to unload all versions for Servable: {model}",
    meaning="A base path is empty now, and the server keeps what it has loaded.",
    mend="publish a version, or take the model out of models.config",
    subject="model",
)
NO_ROOM = known(
    "version_without_room",
    "memory",
    "error",
    "Insufficient resources to load servable {model}",
    meaning="By the server's estimate the machine has too little main memory for one more version.",
    mend="serve fewer models or versions at a time, or on a machine with more memory",
    subject="model",
)
LABEL = known(
    "label_without_version",
    "load",
    "error",
    "Request to assign label to version {version} of model {model}, which is not currently available",
    meaning="A label names a version that is not loaded yet: a server reads labels before it loads anything.",
    mend="add --allow_version_labels_for_unavailable_models",
    subject="model",
)
CONFIGURATION = known(
    "configuration_refused",
    "load",
    "error",
    "Failed to read ModelServerConfig file: {why}",
    "ReloadConfig failed: {why}",
    "PollFilesystemAndReloadConfig failed to ReloadConfig: {why}",
    "Cannot transition to requested config",
    meaning="A new models.config was not taken; the server goes on with the old one.",
    mend="`tftrt configure --check_files` says what is wrong in it",
)
BATCHING = known(
    "batching_parameters_wrong",
    "load",
    "error",
    "Last entry in allowed_batch_sizes must match max_batch_size",
    "allowed_batch_sizes entries must be monotonically increasing",
    "batch_scheduler not set",
    meaning="The batching parameters contradict each other, so no model loads.",
    mend="`tftrt configure --check_files` says where",
)
PORT = known(
    "port_taken",
    "load",
    "error",
    "Failed to start HTTP Server at {address}",
    "server_options.http_port cannot be same as grpc_port",
    "Failed to add port to server",
    "ddress already in use",
    "port is already allocated",
    meaning="The server does not get one of its ports.",
    mend="another --port or --rest_api_port; something else may listen on it",
)
SAVED_MODEL = known(
    "no_saved_model",
    "load",
    "error",
    "Could not find SavedModel .pb or .pbtxt at supplied export directory path: {path}",
    "Could not find meta graph def matching supplied tags: {tags}",
    "Could not find meta graph",
    meaning="A version directory holds no SavedModel, or none with the tags that the server asks for.",
    mend="publish the model again; `tftrt inspect` on the version directory shows its tags (--saved_model_tags)",
)
DAMAGED = known(
    "model_damaged",
    "load",
    "error",
    "DATA_LOSS: {why}",
    "Unable to parse tensor proto",
    "Read less bytes than requested",
    "Failed to parse warmup record",
    meaning="A file of the model is damaged or was not copied whole.",
    mend="publish the model again",
)
NO_WARMUP = known(
    "no_warmup",
    "speed",
    "note",
    "No warmup data file found at {path}",
    meaning="A version has no warm-up requests: its first requests are slow, and those that build engines take minutes.",
    mend="`tftrt publish` writes them, one for each declared shape",
)
WARMUP = known(
    "warmup_failed",
    "load",
    "error",
    "Number of warmup records exceeds the maximum",
    "Please verify your warmup data is in TFRecord format",
    "Unsupported log_type for warmup",
    meaning="A warm-up request was refused, and a version whose warm-up fails is not loaded.",
    mend="publish the model again, which writes its warm-up requests anew; --noenable_model_warmup goes without them",
)
PLATFORM = known(
    "model_type_old",
    "load",
    "note",
    "Deprecated ModelServerConfig::model_type field used",
    "sets the deprecated model_type: use model_platform",
    meaning="models.config uses an old field.",
    mend='model_platform: "tensorflow" instead',
)
EARLY = known(
    "cache_not_empty",
    "load",
    "error",
    "Expect engine cache to be empty, but got {number} entries",
    meaning="A model was loaded twice in one process, or two models have engines of one name.",
    mend="load it once; convert again with `tftrt convert`, which gives engines names of their own",
)
LOADED = known(
    "version_loaded",
    "load",
    "note",
    "Successfully loaded servable version {name: {model} version: {version}}",
    meaning="A version is served.",
    subject="model",
)

NATIVE = known(
    "engines_run_natively",
    "load",
    "warning",
    "no GPU here: {number} TF-TRT ",
    meaning="The development server has no GPU, so it computes the engines of this model as the TensorFlow ops that they were made from.",
    mend="nothing, for answers; serve on a machine with a GPU to see the engines' speed",
)
NOT_POLLED = known(
    "base_paths_not_polled",
    "load",
    "note",
    "file_system_poll_wait_seconds is 0: the base paths of {models} are not looked at",
    meaning="The server does not look for new versions of these models.",
    mend="leave --file_system_poll_wait_seconds out to have them looked at",
)
ENDED_BEFORE = known(
    "ended_under_way",
    "load",
    "warning",
    "requests or loads still run, they end with the process",
    meaning="The development server was told to end while requests or loads ran, and did not wait for them.",
    mend="end the clients first, where their answers matter",
)
NOT_RELOADED = known(
    "configuration_not_reloaded",
    "load",
    "error",
    "a reload of {file} failed: {said}",
    meaning="The configuration file was read again (--model_config_file_poll_wait_seconds) and refused. What was served before is.",
    mend="fix what the message names; `tftrt configure --check_files` says more",
)

ALL = (
    NATIVE,
    NOT_POLLED,
    ENDED_BEFORE,
    NOT_RELOADED,
    FAILED,
    GIVEN_UP,
    NOT_STARTED,
    FILE_SYSTEM,
    NO_VERSION,
    NO_SUCH_VERSION,
    DUPLICATE,
    KEPT,
    NO_ROOM,
    LABEL,
    CONFIGURATION,
    BATCHING,
    PORT,
    SAVED_MODEL,
    DAMAGED,
    NO_WARMUP,
    WARMUP,
    PLATFORM,
    EARLY,
    LOADED,
)
