"""Requests that failed, and requests that TensorRT refused for their shapes."""

from tftrt_tools.base.logs.message import known

OUTSIDE = known(
    "shape_outside_of_profiles",
    "request",
    "error",
    "Runtime dimension does not satisfy any optimization profile",
    "condition: profileMaxDims.d[i] >= dimensions.d[i]",
    "condition: profileMinDims.d[i] <= dimensions.d[i]",
    "exceed min ~ max range at index {number}",
    "Static dimension mismatch while setting input shape for {input}",
    "Static model does not take explicit shapes",
    meaning="A request has a shape that no profile of the engine holds.",
    mend="build with that shape: `tftrt build --shapes=…`; trtexec: --minShapes, --optShapes, --maxShapes",
)
QUEUE = known(
    "batch_queue_full",
    "request",
    "error",
    "The batch scheduling queue to which this task was submitted is full",
    meaning="More requests came than the server batches and computes, and it refused some.",
    mend="`tftrt bench --tune_batching` finds batching parameters that keep up; max_enqueued_batches; or a second server",
)
QUEUE_TIMEOUT = known(
    "batch_queue_timeout",
    "request",
    "error",
    "Run() timeout exceeded while waiting in batching queue",
    meaning="Requests waited in the batching queue for longer than their deadline.",
    mend="as for a full queue; or a longer deadline",
)
TOO_LARGE = known(
    "batch_too_large",
    "request",
    "error",
    "Task size {number} is larger than maximum input batch size {most}",
    meaning="A request is larger than max_batch_size, and was refused.",
    mend="a larger max_batch_size, or smaller requests",
)
UNEQUAL = known(
    "batch_inputs_differ",
    "request",
    "error",
    "Batching session Run() input tensors must have equal 0th-dimension size",
    "Batching Run() input tensors must have equal 0th-dimension size",
    "Batching Run() input tensors must have at least one dimension",
    "from different tasks have different shapes and padding is turned off",
    "Batched output tensor's 0th dimension does not equal the sum",
    meaning="A model whose inputs or outputs are not all batched cannot be served with batching; a bad request fails its whole batch.",
    mend="serve it without --enable_batching, or pad (pad_variable_length_inputs)",
)
NO_SERVABLE = known(
    "model_not_served",
    "request",
    "error",
    "Servable not found for request: {servable}",
    meaning="A request named a model or version that is not served.",
    mend="`tftrt versions` shows what is",
    subject="servable",
)
OP_FAILED = known(
    "op_failed",
    "request",
    "error",
    "OP_REQUIRES failed at {place} : {said}",
    meaning="An op refused what it was given, and the request or the load failed with this message.",
    mend="fix what the message names: mostly the request's shapes or values",
)
NO_THREAD = known(
    "no_thread_left",
    "request",
    "error",
    "has no thread left for this call",
    meaning="All threads of the server were at work.",
    mend="--grpc_max_threads, or fewer calls at once",
)

WRONG_RANK = known(
    "rank_ended_server",
    "request",
    "error",
    "Check failed: index >= 0 && index < num_total_dims Invalid index from the dimension: {which}",
    meaning="A request had another number of dimensions than a convolution takes, and on a CPU that ends TensorFlow's process.",
    mend="TF_ENABLE_ONEDNN_OPTS=0 in the server's environment makes it an error of that request alone; send inputs of the declared rank",
)
NO_ROWS = known(
    "no_rows_ended_server",
    "request",
    "error",
    "Check failed: limit <= dim0_size ({sizes})",
    meaning="A request without rows was padded to one of allowed_batch_sizes, and that ends the server's process.",
    mend="refuse requests of 0 rows before the server; or serve without allowed_batch_sizes, which pads nothing",
)
SERVER_FAULT = known(
    "development_server_fault",
    "request",
    "error",
    "a fault of the development server: {what}",
    "a bug of the development server",
    meaning="The development server failed by a fault of its own; the traceback behind the line says where.",
    mend="the call got INTERNAL or status 500; ask the real server (--launch=docker or --launch=binary) the same",
)

ALL = (
    WRONG_RANK,
    NO_ROWS,
    SERVER_FAULT,
    OUTSIDE,
    QUEUE,
    QUEUE_TIMEOUT,
    TOO_LARGE,
    UNEQUAL,
    NO_SERVABLE,
    OP_FAILED,
    NO_THREAD,
)
