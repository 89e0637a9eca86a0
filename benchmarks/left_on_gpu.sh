#!/usr/bin/env bash
# What still has to run on a GPU (docs/dev/measured/gpu.md, "Not run on a GPU yet"). Each call runs one part on one GPU; calls may run side by side, each on
# a GPU of its own. OUTPUT is written all the time, so that a run that is cut keeps what it has.
#
#   benchmarks/left_on_gpu.sh OUTPUT 2.14|2.17|both
#
# 2.14, 2.17: the tests of that stack in left_on_gpu_2.14.txt or _2.17.txt; 2.17 needs setuptools on Python 3.12. First those that share the GPU, then
# those that need it alone, which would hold up all others.
# both: with nothing beside them, `benchmarks.tuning_fleet` of fer, six trials, then a test that needs two GPUs of one host. For the others of
# that kind, tests/gpu/test_gpu_fleet.py.
# PYTHON: the stack's interpreter, by default .venv/bin/python. GPU: its number, by default 0. WORKERS: tests at a time, by default 8: with 12 to
# 21 on each of two GPUs a test took 100 s, and some more than their 550. SECONDS_LEFT: of the whole part, by default 1300. Steps that ended: OUTPUT/steps.txt.
set -uo pipefail
if [ $# -ne 2 ]; then echo "usage: benchmarks/left_on_gpu.sh OUTPUT 2.14|2.17|both" >&2; exit 2; fi
out=$(realpath -m "$1") part=$2
end=${SECONDS_LEFT:-1300} gpu=${GPU:-0} workers=${WORKERS:-8}
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
python=$(realpath -s "${PYTHON:-.venv/bin/python}")
mkdir -p "$out/tmp" "$out/cache"
{ nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader; echo "$(nproc) cores"; } > "$out/gpu.txt" 2>&1
export TMPDIR=$out/tmp XDG_CACHE_HOME=$out/cache TFTRT_BUILD_TURNS=0

say() { echo "$SECONDS s: $*" >> "$out/steps.txt"; }
step() {  # step NAME SECOND COMMAND…: runs it until second SECOND at most, if 15 s or more are left
  local left=$(($2 - SECONDS)) code
  if [ "$left" -lt 15 ]; then say "$1 left out"; return 1; fi
  say "$1 begins"
  timeout -k 3 "$left" "${@:3}" > "$out/$1.log" 2>&1
  code=$?
  say "$1 ended with $code"
  return $code
}
tests() {  # tests NAME SECOND WORKERS MARK: of the stack's list, in the order of their time limits
  TFTRT_TEST_GPUS=$gpu TFTRT_GPU_REPORT=$out/report.jsonl TFTRT_TEST_FAILURES=$out/failures.txt step "$1" "$2" "$python" -m pytest -n "$3" --dist load \
    --maxschedchunk=1 -m "$4" -v -rfs --tb=short --durations=0 -p no:cacheprovider "@benchmarks/left_on_gpu_$part.txt"
}

case $part in
  2.14 | 2.17)
    [ "$part" = 2.14 ] || export TFTRT_ALLOW_TENSORRT=8.6.0
    export CUDA_MPS_PIPE_DIRECTORY=/tmp/left_on_gpu.mps CUDA_MPS_LOG_DIRECTORY=/tmp/left_on_gpu.mps
    mkdir -p "$CUDA_MPS_PIPE_DIRECTORY"
    nvidia-cuda-mps-control -d > "$out/mps.log" 2>&1  # one that runs is taken
    tests shared $((end - 120)) "$workers" "gpu and not gpu_alone"
    tests alone "$end" 1 gpu_alone ;;
  both)
    # The first calls of TensorFlow compile its kernels, once a machine; neither search shall pay for that.
    step warm "$end" "$python" -c "import tensorflow as tf; [tf.keras.layers.Conv2D(8, 3)(tf.ones((8, 32, 32, 3))) for _ in range(2)]"
    step tuning "$end" "$python" -m benchmarks.tuning_fleet --models=fer --max_trials=6 --output="$out/tuning"
    step two-gpus "$end" "$python" -m pytest -m gpu -v -rs --tb=short -p no:cacheprovider --durations=0 \
      tests/gpu/test_gpu_triton.py::test_each_gpu_has_an_instance ;;
  *) echo "no part $part: 2.14, 2.17 or both" >&2; exit 2 ;;
esac
say "all ended"
