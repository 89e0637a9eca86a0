"""Warnings and errors that these versions write in every run, although nothing is wrong (TensorFlow 2.14.1, TensorRT 8.5.3.1)."""

from tftrt_tools.base.logs.message import known

FACTORIES = known(
    "libraries_registered_twice",
    "machine",
    "note",
    "Attempting to register factory for plugin {plugin} when one has already been registered",
    meaning="TensorFlow 2.14 to 2.17 write it at each start.",
)
NUMA = known(
    "numa_unknown",
    "machine",
    "note",
    "but there must be at least one NUMA node, so returning NUMA node zero",
    "could not open file to read NUMA node",
    "Your kernel may have been built without NUMA support",
    meaning="The system does not say to which processor the GPU belongs.",
)
ONE_DNN = known(
    "one_dnn",
    "machine",
    "note",
    "oneDNN custom operations are on",
    meaning="TensorFlow's kernels on the CPU round a little otherwise.",
)
CPU = known(
    "cpu_instructions",
    "machine",
    "note",
    "This TensorFlow binary is optimized",
    meaning="TensorFlow could use more of this CPU.",
)
PLUGIN_TWICE = known(
    "plugin_registered_twice",
    "machine",
    "note",
    "lugin creator already registered",
    "Could not register plugin creator",
    "Registered plugin creator - {plugin} version {version}",
    meaning="TensorRT's plugins were there already.",
)
UNUSED_INPUT = known(
    "input_unused",
    "machine",
    "note",
    "Unused Input: {input}",
    "[RemoveDeadLayers] Input Tensor {input} is unused or used only at compile-time",
    "Input Tensor {input} is unused or used only at compile-time",
    meaning="An input of a segment is not needed by its engine.",
)
BINDING = known(
    "binding_of_other_profile",
    "machine",
    "note",
    "ICudaEngine::getProfileDimensions: bindingIndex {number} is not in profile {profile}. Using bindingIndex",
    meaning="TF-TRT reads the profiles of a saved engine that has several; TensorRT answers all the same.",
)
GROWTH = known(
    "memory_growth",
    "machine",
    "note",
    "Overriding {setting} setting because the TF_FORCE_GPU_ALLOW_GROWTH environment variable is set",
    meaning="TensorFlow takes the GPU's memory bit by bit, as that variable says.",
)
CONSTANT = known(
    "constant_on_cpu",
    "machine",
    "note",
    "No registered 'ImmutableConst' OpKernel for GPU devices compatible with node",
    meaning="A constant stands in for an input while a graph is prepared; it is on the CPU.",
)
DESTROYED = known(
    "order_of_destruction",
    "machine",
    "note",
    "before destroying objects it created leads to undefined behavior",
    meaning="Objects were freed in an odd order, mostly at the end of the process.",
)
GETADDRINFO = known(
    "no_ipv6",
    "machine",
    "note",
    "getaddrinfo: address family for nodename not supported",
    meaning="The server's HTTP part finds no IPv6.",
)
XLA = known(
    "xla_compiler",
    "machine",
    "note",
    "Couldn't get ptxas/nvlink version string",
    "Couldn't get ptxas version",
    "Can't find libdevice directory",
    "Can't find ptxas binary in ${CUDA_DIR}/bin.",
    "Using CUDA malloc Async allocator",
    meaning="XLA's compiler for the GPU is not complete. TF-TRT does not need it.",
)

ALL = (
    FACTORIES,
    NUMA,
    ONE_DNN,
    CPU,
    PLUGIN_TWICE,
    UNUSED_INPUT,
    BINDING,
    GROWTH,
    CONSTANT,
    DESTROYED,
    GETADDRINFO,
    XLA,
)
