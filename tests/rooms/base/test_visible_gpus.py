"""Which of a host's GPUs a process may use: the state of the others is not its own."""

import pytest

from tftrt_tools.base.stack import gpu_state_job

UUIDS = ("GPU-11aa", "GPU-12bb", "GPU-3c00")


class Nvml:
    """A host of three GPUs, in the driver's order."""

    def nvmlDeviceGetCount(self):  # noqa: N802 (NVML's names)
        return len(UUIDS)

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return index

    def nvmlDeviceGetUUID(self, handle):  # noqa: N802
        return UUIDS[handle].encode()


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        (None, [0, 1, 2]),
        ("1", [1]),
        ("2,0", [2, 0]),
        (" 1 , 2", [1, 2]),
        ("GPU-3c00", [2]),
        ("GPU-12", [1]),
        ("", []),
        ("-1", []),
        ("0,-1,1", [0]),
        ("5", []),
        ("0,NoDevFiles", [0]),
        ("GPU-1", []),  # the beginning of two
    ],
)
def test_cuda_visible_devices_names_them(monkeypatch, named, expected):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if named is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert gpu_state_job.visible(Nvml()) == expected
