#!/usr/bin/env bash
# The runs over real models that need a GPU, in steps of less than ten minutes each; a step that is run again goes on where it stopped.
#
#   benchmarks/real_models/on_gpu.sh STEP MODELS_DIR OUTPUT [BASELINE]
#
# STEP:
#   tests     the tests of engines that the models led to
#   builds    build times alone on the GPU; BASELINE is another checkout of this repository, whose builds are measured in turns
#   together  convert in FP16 and INT8 and verify, many models at once; needs 16 cores, and NVIDIA's MPS if it is to end in ten minutes
#   timed     time what `together` built against native, one model after the other
#   table     print the table
# MODELS_DIR: what `python -m benchmarks.real_models --make --models_dir=…` wrote. PYTHON: the interpreter, by default .venv/bin/python.
# SECONDS_LEFT: how long `together` and `timed` may take, by default 560. Needs the GPU alone: TensorRT chooses kernels by timing them.
set -euo pipefail
step=${1:?STEP is missing} models=${2:?MODELS_DIR is missing} output=${3:?OUTPUT is missing} baseline=${4:-}
python=${PYTHON:-.venv/bin/python} seconds=${SECONDS_LEFT:-560}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
mkdir -p "$output"

# Longest first. One process a line.
fp16=(deeplc deepcut tcn fer,jpeg_classifier,detector guesslang,mtcnn_rnet musicnn,gru_digits dgaintel,textgenrnn text_lookup,mtcnn_onet,stft_tagger
      mtcnn_pnet,keras3 basic_pitch musicnn_vgg,dilated_unet)
int8=(tcn deeplc musicnn fer,mtcnn_onet textgenrnn)

over() {  # over NAME MODELS [FLAGS]
  local left=$((seconds - SECONDS))
  [ $left -gt 5 ] || return 0
  "$python" -m benchmarks.real_models --gpu --models_dir="$models" --output="$output/$1" --models="$2" --keep --deadline=$left "${@:3}"
}
each() {  # each COMMAND FLAGS: every group in FP16, and in INT8 by two methods with one profile. A group that fails does not end the others
  local group failed=0
  for group in "${fp16[@]}"; do "$1" "fp16-${group//,/-}" "$group" --precision=FP16 "${@:2}" || failed=1; done
  for group in "${int8[@]}"; do "$1" "int8-${group//,/-}" "$group" --precision= --methods=auto,entropy --one_profile "${@:2}" || failed=1; done
  return $failed
}
beside() { over "$@" > "$output/$1.log" 2>&1 & }

case $step in
  tests)
    timeout 570 "$python" -m pytest -n 0 -m gpu -q tests/gpu/test_gpu_prepared.py tests/gpu/test_gpu_detector.py tests/gpu/test_gpu_names.py \
      tests/gpu/test_gpu_engines.py tests/rooms/tftrt/test_methods.py ;;
  builds)
    "$python" -m benchmarks.build_time --workdir="$output/builds" --json="$output/builds.json" --resume --budget=560 \
      ${baseline:+--baseline="$baseline"} --cases=cold,timings,tensorrt \
      "$models/deepcut=input_1:1x21,64x21;input_2:1x21,64x21" "$models/fer=input_1:1x64x64x1,64x64x64x1" ;;
  together)
    # Processes share a GPU by slices of time; under MPS their kernels run side by side.
    # A folder of a short name, for it holds a socket.
    mps=$(mktemp -d)
    export CUDA_MPS_PIPE_DIRECTORY=$mps CUDA_MPS_LOG_DIRECTORY=$mps TFTRT_BUILD_TURNS=0
    nvidia-cuda-mps-control -d || { echo "no MPS here: this will take long" >&2; unset CUDA_MPS_PIPE_DIRECTORY; }
    trap 'echo quit | nvidia-cuda-mps-control > /dev/null 2>&1 || true; rm -rf "$mps"' EXIT
    each beside --without=inspect,regress
    wait ;;
  timed) each over --without=inspect,convert,verify --rounds=12 ;;
  table) "$python" -m benchmarks.real_models --table --markdown --output="$output" ;;
  *) echo "no step $step: tests, builds, together, timed or table" >&2; exit 2 ;;
esac
