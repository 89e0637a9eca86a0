"""The facts about a SavedModel that publishing needs, read only from its files; nothing is loaded or run."""

import dataclasses
from collections.abc import Callable

from tftrt_tools.base import records
from tftrt_tools.base.process import jobs
from tftrt_tools.models.savedmodel.engine_assets import EngineAsset
from tftrt_tools.models.savedmodel.inspection import Inspection

# Ops that only a TensorFlow with TF-TRT has.
TFTRT_OPS = frozenset({"TRTEngineOp", "CreateTRTResourceHandle", "InitializeTRTResource", "SerializeTRTResource"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts(records.Record):
    """A SavedModel for publishing."""

    # Its findings are those of `tftrt inspect --check`, without those about this machine and about the verification.
    seen: Inspection
    # TF-TRT converted it.
    converted: bool
    # {signature: its method name}
    methods: dict[str, str]
    # Ops that the TensorFlow here does not have.
    unknown_ops: tuple[str, ...]
    # {engine: version of TensorRT, such as "8.5.3", for which its INT8 table was made}
    tables: dict[str, str]
    # The number of TF-TRT's ops in the graph.
    engine_ops: int
    # Variables that signatures read and that a session does not find.
    lost: tuple[str, ...] = ()
    # Those of unknown_ops that the libraries of --op_library have.
    library_ops: tuple[str, ...] = ()

    @property
    def assets(self) -> list[EngineAsset]:
        """All EngineAssets that the model carries."""
        return [asset for file in self.seen.engine_files for asset in file.assets]


@jobs.job
def read() -> Callable[[str], Facts]:
    """The Facts of a SavedModel directory. Raises: TftrtError, UsageError."""
    from tftrt_tools.servers.serving.publishing import model_facts_job

    return model_facts_job.read
