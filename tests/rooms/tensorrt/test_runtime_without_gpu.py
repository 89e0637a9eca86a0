"""TensorRT 8.6 ends the process where a runtime is made without a driver: the driver is asked first."""

import sys

import pytest

from tftrt_tools.base import errors

pytest.importorskip("tensorrt")
from tftrt_tools.models.execution.job import device  # noqa: E402
from tftrt_tools.models.kinds.plan.job import engine  # noqa: E402
from tftrt_tools.studies.profiling.job import plan_context  # noqa: E402


@pytest.mark.parametrize(("module", "kind"), [(engine, errors.TftrtError), (plan_context, RuntimeError)])
def test_no_runtime_is_made_without_a_gpu(module, kind, monkeypatch):
    made = []
    monkeypatch.setattr(device, "seen", lambda: None)
    monkeypatch.setattr(module.trt, "Runtime", lambda *_: made.append(1))
    with pytest.raises(kind, match="no GPU is visible"):
        module.runtime.__wrapped__()
    assert made == []


@pytest.mark.parametrize(("python", "said"), [((3, 10), "in a checkout"), ((3, 12), "with Python 3.10, in a checkout")])
def test_each_python_is_told_how_it_gets_the_bindings(python, said, monkeypatch):
    monkeypatch.setattr(sys, "version_info", (*python, 0))
    assert errors.install_bindings().startswith(said)
