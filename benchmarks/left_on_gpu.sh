#!/usr/bin/env bash
# What still has to run on a GPU (docs/dev/measured/gpu.md, "Not run on a GPU yet"), in one go: on two GPUs in two lanes at once, on one in one lane
# after the other. OUTPUT is written all the time, so that a run that is cut keeps what it has.
#
#   benchmarks/left_on_gpu.sh OUTPUT QDQ_DIR [ONNX_DIR]
#
# QDQ_DIR: what `python -m benchmarks.qdq --make` wrote, of keras3, fer, digits_cnn and bert_encoder. ONNX_DIR: where
# `python -m benchmarks.onnx_files --workdir=…` unpacked its packages. PYTHON: the interpreter, by default .venv/bin/python. SECONDS_LEFT: of all,
# by default 1500. A GPU that is free takes the next step, and has it to itself. Steps that ended: OUTPUT/logs/steps.txt.
set -uo pipefail
if [ $# -lt 2 ]; then echo "usage: benchmarks/left_on_gpu.sh OUTPUT QDQ_DIR [ONNX_DIR]" >&2; exit 2; fi
output=$(realpath -m "$1") qdq=$(realpath -e "$2") && onnx=${3:+$(realpath -e "$3")} || exit 2
python=${PYTHON:-.venv/bin/python} seconds=${SECONDS_LEFT:-1500}
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
mkdir -p "$output/logs"

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

encoder() {  # encoder END: where the encoder's time goes, in FP16 and in INT8 (Q/DQ)
  local end=$1 shapes='input_ids:1x128,32x128;input_mask:1x128,32x128' one
  for one in FP16=fp32 INT8=qdq; do
    step "encoder-${one%=*}" "$end" "$python" -m tftrt_tools convert --backend=tensorrt --input_saved_model_dir="$qdq/bert_encoder/${one#*=}.onnx" \
      --output_saved_model_dir="$output/encoder-${one%=*}" --precision_mode="${one%=*}" --shapes="$shapes"
    step "encoder-profile-${one%=*}" "$end" "$python" -m tftrt_tools profile "$output/encoder-${one%=*}" --callers=1 --rows=60 \
      --json="$output/encoder-profile-${one%=*}.json"
  done
}

sharing() {  # sharing END: tests that share a GPU
  local end=$1
  beside "$(mktemp -d)"
  step test-sharing "$end" "$python" -m pytest -n 7 -m "gpu and not gpu_alone" -q -p no:cacheprovider tests/gpu/test_gpu_detector.py tests/gpu/test_gpu.py
  alone
}

files() {  # plans of foreign ONNX files, several at once
  local end=$1 name
  if [ -z "$onnx" ]; then return; fi
  beside "$(mktemp -d)"
  for name in 320n ppocr_v4_det ppocr_v4_rec; do
    step "onnx-$name" "$end" "$python" -m benchmarks.onnx_files "$name" --gpu --workdir="$onnx" --json="$output/onnx-$name.json" --budget "$(left "$end")" &
  done
  wait
  alone
}

next() { (flock 9; head -1 "$output/todo"; sed -i 1d "$output/todo") 9> "$output/todo.lock"; }  # what no lane has begun
rest() {  # rest END: whatever is left, for the lane that is free
  local end=$1 one
  while one=$(next) && [ -n "$one" ] && [ $((end - SECONDS)) -ge 15 ]; do
    case $one in
      qdq-*) step "$one" "$end" "$python" -m benchmarks.qdq --gpu --input "$qdq" --output "$output/$one" --models "${one#qdq-}" --ways implicit,qdq,chosen;;
      second) step second "$end" "$python" -m benchmarks.plans --workdir="$output/plans" --precisions=FP16 "--without=TF-TRT FP16,TensorFlow" mobilenet_v2 resnet50 \
        --export --make --jobs 1 --budget "$(left "$end")";;
      *) "$one" "$end";;
    esac
  done
}

lane() {  # lane NUMBER: works on one GPU until nothing is left
  export LANE=$1 TMPDIR=$output/tmp$1
  mkdir -p "$TMPDIR"
  CUDA_VISIBLE_DEVICES=$(nvidia-smi -L | sed -n "$((LANE + 1))s/.*UUID: \(.*\))/\1/p")
  if [ -n "$CUDA_VISIBLE_DEVICES" ]; then export CUDA_VISIBLE_DEVICES; else unset CUDA_VISIBLE_DEVICES; fi
  rest "$seconds"
}
"$python" -c "
import pathlib, sys
from benchmarks import _shared_weights
for path in pathlib.Path(sys.argv[1]).glob('*/plan.json'):
    _shared_weights.restore(path.parent)" "$qdq" > "$output/logs/restore.log" 2>&1
printf '%s\n' encoder qdq-keras3 qdq-fer qdq-digits_cnn files second sharing > "$output/todo"
gpus=$(nvidia-smi -L | wc -l)
for ((number = 0; number < (gpus > 1 ? 2 : 1); number++)); do lane "$number" & done
wait
echo "$SECONDS s: all ended" >> "$output/logs/steps.txt"
