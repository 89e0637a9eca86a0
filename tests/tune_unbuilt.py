"""`tftrt tune` on a machine where no plan can be built: a plan is the exported file, and ONNX Runtime runs it. It needs no TensorFlow.

python -m tests.tune_unbuilt MODEL [--flags]
"""

import sys
from unittest import mock

from tests import plan_runner
from tftrt_tools.command_line import cli
from tftrt_tools.models.backends.protocol import Evidence
from tftrt_tools.studies.tuning import given, making, measuring, space
from tftrt_tools.studies.tuning.plans import Plans

GPU = {"gpu": "none", "compute_capability": "", "driver": "", "tensorrt": "8.5.3"}


class Unbuilt(Plans):
    """Plans that are not built."""

    def made(self, settings, minutes=None):
        if isinstance(settings, space.Int8As):  # its two builds need a GPU
            return super().made(settings, minutes)
        return self.export(settings).parent

    def evidence(self, model):
        return Evidence(build_seconds=1.0, engine_bytes=1, engines=1, coverage=1.0)


if __name__ == "__main__":
    with (
        mock.patch.object(given, "gpu", lambda: GPU),
        mock.patch.dict(making.MAKERS, tensorrt=Unbuilt),
        mock.patch.object(measuring, "measure", plan_runner.measure),
    ):
        code = cli.main(["tune", *sys.argv[1:]])
    loaded = {"tensorflow", "tensorrt"} & set(sys.modules)
    sys.exit(f"loaded: {loaded}" if loaded else code)
