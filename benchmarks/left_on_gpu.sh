#!/usr/bin/env bash
# What still has to run on a GPU (docs/dev/measured/gpu.md, "Not run on a GPU yet"). Each call runs one part on one GPU; calls may run side by side, each on
# a GPU of its own. OUTPUT is written all the time, so that a run that is cut keeps what it has.
#
#   benchmarks/left_on_gpu.sh OUTPUT 2.14|2.17|both
#   benchmarks/left_on_gpu.sh OUTPUT qdq QDQ_DIR
#
# 2.14, 2.17: the tests of that stack; 2.17 needs setuptools on Python 3.12.
# qdq: keras3's Q/DQ file, with nothing beside it on its GPU. QDQ_DIR: what `python -m benchmarks.qdq --make` wrote, of keras3.
# both: tests that need two GPUs of one host, then `benchmarks.tuning_fleet` of keras3, eight trials, with nothing beside them.
# PYTHON: the stack's interpreter, by default .venv/bin/python. GPU: its number, by default 0. WORKERS: tests at a time, by default 12. SECONDS_LEFT: of
# the whole part, by default 1300. Steps that ended: OUTPUT/steps.txt.
set -uo pipefail
if [ $# -lt 2 ]; then echo "usage: benchmarks/left_on_gpu.sh OUTPUT 2.14|2.17|qdq|both [QDQ_DIR]" >&2; exit 2; fi
out=$(realpath -m "$1") part=$2 qdq=${3:-}
end=${SECONDS_LEFT:-1300} gpu=${GPU:-0} workers=${WORKERS:-12}
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
python=$(realpath -s "${PYTHON:-.venv/bin/python}")
mkdir -p "$out/tmp" "$out/cache"
{ nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader; echo "$(nproc) cores"; } > "$out/gpu.txt" 2>&1
# Kernels that are compiled from PTX are kept; the driver's own limit may be too small for two stacks.
export TMPDIR=$out/tmp XDG_CACHE_HOME=$out/cache CUDA_CACHE_MAXSIZE=4294967296 TFTRT_BUILD_TURNS=0

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
tests() {  # tests NAME SECOND TEST…: side by side under MPS, in the order that is given
  local mps=/tmp/left_on_gpu.mps
  mkdir -p "$mps"
  CUDA_MPS_PIPE_DIRECTORY=$mps CUDA_MPS_LOG_DIRECTORY=$mps nvidia-cuda-mps-control -d > "$out/mps.log" 2>&1  # one that runs is taken
  CUDA_MPS_PIPE_DIRECTORY=$mps CUDA_MPS_LOG_DIRECTORY=$mps TFTRT_TEST_GPUS=$gpu TFTRT_GPU_REPORT=$out/report.jsonl \
    TFTRT_TEST_FAILURES=$out/failures.txt step "$1" "$2" "$python" -m pytest -n "$workers" --dist load --maxschedchunk=1 -m gpu -v -rfs --tb=short \
    --durations=0 -p no:cacheprovider "${@:3}"
}

layers=tests/gpu/test_gpu_prepared.py::test_layer_normalizations_of_keras_2_run_in_an_engine
case $part in
  2.14) tests first "$end" $layers tests/gpu/test_gpu_{detector,plan_rewrites,plans,plan_features,triton,plan_profile,refused,tensors,engines,int8}.py ;;
  2.17)
    export TFTRT_ALLOW_TENSORRT=8.6.0
    tests first "$end" tests/gpu/test_gpu_{detector,served_resnet,breakdown,regress,smoke,publish,profile,names,tensors,refused,engines}.py $layers \
      tests/gpu/test_gpu_int8.py tests/gpu/test_gpu.py tests/gpu/test_gpu_{foreign,prepared,triton}.py ;;
  qdq)
    qdq=$(realpath -e "$qdq") || exit 2
    "$python" -c "
import pathlib, sys
from benchmarks import _shared_weights
for path in pathlib.Path(sys.argv[1]).glob('*/plan.json'):
    _shared_weights.restore(path.parent)" "$qdq" > "$out/restore.log" 2>&1
    CUDA_VISIBLE_DEVICES=$gpu step qdq-keras3 "$end" "$python" -m benchmarks.qdq --gpu --input "$qdq" --output "$out/qdq" --models keras3 \
      --ways implicit,qdq,chosen ;;
  both)
    step two-gpus "$end" "$python" -m pytest -m gpu -v -rs --tb=short -p no:cacheprovider --durations=0 tests/gpu/test_gpu_fleet.py \
      tests/gpu/test_gpu_triton.py::test_each_gpu_has_an_instance
    step tuning "$end" "$python" -m benchmarks.tuning_fleet --models=keras3 --max_trials=8 --output="$out/tuning" ;;
  *) echo "no part $part: 2.14, 2.17, qdq or both" >&2; exit 2 ;;
esac
say "all ended"
