#!/usr/bin/env bash
# What still has to run on a GPU (docs/dev/measured/gpu.md, "Not run on a GPU yet"), in one go: on two GPUs in two lanes at once, on one in one lane
# after the other. OUTPUT is written all the time, so that a run that is cut keeps what it has.
#
#   benchmarks/left_on_gpu.sh OUTPUT MODELS_DIR QDQ_DIR [ONNX_DIR]
#
# MODELS_DIR: what `python -m benchmarks.real_models --make --models_dir=…` wrote, of fer, musicnn and deeplc at least. QDQ_DIR: what
# `python -m benchmarks.qdq --make` wrote, of fer, musicnn, resnet50 at least. ONNX_DIR: where `python -m benchmarks.onnx_files --workdir=…` unpacked its
# packages. PYTHON: the interpreter, by default .venv/bin/python. SECONDS_LEFT: of all, by default 1500; a lane builds first, for a third or half of it.
# Steps that ended: OUTPUT/logs/steps.txt.
set -uo pipefail
output=$(realpath -m "${1:?OUTPUT is missing}") models=$(realpath "${2:?MODELS_DIR is missing}") qdq=$(realpath "${3:?QDQ_DIR is missing}") onnx=${4:-}
onnx=${onnx:+$(realpath "$onnx")}
python=${PYTHON:-.venv/bin/python} seconds=${SECONDS_LEFT:-1500}
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
mkdir -p "$output/logs"
plans=$output/plans

left() { local left=$(($1 - SECONDS)); echo $((left > 1 ? left : 1)); }  # seconds until second $1 of this run
step() {  # step NAME END COMMAND…: runs it if 15 s or more are left until second END
  local name=$1 end=$2
  if [ $((end - SECONDS)) -lt 15 ]; then echo "$SECONDS s: $name left out" >> "$output/logs/steps.txt"; return; fi
  timeout -k 5 "$(left "$end")" "${@:3}" > "$output/logs/$name.log" 2>&1
  echo "$SECONDS s: $name ended with $?" >> "$output/logs/steps.txt"
}
beside() {  # beside FOLDER: kernels of several processes run side by side on this GPU from here on
  export CUDA_MPS_PIPE_DIRECTORY=$1 CUDA_MPS_LOG_DIRECTORY=$1 TFTRT_BUILD_TURNS=0
  nvidia-cuda-mps-control -d || { echo "no MPS here: this will take long" >&2; unset CUDA_MPS_PIPE_DIRECTORY; }
}
alone() {  # what builds have left behind on this GPU ends, and so does MPS
  local process
  for process in /proc/[0-9]*; do
    { tr '\0' '\n' < "$process/environ" | grep -qx "LANE=$LANE" && grep -q python "$process/comm" && kill -9 "${process#/proc/}"; } 2> /dev/null
  done
  echo quit | timeout 20 nvidia-cuda-mps-control > /dev/null 2>&1
  unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY TFTRT_BUILD_TURNS
}
tests() { "$python" -m pytest -n 0 -m gpu -q -p no:cacheprovider "$@"; }
export -f tests; export python

insight() {  # insight FROM TO: provoked causes, and the tests of insight
  local third=$(($1 + ($2 - $1) / 3)) end=$2
  export CASES=range,fallback,precision PYTHON=$python
  step insight-make $third env SECONDS_LEFT="$(left $third)" benchmarks/insight_on_gpu.sh make "$output/insight"
  alone
  step diagnosis "$end" env SECONDS_LEFT="$(left "$end")" benchmarks/insight_on_gpu.sh diagnosis "$output/insight"
  step test-diagnose "$end" bash -c "tests tests/test_gpu_diagnose.py"
  step test-profile "$end" bash -c "tests tests/test_gpu_profile.py"
  step test-build-repeat "$end" bash -c "tests tests/test_gpu_build_repeat.py"
}

table() {  # table FROM TO: the missing rows of the table of plans, and Q/DQ where implicit INT8 takes it
  local half=$((($1 + $2) / 2)) end=$2 name
  local all=("$python" -m benchmarks.plans --models_dir="$models" --workdir="$plans" --int8="musicnn=$qdq/musicnn/qdq.onnx")
  "$python" -c "
import pathlib, sys
from benchmarks import _shared_weights
for path in pathlib.Path(sys.argv[1]).glob('*/plan.json'):
    _shared_weights.restore(path.parent)" "$qdq" > "$output/logs/restore.log" 2>&1
  step test-int8-as $half bash -c "tests tests/test_gpu_plan_rewrites.py -k 'int8_is_written or auto'"
  beside "$(mktemp -d)"
  step export $half "${all[@]}" --export --jobs 6 --budget "$(left $half)"
  for name in resnet50 mobilenet_v2 bert_encoder; do
    step "make-$name" $half "${all[@]}" $name --make --once --precisions=FP16 --jobs 2 --budget "$(left $half)" &
  done
  step make-deeplc $half "${all[@]}" deeplc --make --once --precisions=FP16 --jobs 2 --budget "$(left $half)" &
  step make-musicnn $half "${all[@]}" musicnn --make --once --precisions=FP16 --without="TF-TRT FP16,plan FP16" --budget "$(left $half)" &
  wait
  alone
  step measure "$end" "${all[@]}" resnet50 mobilenet_v2 bert_encoder deeplc musicnn --precisions=FP16 --resume --seconds 0.4 --budget "$(left "$end")"
  step qdq "$end" "$python" -m benchmarks.qdq --gpu --input "$qdq" --output "$output/qdq" --models fer,resnet50 --ways implicit,qdq,chosen \
    --timeout 200 --budget 300
  step regress "$end" "$python" -m tftrt_tools regress --in_process --native="$plans/resnet50-tf-trt-fp16" --candidate="$plans/resnet50-plan-fp16" \
    --allow_worse --data="$plans/resnet50.rows.npz" --batch_size=32 --rounds=12 --max_rounds=12 --json="$output/regress.json"
  [ -z "$onnx" ] || step onnx-files "$end" "$python" -m benchmarks.onnx_files --gpu --workdir="$onnx" --json="$output/onnx_files.json" --budget "$(left "$end")"
}

lane() {  # lane NUMBER FUNCTION FROM TO
  export LANE=$1 TMPDIR=$output/tmp$1
  mkdir -p "$TMPDIR"
  CUDA_VISIBLE_DEVICES=$(nvidia-smi -L | sed -n "$((LANE + 1))s/.*UUID: \(.*\))/\1/p")
  if [ -n "$CUDA_VISIBLE_DEVICES" ]; then export CUDA_VISIBLE_DEVICES; else unset CUDA_VISIBLE_DEVICES; fi
  "$2" "$3" "$4"
}
if [ "$(nvidia-smi -L | wc -l)" -gt 1 ]; then
  lane 0 insight 0 "$seconds" &
  lane 1 table 0 "$seconds" &
  wait
else
  (lane 0 insight 0 $((seconds / 2)))
  (lane 1 table $((seconds / 2)) "$seconds")
fi
echo "$SECONDS s: all ended" >> "$output/logs/steps.txt"
