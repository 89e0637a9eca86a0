"""What does not fit together: TensorRT, CUDA, cuDNN, the GPU, TensorFlow, and engines or models of other ones."""

from tftrt_tools.base import errors
from tftrt_tools.base.logs.message import known

_REBUILD = "build it again with the TensorRT and on the kind of GPU that serve it: `tftrt build`"
_DOCTOR = "`tftrt doctor` says which library does not fit and what fixes it"

OTHER_TENSORRT = known(
    "engine_of_other_tensorrt",
    "version",
    "error",
    "The engine plan file is not compatible with this version of TensorRT, expecting library version {expected} got {got}, please rebuild",
    "The engine plan file is not compatible with this version of TensorRT",
    "Version tag does not match. Note: Current Version: {number}, Serialized Engine Version: {other}",
    "Version tag does not match",
    meaning="An engine was built by another TensorRT. TF-TRT does not check that: the process often ends right after this line.",
    mend=_REBUILD,
)
UNLOADABLE = known(
    "engines_of_other_tensorrt_not_loaded",
    "version",
    "warning",
    "engines of another TensorRT: {model} has those of {built}, and {here} is here, which loads none of them on any GPU",
    meaning="The development server has no GPU and loads no engine. With the TensorRT that is here a GPU would not run them either.",
    mend=_REBUILD,
)
NO_ENGINE_FILE = known(
    "no_engine_file",
    "version",
    "error",
    "Magic tag does not match",
    "magicTagRead == kMAGIC_TAG",
    meaning="What was loaded is no engine of this TensorRT at all: a damaged file, or one of another kind.",
    mend=_REBUILD,
)
OTHER_GPU = known(
    "engine_of_other_gpu",
    "version",
    "error",
    "The engine plan file is generated on an incompatible device, expecting compute {expected} got compute {got}, please rebuild",
    meaning="An engine was built for another compute capability. TF-TRT does not check that: the process often ends right after this line.",
    mend=_REBUILD,
)
SIMILAR_GPU = known(
    "engine_of_similar_gpu",
    "version",
    "warning",
    "Using an engine plan file across different models of devices is not recommended",
    meaning="An engine was built on another model of GPU of the same capability: it runs, and its kernels were chosen for the other one.",
    mend=_REBUILD,
)
OTHER_RTC = known(
    "engine_of_other_nvrtc",
    "version",
    "error",
    "due to mismatch of libnvrtc version",
    meaning="An engine needs another libnvrtc.",
    mend=_DOCTOR,
)
LOADED_MAJOR = known(
    "tensorrt_major_differs",
    "version",
    "error",
    "Loaded TensorRT {loaded} but linked TensorFlow against TensorRT {linked}. A few requirements",
    "TensorRT mismatch. Compiled against version {linked}, but loaded {loaded}. Things may not work",
    "Incompatible TensorRT major version",
    "version of TensorRT: `{version}` has now been removed",
    meaning="The TensorRT that was found is not of the release that this TensorFlow was built for.",
    mend=_DOCTOR,
)
LOADED_MINOR = known(
    "tensorrt_minor_differs",
    "version",
    "note",
    "Loaded TensorRT {loaded} and linked TensorFlow against TensorRT {linked}. This is supported",
    meaning="TensorFlow was built for an older release of the same major version. That is supported.",
)
NOT_LINKED = known(
    "built_without_tensorrt",
    "version",
    "error",
    "Tensorflow needs to be built with TensorRT support enabled to allow TF-TRT to operate",
    "Tensorflow has not been built with TensorRT support",
    meaning="This TensorFlow has no TF-TRT: the CPU wheel, or 2.18 and later.",
    mend=f"the extra brings one that has it; {errors.install('tftrt')}",
)
NO_TENSORRT = known(
    "tensorrt_not_found",
    "machine",
    "warning",
    "Could not find TensorRT",
    "Cannot dlopen some TensorRT libraries",
    "Cannot dlopen all TensorRT libraries",
    meaning="TensorFlow found no TensorRT that it can use. It runs, and no engine is built.",
    mend=_DOCTOR,
)
LIBRARY = known(
    "library_not_loaded",
    "machine",
    "error",
    "Could not load dynamic library '{library}'; dlerror: {why}",
    "Could not load dynamic library '{library}'",
    "Could not dlopen library '{library}'; dlerror: {why}",
    "Could not load library {library}. Error: {why}",
    "{library}: cannot open shared object file",
    meaning="A library is missing, or lies where the program does not look.",
    mend=_DOCTOR,
    subject="library",
)
LINKED_OTHER = known(
    "tensorrt_libraries_differ",
    "version",
    "warning",
    "TensorRT was linked against {library} {linked} but loaded {found}",
    "TensorRT was compiled against {library} {linked} but is linked against {found}",
    meaning="TensorRT found another release of cuDNN or cuBLAS than it was built for. It mostly works, and is not what was tested.",
    mend="the release that the message names, where results or speed are odd",
    subject="library",
)
CUDNN = known(
    "cudnn_too_old",
    "version",
    "error",
    "Loaded runtime CuDNN library: {loaded} but source was compiled with: {compiled}.",
    meaning="The cuDNN that was found is older than the one that TensorFlow was built with: convolutions fail.",
    mend=_DOCTOR,
)
CAPABILITY = known(
    "kernels_compiled_at_first_use",
    "speed",
    "warning",
    "TensorFlow was not built with CUDA kernel binaries compatible with compute capability {number}",
    meaning="The GPU is newer than this TensorFlow: it compiles its kernels at first use, which takes minutes once a machine. TensorRT's "
    "engines do not need that.",
    mend="keep the folder ~/.nv (or CUDA_CACHE_PATH) of the user who serves",
)
DRIVER = known(
    "driver_too_old",
    "version",
    "error",
    "CUDA driver version is insufficient for CUDA runtime version",
    "CUDA initialization failure with error: 35.",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
    "Failed to query CUDA driver version",
    meaning="The NVIDIA driver is missing, or older than this CUDA needs.",
    mend="`tftrt doctor` says which driver is needed; update it",
)
NO_IMAGE = known(
    "no_kernel_for_this_gpu",
    "version",
    "error",
    "no kernel image is available for execution on the device",
    "CUDA_ERROR_NO_BINARY_FOR_GPU",
    "does not support this compute capability",
    meaning="A program was not compiled for this GPU.",
    mend="a release that supports it; `tftrt doctor`",
)
UNKNOWN_OP = known(
    "op_not_registered",
    "version",
    "error",
    "Op type not registered '{op}'",
    meaning="This program does not know an op of the model. For TRTEngineOp and CreateTRTResourceHandle: it is built without TF-TRT.",
    mend="serve the model with a program that has the op; the original model, where that is TF-TRT's",
    subject="op",
)
NO_OP_KERNEL = known(
    "op_without_kernel",
    "version",
    "error",
    "No OpKernel was registered to support Op '{op}'",
    meaning="This program knows the op and has no kernel for it here. For TF-TRT's ops: it sees no GPU.",
    mend="run it on the GPU (`tftrt doctor`), or serve the original model here",
    subject="op",
)
CPU_KERNEL_ON_GPU = known(
    "cpu_kernel_on_gpu",
    "version",
    "error",
    "No registered '_Mkl{op}' OpKernel for 'GPU' devices",
    meaning="TensorFlow 2.15 to 2.17 hands a layer normalization of Keras 2, or one written like it, to a kernel for CPUs, on a GPU, too.",
    mend="TF_ENABLE_ONEDNN_OPTS=0 in the environment, of the server, too; or convert it with dynamic shapes, which writes it otherwise",
    subject="op",
)
OLD_GRAPH = known(
    "converted_by_old_release",
    "version",
    "error",
    "Explicit batch mode requires attribute input_shapes to be set",
    meaning="The model was converted by an older TF-TRT, without what this one needs.",
    mend="convert the original model again",
)
OLD_SEGMENT = known(
    "segment_of_old_release",
    "conversion",
    "note",
    "has attribute kIntsOnDeviceAttr=true and will be executed natively with allow_soft_placement=false",
    meaning="A segment of an older conversion runs its integers on the GPU.",
    mend="convert the original model again, if that fails",
)

ALL = (
    OTHER_TENSORRT,
    UNLOADABLE,
    NO_ENGINE_FILE,
    OTHER_GPU,
    SIMILAR_GPU,
    OTHER_RTC,
    LOADED_MAJOR,
    LOADED_MINOR,
    NOT_LINKED,
    NO_TENSORRT,
    LIBRARY,
    LINKED_OTHER,
    CUDNN,
    CAPABILITY,
    DRIVER,
    NO_IMAGE,
    UNKNOWN_OP,
    NO_OP_KERNEL,
    CPU_KERNEL_ON_GPU,
    OLD_GRAPH,
    OLD_SEGMENT,
)
