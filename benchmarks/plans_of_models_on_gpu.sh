#!/usr/bin/env bash
# Plans of real models on a GPU, in steps of at most SECONDS_LEFT seconds (by default 570); a step that is run again goes on where it stopped.
#
#   benchmarks/plans_of_models_on_gpu.sh STEP FOLDER [MODEL…]
#
# STEP:
#   unpack   put FOLDER together from FOLDER.parts, which `python -m benchmarks.plans_of_models --export` and `--pack` have filled without a GPU
#   make     build the plans and TF-TRT's engines, and verify the plans: JOBS models at once (by default 4) under NVIDIA's MPS
#   measure  time them beside TF-TRT and TensorFlow, one model after the other, alone on the GPU
#   table    print the tables as Markdown; FOLDER/results.jsonl and FOLDER/plans_of_models.json are what has to be brought back
# MODEL: names of models, by default all. Plans stay in FOLDER/plans; what a later machine lacks is built anew while timings of it are left.
# PYTHON: the interpreter, by default .venv/bin/python.
set -euo pipefail
if [ $# -lt 2 ]; then echo "usage: benchmarks/plans_of_models_on_gpu.sh unpack|make|measure|table FOLDER [MODEL…]" >&2; exit 2; fi
step=$1 folder=$(realpath -m "$2") && shift 2
python=${PYTHON:-.venv/bin/python} seconds=${SECONDS_LEFT:-570} jobs=${JOBS:-4}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
models=("$python" -m benchmarks.plans_of_models --folder="$folder")

case $step in
  unpack) "${models[@]}" --unpack="$folder.parts" ;;
  make)
    # A folder of a short name, for it holds a socket.
    mps=$(mktemp -d)
    export CUDA_MPS_PIPE_DIRECTORY=$mps CUDA_MPS_LOG_DIRECTORY=$mps TFTRT_BUILD_TURNS=0
    nvidia-cuda-mps-control -d || { echo "no MPS here: this will take long" >&2; unset CUDA_MPS_PIPE_DIRECTORY; }
    trap 'echo quit | nvidia-cuda-mps-control > /dev/null 2>&1 || true; rm -rf "$mps"' EXIT
    "${models[@]}" --make --jobs="$jobs" --budget="$((seconds - 25))" "$@" ;;
  measure) "${models[@]}" --measure --budget="$((seconds - 25))" "$@" ;;
  table) "${models[@]}" --markdown "$@" ;;
  *) echo "no step $step: unpack, make, measure or table" >&2; exit 2 ;;
esac
