#!/usr/bin/env bash
# The tests that need a GPU, on one GPU: the newest first, several at a time, then those that need it alone, then the rest. OUTPUT is written all the
# time, so that a run that is cut keeps what it has: OUTPUT/logs/*.log, OUTPUT/logs/failures.txt, and OUTPUT/report.jsonl for `python -m tests.gpu_report`.
#
#   benchmarks/tests_on_gpu.sh OUTPUT [FILE…]
#
# FILE: the test files that come first, by default those of the newest changes. PYTHON: the interpreter, by default .venv/bin/python. SECONDS_LEFT: of
# all, by default 1500. WORKERS: tests at a time, by default 7 for each GPU. GPUS: their numbers, by default all of the machine; each has its share of
# the workers.
set -uo pipefail
if [ $# -lt 1 ]; then echo "usage: benchmarks/tests_on_gpu.sh OUTPUT [FILE…]" >&2; exit 2; fi
output=$(realpath -m "$1") && shift
first=("$@")
[ ${#first[@]} -gt 0 ] || first=(tests/gpu/test_gpu_refused.py tests/gpu/test_gpu_plan_features.py tests/gpu/test_gpu_prepared.py tests/gpu/test_gpu_tune.py tests/gpu/test_gpu_detector.py tests/gpu/test_gpu_breakdown.py
  tests/gpu/test_gpu_served_resnet.py tests/gpu/test_gpu_triton.py)
python=${PYTHON:-.venv/bin/python} seconds=${SECONDS_LEFT:-1500} gpus=${GPUS:-$(nvidia-smi --query-gpu=index --format=csv,noheader | paste -sd,)}
workers=${WORKERS:-$((7 * $(tr "," "\n" <<< "$gpus" | wc -l)))}
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
mkdir -p "$output/logs"
export TFTRT_GPU_REPORT=$output/report.jsonl TFTRT_TEST_FAILURES=$output/logs/failures.txt TFTRT_BUILD_TURNS=0 TFTRT_TEST_GPUS=$gpus

step() {  # step NAME SECOND COMMAND…: runs it until second SECOND of this run at most, if 20 s or more are left
  local left=$(($2 - SECONDS))
  if [ "$left" -lt 20 ]; then echo "$SECONDS s: $1 left out" >> "$output/logs/steps.txt"; return; fi
  echo "$SECONDS s: $1 begins" >> "$output/logs/steps.txt"
  timeout -k 5 "$left" "${@:3}" > "$output/logs/$1.log" 2>&1
  echo "$SECONDS s: $1 ended with $?" >> "$output/logs/steps.txt"
}
tests() {  # tests NAME SECOND WORKERS MARK FILE…
  step "$1" "$2" "$python" -m pytest -n "$3" --dist worksteal -m "$4" -v -rf --tb=short -p no:cacheprovider "${@:5}"
}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader > "$output/logs/gpu.txt" 2>&1
# The first native run compiles TensorFlow's kernels, once a machine.
step warm 150 "$python" -c 'import tensorflow as tf; print(tf.nn.conv2d(tf.ones((1, 8, 8, 3)), tf.ones((3, 3, 3, 4)), 1, "SAME")[0, 0, 0])'
own=
if [ -z "${CUDA_MPS_PIPE_DIRECTORY:-}" ]; then  # MPS of the caller is taken where there is one
  pipe=$(mktemp -d)
  CUDA_MPS_PIPE_DIRECTORY=$pipe CUDA_MPS_LOG_DIRECTORY=$pipe nvidia-cuda-mps-control -d && export CUDA_MPS_PIPE_DIRECTORY=$pipe CUDA_MPS_LOG_DIRECTORY=$pipe own=1
fi
tests first $((seconds * 6 / 10)) "$workers" "gpu and not gpu_alone" "${first[@]}"
tests simulation $((seconds * 7 / 10)) 4 gpu tests/gpu/test_gpu_int8.py -k "simulation or toolkit"
rest=()
for file in tests/gpu/test_gpu*.py; do [[ " ${first[*]} " == *" $file "* ]] || rest+=("$file"); done
tests rest $((seconds * 9 / 10)) "$workers" "gpu and not gpu_alone" "${rest[@]}"
[ -z "$own" ] || echo quit | timeout 20 nvidia-cuda-mps-control > /dev/null 2>&1
unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
tests alone $((seconds - 30)) "$(tr "," "\n" <<< "$gpus" | wc -l)" gpu_alone tests/gpu
echo "$SECONDS s: done" >> "$output/logs/steps.txt"
