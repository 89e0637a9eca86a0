#!/usr/bin/env bash
# What still has to run on a GPU (docs/dev/measured/gpu.md, "Not run on a GPU yet"), in one go: on two GPUs in two lanes at once, on one in one lane
# after the other. OUTPUT is written all the time, so that a run that is cut keeps what it has.
#
#   benchmarks/left_on_gpu.sh OUTPUT MODELS_DIR QDQ_DIR [ONNX_DIR]
#
# MODELS_DIR: what `python -m benchmarks.real_models --make --models_dir=…` wrote, of fer and musicnn at least. QDQ_DIR: what `python -m benchmarks.qdq --make` wrote, of
# fer, keras3, resnet50 and mobilenet_v2. ONNX_DIR: where `python -m benchmarks.onnx_files --workdir=…` unpacked its packages. PYTHON: the interpreter, by
# default .venv/bin/python. SECONDS_LEFT: of all, by default 1500. TFTRT_TEST_TRITON: the tritonserver of `make triton`, where it is not in build/triton. Each
# lane has steps of its own, and then takes what is left for whichever is free. Steps that ended: OUTPUT/logs/steps.txt.
set -uo pipefail
if [ $# -lt 3 ]; then echo "usage: benchmarks/left_on_gpu.sh OUTPUT MODELS_DIR QDQ_DIR [ONNX_DIR]" >&2; exit 2; fi
output=$(realpath -m "$1") models=$(realpath -e "$2") && qdq=$(realpath -e "$3") && onnx=${4:+$(realpath -e "$4")} || exit 2
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

checks() {  # checks FROM TO: tests that have not come to their end, and settings of a build, alone on the GPU
  local end=$2
  # On both GPUs, while the other lane does not need its own.
  step test-triton "$end" env CUDA_VISIBLE_DEVICES="$both" bash -c "tests tests/test_gpu_triton.py"
  step test-profile "$end" bash -c "tests tests/test_gpu_profile.py"
  step settings "$end" "$python" -m benchmarks.build_settings --workdir="$output/settings" --timed --settings "none: the defaults" "none, once more" \
    CUDA_MODULE_LOADING={LAZY,EAGER} TF_TRT_SPARSE_MODE=0 TF_TRT_ENABLE_LAYOUT_OPTIMIZER=0 TF_TRT_FIXED_ALGORITHM_ID=0 NVIDIA_TF32_OVERRIDE=0 \
    "verbose log (--layers)"
}

table() {  # table FROM TO: rows of the table of plans with engines that are built alone, and with the runner as it is now
  local make=$(($1 + ($2 - $1) * 11 / 20)) end=$2 name
  local all=("$python" -m benchmarks.plans --models_dir="$models" --workdir="$plans" --precisions=FP16)
  for name in resnet50 mobilenet_v2 fer; do all+=("--int8=$name=$qdq/$name/qdq.onnx"); done
  # An export takes no GPU: what the tests build then is not timed.
  step test-int8-as $make bash -c "tests tests/test_gpu_plan_rewrites.py -k 'int8_is_written or auto'" &
  step export $make "${all[@]}" fer bert_encoder resnet50 mobilenet_v2 --export --jobs 4 --budget "$(left $make)"
  wait
  step make $make "${all[@]}" fer bert_encoder resnet50 mobilenet_v2 --make --once --jobs 1 --budget "$(left $make)"
  alone
  step measure "$end" "${all[@]}" fer bert_encoder resnet50 mobilenet_v2 --resume --seconds 0.4 --budget "$(left "$end")"
  step plan-callers "$end" "$python" -m benchmarks.plan_callers "$plans/fer-plan-fp16" --json="$output/plan_callers.json"
  step triton-plan "$end" "$python" -m benchmarks.triton_plan "$plans/resnet50-plan-fp16" --json="$output/triton_plan.json"
  # Streams fed by CUDA graphs.
  step profile-plan "$end" "$python" -m tftrt_tools profile "$plans/resnet50-plan-fp16" --shapes=image:1x224x224x3,32x224x224x3 \
    --json="$output/profile-plan.json" --html="$output/profile-plan.html"
}

wide_conv() {  # the same network with and without the rewrite of long kernels, built alone; then both by turns
  local end=$1 name batch rewrite
  for name in plain wide; do
    rewrite=+wide_conv
    if [ "$name" = plain ]; then rewrite=-wide_conv; fi
    step "export-$name" "$end" "$python" -m tftrt_tools export "$models/musicnn" --output="$output/musicnn-$name.onnx" --data="$models/musicnn.rows.npz" \
      --rewrite="$rewrite"
    step "plan-$name" "$end" "$python" -m tftrt_tools convert --backend=tensorrt --input_saved_model_dir="$output/musicnn-$name.onnx" \
      --output_saved_model_dir="$output/musicnn-$name" --precision_mode=FP16 --shapes=spectrogram:1x187x96,32x187x96
  done
  for batch in 1 32; do
    step "wide-conv-$batch" "$end" "$python" -m tftrt_tools regress --in_process --native="$output/musicnn-plain" --candidate="$output/musicnn-wide" --allow_worse \
      --data="$models/musicnn.rows.npz" --batch_size="$batch" --rounds=12 --max_rounds=12 --json="$output/wide-conv-$batch.json"
  done
}

files() {  # plans of foreign ONNX files, several at once
  local end=$1 name
  if [ -z "$onnx" ]; then return; fi
  beside "$(mktemp -d)"
  for name in 320n "magika_v3_3 ppocr_v2_cls" ppocr_v4_det ppocr_v4_rec "silero_vad silero_vad_op15" "silero_vad_op18 silero_vad_half silero_vad_sequence"; do
    # shellcheck disable=SC2086  # several files
    step "onnx-${name%% *}" "$end" "$python" -m benchmarks.onnx_files $name --gpu --workdir="$onnx" --json="$output/onnx-${name%% *}.json" \
      --budget "$(left "$end")" &
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
      second) step second "$end" "$python" -m benchmarks.plans --models_dir="$models" --workdir="$plans" --precisions=FP16 resnet50 mobilenet_v2 fer --make --jobs 1 \
        --budget "$(left "$end")";;
      test-rewrites) step test-rewrites "$end" bash -c "tests tests/test_gpu_plan_rewrites.py -k 'not int8_is_written and not auto'";;
      *) "$one" "$end";;
    esac
  done
}

lane() {  # lane NUMBER FUNCTION FROM TO
  export LANE=$1 TMPDIR=$output/tmp$1
  mkdir -p "$TMPDIR"
  both=$(nvidia-smi -L | sed "s/.*UUID: \(.*\))/\1/" | paste -sd,)
  CUDA_VISIBLE_DEVICES=$(nvidia-smi -L | sed -n "$((LANE + 1))s/.*UUID: \(.*\))/\1/p")
  if [ -n "$CUDA_VISIBLE_DEVICES" ]; then export CUDA_VISIBLE_DEVICES; else unset CUDA_VISIBLE_DEVICES; fi
  "$2" "$3" "$4"
  rest "$4"
}
"$python" -c "
import pathlib, sys
from benchmarks import _shared_weights
for path in pathlib.Path(sys.argv[1]).glob('*/plan.json'):
    _shared_weights.restore(path.parent)" "$qdq" > "$output/logs/restore.log" 2>&1
printf '%s\n' qdq-fer qdq-resnet50 wide_conv files qdq-keras3 second test-rewrites > "$output/todo"
if [ "$(nvidia-smi -L | wc -l)" -gt 1 ]; then
  lane 0 checks 0 "$seconds" &
  lane 1 table 0 "$seconds" &
  wait
else
  (lane 0 checks 0 $((seconds / 2)))
  (lane 1 table $((seconds / 2)) "$seconds")
fi
echo "$SECONDS s: all ended" >> "$output/logs/steps.txt"
