"""What a GPU can do at most: operations and bytes a second, by its compute capability, its multiprocessors and its clocks.

The operations of one multiprocessor in one clock are NVIDIA's (a multiply-add counts as two; dense, no sparsity). Each row names the paper;
the figures of its product table follow from the row, with that product's multiprocessors and boost clock. Memory moves two bits a clock
on each wire of its bus: by NVML's clock and width this gives the bandwidth of the data sheets (T4 320, A100 1555, H100 SXM 3352 GB/s).
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from tftrt_tools.base import records

# In what a layer multiplies. TF32: float32 whose products are rounded to 10 bits; TensorRT takes it for FP32 where there is hardware.
Arithmetic = Literal["FP32", "TF32", "FP16", "INT8"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _PerClock:
    """Operations of one multiprocessor in one clock; 0 where it has no hardware for them."""

    fp32: int
    tf32: int
    fp16: int
    int8: int
    source: str


_TABLE = {
    "7.0": _PerClock(
        fp32=128,
        tf32=0,
        fp16=1024,
        int8=512,
        source="NVIDIA Tesla V100 GPU Architecture, WP-08608-001: V100 SXM2, 80 SMs, 1530 MHz: 125 TFLOPS; INT8 by DP4A",
    ),
    "7.5": _PerClock(
        fp32=128,
        tf32=0,
        fp16=1024,
        int8=2048,
        source="NVIDIA Turing GPU Architecture, WP-09183-001: T4, 40 SMs, 1590 MHz: 65 TFLOPS, 130 INT8 TOPS",
    ),
    "8.0": _PerClock(
        fp32=128,
        tf32=1024,
        fp16=2048,
        int8=4096,
        source="NVIDIA A100 Tensor Core GPU Architecture: A100, 108 SMs, 1410 MHz: 312 TFLOPS, 156 in TF32, 624 INT8 TOPS",
    ),
    "8.6": _PerClock(
        fp32=256,
        tf32=512,
        fp16=1024,
        int8=2048,
        source="NVIDIA Ampere GA102 GPU Architecture, v2, table 6; A10 data sheet, 72 SMs, 1695 MHz: 125 TFLOPS",
    ),
    "8.9": _PerClock(
        fp32=256,
        tf32=512,
        fp16=1024,
        int8=2048,
        source="NVIDIA Ada GPU Architecture; L4 data sheet, 58 SMs, 2040 MHz: 121 TFLOPS, half of the sparse 242",
    ),
    "9.0": _PerClock(
        fp32=256,
        tf32=2048,
        fp16=4096,
        int8=8192,
        source="NVIDIA H100 Tensor Core GPU Architecture: H100 SXM5, 132 SMs, 1830 MHz: 989.4 TFLOPS, 494.7 in TF32",
    ),
}
_HALVED = ("8.6", "8.9", "7.5")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Peaks(records.Record):
    """The peak rates of one GPU."""

    # {arithmetic: operations a second}, of those that it has hardware for.
    flops: dict[Arithmetic, float]
    # Bytes a second of its memory; None where NVML does not tell the bus.
    bytes_per_s: float | None
    # The clock of the multiprocessors for which `flops` holds, in MHz, and where it comes from.
    sm_mhz: float
    clock: Literal["measured under this load", "the highest that NVML names"]
    multiprocessors: int
    # Where the operations a clock come from.
    source: str
    # What readers of the figures need to know, or "".
    note: str = ""

    def of(self, arithmetic: str) -> float | None:
        """Operations a second in an arithmetic; None for one without hardware or name."""
        return next((rate for name, rate in self.flops.items() if name == arithmetic), None)


def of(
    compute_capability: str,
    name: str,
    multiprocessors: int,
    sm_mhz: float,
    measured: bool,
    memory_mhz: float | None,
    memory_bus_bits: int | None,
) -> Peaks | None:
    """The Peaks of a GPU; None for a compute capability that is not in the table.

    Args: name: NVML's. sm_mhz: the clock under load if `measured`, else NVML's highest. memory_mhz: NVML's clock of the memory.
    """
    per_clock = _TABLE.get(compute_capability)
    if per_clock is None:
        return None
    rates: dict[Arithmetic, int] = {
        "FP32": per_clock.fp32,
        "TF32": per_clock.tf32,
        "FP16": per_clock.fp16,
        "INT8": per_clock.int8,
    }
    each = multiprocessors * sm_mhz * 1e6
    halved = compute_capability in _HALVED and "GeForce" in name
    return Peaks(
        flops={arithmetic: rate * each for arithmetic, rate in rates.items() if rate},
        bytes_per_s=2 * memory_mhz * 1e6 * memory_bus_bits / 8 if memory_mhz and memory_bus_bits else None,
        sm_mhz=sm_mhz,
        clock="measured under this load" if measured else "the highest that NVML names",
        multiprocessors=multiprocessors,
        source=per_clock.source,
        note="GeForce cards do half of this in FP16 where the sums are FP32" if halved else "",
    )
