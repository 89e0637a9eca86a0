#!/usr/bin/env bash
# What plans have to show on a GPU, in steps of at most SECONDS_LEFT seconds (by default 390); run a step again where it says that no time was
# left: it goes on.
#
#   benchmarks/plans_on_gpu.sh STEP OUTPUT [MODELS_DIR]
#
# STEP:
#   make     engines of all variants: several at once under NVIDIA's MPS; needs 16 cores. Build times of this step are of a shared GPU
#   build    builds one after the other (first and second): the build times that count; CASES names some, by default mobilenet_v2
#   measure  latency and throughput, alone on the GPU
#   tests    tests/gpu/test_gpu_plans.py
# OUTPUT: a folder for models and results; `python -m benchmarks.plans --export --workdir=OUTPUT` fills it without a GPU. MODELS_DIR: what
# `python -m benchmarks.real_models --make --models_dir=…` wrote. PYTHON: the interpreter, by default .venv/bin/python. MORE: further flags of
# benchmarks.plans, such as --int8=resnet50=FILE.onnx.
set -euo pipefail
step=${1:?STEP is missing} output=${2:?OUTPUT is missing} models=${3:-}
python=${PYTHON:-.venv/bin/python} seconds=${SECONDS_LEFT:-390} jobs=${JOBS:-8}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p "$output"
read -ra more <<< "${MORE:-}"
read -ra cases <<< "${CASES:-}"
plans=("$python" -m benchmarks.plans --workdir="$output" --budget "$((seconds - 8))" ${models:+--models_dir="$models"} "${more[@]}")

case $step in
  make)
    mps=$(mktemp -d)
    export CUDA_MPS_PIPE_DIRECTORY=$mps CUDA_MPS_LOG_DIRECTORY=$mps TFTRT_BUILD_TURNS=0
    nvidia-cuda-mps-control -d || { echo "no MPS here: this will take long" >&2; unset CUDA_MPS_PIPE_DIRECTORY; }
    trap 'echo quit | nvidia-cuda-mps-control > /dev/null 2>&1 || true; rm -rf "$mps"' EXIT
    "${plans[@]}" --make --jobs "$jobs" "${cases[@]}" ;;
  build)
    [ ${#cases[@]} -gt 0 ] || cases=(mobilenet_v2)
    mkdir -p "$output/alone"
    [ -e "$output/alone/zoo" ] || ln -s "$output/zoo" "$output/alone/zoo"
    for file in "$output"/*.onnx "$output"/*.npz; do [ -e "$output/alone/$(basename "$file")" ] || cp "$file" "$output/alone/"; done
    "${plans[@]}" --workdir="$output/alone" --make --jobs 1 --without "TF-TRT FP16" "${cases[@]}" ;;
  measure) "${plans[@]}" --resume "${cases[@]}" ;;
  tests) timeout "$((seconds - 5))" "$python" -m pytest -n 0 -m gpu -q tests/gpu/test_gpu_plans.py ;;
  *) echo "no step $step: make, build, measure or tests" >&2; exit 2 ;;
esac
