#!/usr/bin/env bash
# Two stacks side by side on two GPUs of one host, each on its own, or in turns on one, in steps of at most SECONDS_LEFT seconds (by default 570); a step
# that is run again goes on where it stopped.
#
#   benchmarks/stacks_on_gpu.sh STEP OUTPUT FIRST SECOND [MODEL…]
#
# STEP:
#   alone    ResNet-50 in FP16 for batch 8, with nothing else on the GPU: seconds, and TensorRT's verbose log, which `tftrt log` reads
#   make     ten real models in FP16 and INT8, JOBS at once (by default 8) under NVIDIA's MPS, and `verify` of each
#   measure  time them beside native TensorFlow, alone on the GPU
#   table    the table of both
# LARGER=--larger: make and measure take the larger batch size alone. GPUS: the GPU of each stack, by default 0,1; with 0,0 both take one: builds share it, and what is timed has it alone.
# FIRST, SECOND: the Python of each stack, such as .venv/bin/python and .venv-2.17/bin/python. MODELS_DIR: what `python -m benchmarks.real_models --make`
# wrote. OUTPUT/first and OUTPUT/second have the results.
set -uo pipefail
if [ $# -lt 4 ]; then echo "usage: benchmarks/stacks_on_gpu.sh alone|make|measure|table OUTPUT FIRST SECOND [MODEL…]" >&2; exit 2; fi
step=$1 output=$(realpath -m "$2") first=$3 second=$4 && shift 4
models_dir=${MODELS_DIR:-build/real_models/models} seconds=${SECONDS_LEFT:-570} jobs=${JOBS:-8} gpus=${GPUS:-0,1}
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
mkdir -p "$output/first" "$output/second"
export TF_CPP_MIN_LOG_LEVEL=2

both() {  # both FUNCTION WORD…: for each stack, at the same time
  CUDA_VISIBLE_DEVICES=${gpus%,*} XDG_CACHE_HOME="$output/first/cache" "$1" "$first" "$output/first" "${@:2}" &
  local one=$! status=0
  # On one GPU a build alone waits for that of the first stack.
  if [ "$1 ${gpus%,*}" = "alone ${gpus#*,}" ]; then wait $one || status=$?; fi
  CUDA_VISIBLE_DEVICES=${gpus#*,} XDG_CACHE_HOME="$output/second/cache" "$1" "$second" "$output/second" "${@:2}" &
  local two=$!
  wait $one || status=$?
  wait $two || status=$?
  return $status
}
alone() {
  [ -d "$2/resnet50" ] || CUDA_VISIBLE_DEVICES=-1 "$first" -m saved_models resnet50 --output="$2" > "$2/made.log" 2>&1 || return
  # TensorFlow's kernels are compiled once a machine, and are no part of the build.
  "$1" -m tftrt_tools bench "$2/resnet50" --batch_size=8 --rounds=3 --max_rounds=3 > "$2/warm.log" 2>&1
  local start=$SECONDS
  timeout -k 5 $((seconds - SECONDS)) "$1" -m tftrt_tools convert --model="$2/resnet50" --output="$2/resnet50-FP16" \
    --overwrite --precision=FP16 --shapes=image:8x224x224x3 --layer_precisions --log_file="$2/alone.log" --json="$2/alone.json" > "$2/alone.txt" 2>&1
  echo "$2: ended with $? after $((SECONDS - start)) s"
}
stacks() { "$1" -m benchmarks.stacks "$3" --folder="$2" --models_dir="$models_dir" --jobs="$jobs" --budget="$((seconds - 25))" ${LARGER:-} "${@:4}"; }

case $step in
  alone) both alone ;;
  make)
    export TFTRT_BUILD_TURNS=0
    if [ -z "${CUDA_MPS_PIPE_DIRECTORY:-}" ]; then  # MPS of the caller is taken where there is one
      mps=$(mktemp -d)  # a folder of a short name, for it holds a socket
      export CUDA_MPS_PIPE_DIRECTORY=$mps CUDA_MPS_LOG_DIRECTORY=$mps
      nvidia-cuda-mps-control -d || { echo "no MPS here: this will take long" >&2; unset CUDA_MPS_PIPE_DIRECTORY; }
      trap 'echo quit | nvidia-cuda-mps-control > /dev/null 2>&1 || true; rm -rf "$mps"' EXIT
    fi
    both stacks --make "$@" ;;
  measure) both stacks --measure "$@" ;;
  table) "$first" -m benchmarks.stacks --compare "$output/first" "$output/second" ;;
  *) echo "no step $step: alone, make, measure or table" >&2; exit 2 ;;
esac
