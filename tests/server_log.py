"""Lines of a server's log: those of tensorflow_model_server 2.14.1 as its source writes them, with messages that TensorFlow 2.14.1 gave."""

# Of a converted model with saved engines, on a machine without a GPU.
NO_KERNEL = """INVALID_ARGUMENT: No OpKernel was registered to support Op 'CreateTRTResourceHandle' used by {{node CreateTRTResourceHandle}} with \
these attrs: [_output_shapes=[[]], resource_name="TRTEngineOp_5e0374c23a_0_0"]
Registered devices: [CPU]
Registered kernels:
  device='GPU'

\t [[CreateTRTResourceHandle]]"""
NO_TFTRT = "NOT_FOUND: Op type not registered 'TRTEngineOp' in binary running on host. Make sure the Op and Kernel are registered in the binary"
NO_OP = "NOT_FOUND: Op type not registered 'Sharpen' in binary running on host. Make sure the Op and Kernel are registered in the binary"
DAMAGED = "DATA_LOSS: Unable to parse tensor proto: variables/variables.index"
TAGS = "NOT_FOUND: Could not find meta graph def matching supplied tags: { serve }."
SEVERAL = f"INVALID_ARGUMENT: 2 root error(s) found.\n  (0) {NO_KERNEL}\n  (1) {NO_KERNEL}\n0 successful operations."


def error(text: str) -> str:
    """A line of the server's log."""
    return f"2026-11-23 10:00:00.000000: E {text}"


def load_failure(name: str, version: int, said: str) -> str:
    """What the server writes after each try of a load."""
    return error(
        f"tensorflow_serving/util/retrier.cc:37] Loading servable: {{name: {name} version: {version}}} failed: {said}"
    )


def refused(*failed: tuple[str, int, str]) -> str:
    """Its last words where (name, version, message) of its first models did not load."""
    each = "".join(f"{{{{name: {name} version: {version}}} due to error: {said}}}, " for name, version, said in failed)
    return f"Failed to start server. Error: UNKNOWN: {len(failed)} servable(s) did not become available: {{{each}}}"


def as_without_native_copies(python: str, root: str) -> str:
    """A program that stands in for tensorflow_model_server: the development server, without its copies whose engine ops are replaced.

    So a converted model meets what it meets in the real server on a machine without a GPU. Args: python: interpreter. root: of the sources.
    """
    return f"""#!{python}
import sys
sys.path.insert(0, {root!r})
from tftrt_tools.servers.serving.local import __main__ as server
from tftrt_tools.servers.serving.local import loader
loader._runnable = lambda path, folder: path
sys.exit(server.main())
"""
