#!/usr/bin/env bash
# What still has to run on a GPU (docs/dev/measured/gpu.md, "Not run on a GPU yet"), on one GPU: the tests of each stack have a time of their own under
# NVIDIA's MPS, since beside others a test took ten times as long; then what is timed runs alone. OUTPUT is written all the time, so that a run that is
# cut keeps what it has.
#
#   benchmarks/left_on_gpu.sh OUTPUT QDQ_DIR
#
# QDQ_DIR: what `python -m benchmarks.qdq --make` wrote, of keras3. PYTHON: the interpreter with TensorFlow 2.14, by default .venv/bin/python; PYTHON217:
# that with 2.17 (which needs setuptools on Python 3.12), by default none, and then all time is 2.14's. SECONDS_LEFT: of all, by default 1500. Steps
# that ended: OUTPUT/steps.txt.
set -uo pipefail
if [ $# -ne 2 ]; then echo "usage: benchmarks/left_on_gpu.sh OUTPUT QDQ_DIR" >&2; exit 2; fi
out=$(realpath -m "$1") qdq=$(realpath -e "$2") || exit 2
end=${SECONDS_LEFT:-1500}
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
python=$(realpath -s "${PYTHON:-.venv/bin/python}") python217=${PYTHON217:-}
mkdir -p "$out"
{ nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader; echo "$(nproc) cores"; } > "$out/gpu.txt" 2>&1

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
tests() {  # tests NAME SECOND PYTHON FILE…: in the order that is given
  local folder=$out/$1
  mkdir -p "$folder/tmp" "$folder/cache"
  TMPDIR=$folder/tmp XDG_CACHE_HOME=$folder/cache CUDA_MPS_PIPE_DIRECTORY=$mps CUDA_MPS_LOG_DIRECTORY=$mps TFTRT_BUILD_TURNS=0 \
    TFTRT_GPU_REPORT=$folder/report.jsonl TFTRT_TEST_FAILURES=$folder/failures.txt TFTRT_TEST_GPUS=0 \
    step "$1/tests" "$2" "$3" -m pytest -n 8 --dist load --maxschedchunk=1 -m gpu -v -rfs --tb=short -p no:cacheprovider "${@:4}"
}
mps=$(mktemp -d)
CUDA_MPS_PIPE_DIRECTORY=$mps CUDA_MPS_LOG_DIRECTORY=$mps nvidia-cuda-mps-control -d || echo "no MPS here: this will take long" >&2
[ -z "$python217" ] || TFTRT_ALLOW_TENSORRT=8.6.0 tests tests217 $((end * 5 / 10)) "$python217" \
  tests/gpu/test_gpu_{int8,engines,names,tensors,detector,breakdown,regress,smoke,publish,profile,served_resnet,refused,prepared}.py \
  tests/gpu/test_gpu.py tests/gpu/test_gpu_{foreign,triton}.py
tests tests214 $((end * 8 / 10)) "$python" tests/gpu/test_gpu_prepared.py::test_layer_normalizations_of_keras_2_run_in_an_engine \
  tests/gpu/test_gpu_{plan_rewrites,triton,detector,plans,plan_features,plan_profile,refused,tensors,engines,int8}.py
"$python" -c "
import pathlib, sys
from benchmarks import _shared_weights
for path in pathlib.Path(sys.argv[1]).glob('*/plan.json'):
    _shared_weights.restore(path.parent)" "$qdq" > "$out/restore.log" 2>&1
step qdq-keras3 "$end" "$python" -m benchmarks.qdq --gpu --input "$qdq" --output "$out/qdq" --models keras3 --ways implicit,qdq,chosen
say "all ended"
