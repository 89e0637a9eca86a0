#!/usr/bin/env bash
# What still has to run on a GPU (docs/dev/measured/gpu.md, "Not run on a GPU yet"), on one GPU, all at once under NVIDIA's MPS; then all is stopped
# for the rounds that need the GPU alone, and goes on. OUTPUT is written all the time, so that a run that is cut keeps what it has.
#
#   benchmarks/left_on_gpu.sh OUTPUT PLANS QDQ_DIR
#
# PLANS: a folder of `python -m benchmarks.plans_of_models --export` (or of its --unpack) with detector, basic_pitch, tcn, mtcnn_rnet, ppocr_v4_det and
# ppocr_v4_rec. Where ppocr_v4_det.plain.fp16.onnx is there, too (exported with --rewrite=-hard_swish,-conv_scale), it is built beside them. QDQ_DIR: what `python -m benchmarks.qdq --make` wrote, of keras3. PYTHON: the interpreter with TensorFlow 2.14, by default
# .venv/bin/python; PYTHON217: that with 2.17, whose tests begin once the file PYTHON217_READY is there (by default at once); none without it.
# SECONDS_LEFT: of all, by default 1500. ALONE: the second at which the rounds begin, by default 1180, or earlier where all is built.
# Steps that ended: OUTPUT/steps.txt.
set -uo pipefail
if [ $# -ne 3 ]; then echo "usage: benchmarks/left_on_gpu.sh OUTPUT PLANS QDQ_DIR" >&2; exit 2; fi
out=$(realpath -m "$1") files=$(realpath -e "$2") && qdq=$(realpath -e "$3") || exit 2
end=${SECONDS_LEFT:-1500} alone=${ALONE:-1180}
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
python=$(realpath -s "${PYTHON:-.venv/bin/python}") python217=${PYTHON217:-}
mkdir -p "$out/plans" && : > "$out/built.txt"
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
lane() {  # lane NAME: folders of its own; all that it starts has LANE=NAME in its environment
  export LANE=$1 TMPDIR=$out/tmp/$1 XDG_CACHE_HOME=$out/cache/$1
  mkdir -p "$TMPDIR" "$XDG_CACHE_HOME"
}
beside() { lane "$1"; export CUDA_MPS_PIPE_DIRECTORY=$mps CUDA_MPS_LOG_DIRECTORY=$mps TFTRT_BUILD_TURNS=0; }
signal() {  # signal NAME: to what the lanes have started, but for the rounds
  local process lane
  for process in /proc/[0-9]*; do
    lane=$({ tr '\0' '\n' < "$process/environ"; } 2> /dev/null | sed -n 's/^LANE=//p')
    case $lane in "" | rounds) ;; *) kill -"$1" "${process#/proc/}" 2> /dev/null ;; esac
  done
}

plan() {  # plan MODEL FILE PRECISION SHAPES SECOND ORIGINAL
  local place=$out/plans/$1-$3
  step "plan-$1-$3" "$5" "$python" -m tftrt_tools convert --backend=tensorrt --model="$files/$2" --output="$place" --precision="$3" \
    --shapes="$4" --log_file="$out/plan-$1-$3.trt.log" && step "plan-$1-$3-verify" "$5" "$python" -m tftrt_tools verify "$files/$6" "$place" --data="$files/${1%.plain}.rows.npz"
}
tftrt() {  # tftrt MODEL SHAPES
  local place=$out/plans/$1-TF-TRT
  step "tftrt-$1" "$alone" "$python" -m tftrt_tools convert --model="$files/$1" --output="$place" --precision=FP16 --shapes="$2" &&
    step "tftrt-$1-verify" "$alone" "$python" -m tftrt_tools verify "$files/$1" "$place" --data="$files/$1.rows.npz"
}
detector=image:1x96x96x3,32x96x96x3 pitch=input_2:1x43844x1,8x43844x1 tcn=steps:1x500x16,16x500x16 rnet=image:1x24x24x3,32x24x24x3
ppocr() {  # ppocr MODEL SHAPES [FORM]
  beside "$1${3:-}"
  plan "$1${3:-}" "$1${3:-}.fp16.onnx" FP16 "$2" "$end" "$1.fp32.onnx"
}
plans() { beside plans; plan detector detector.fp16.onnx FP16 $detector "$alone" detector; plan tcn tcn.fp16.onnx FP16 $tcn "$alone" tcn; }
small() {
  beside small
  plan basic_pitch basic_pitch.fp32.onnx FP32 $pitch "$alone" basic_pitch
  plan mtcnn_rnet mtcnn_rnet.fp16.onnx FP16 $rnet "$alone" mtcnn_rnet
  tftrt mtcnn_rnet $rnet
}
converted() { beside converted; tftrt detector $detector; }
converted2() { beside converted2; tftrt basic_pitch $pitch; tftrt tcn $tcn; }
tests() {  # tests NAME PYTHON WORKERS FILE…: in the order that is given
  mkdir -p "$out/$1"
  TFTRT_GPU_REPORT=$out/$1/report.jsonl TFTRT_TEST_FAILURES=$out/$1/failures.txt TFTRT_TEST_GPUS=0 \
    step "$1/tests" "$end" "$2" -m pytest -n "$3" --dist load --maxschedchunk=1 -m gpu -v -rfs --tb=short -p no:cacheprovider "${@:4}"
}
tests214() {
  beside tests214
  tests tests214 "$python" 4 tests/gpu/test_gpu_prepared.py::test_layer_normalizations_of_keras_2_run_in_an_engine \
    tests/gpu/test_gpu_{fleet,diagnose,triton,detector,tune,plans,plan_rewrites,plan_features,plan_profile}.py
}
tests217() {
  [ -n "$python217" ] || return
  beside tests217
  until [ -z "${PYTHON217_READY:-}" ] || [ -e "$PYTHON217_READY" ] || [ "$SECONDS" -gt 420 ]; do sleep 1; done
  export TFTRT_ALLOW_TENSORRT=8.6.0
  tests tests217 "$python217" 6 tests/gpu/test_gpu_{int8,engines,names,tensors,prepared,detector,breakdown,tune,regress,smoke,publish,profile,served_resnet,diagnose,build_repeat,layers,refused}.py \
    tests/gpu/test_gpu.py tests/gpu/test_gpu_{foreign,triton,fleet}.py
}
rounds() {
  lane rounds
  local model one batch found
  until [ "$SECONDS" -ge "$alone" ] || [ "$(wc -l < "$out/built.txt")" = 4 ]; do sleep 1; done
  signal STOP; say "all stopped"
  trap 'signal CONT' EXIT
  for one in "detector 1 32" "basic_pitch 1 8" "tcn 1 16" "mtcnn_rnet 1 32"; do
    model=${one%% *} found=()
    for variant in TF-TRT FP16 FP32; do [ ! -d "$out/plans/$model-$variant" ] || found+=("$out/plans/$model-$variant"); done
    [ ${#found[@]} -gt 0 ] || continue
    for batch in ${one#* }; do
      step "bench-$model-$batch" "$((alone + 250))" "$python" -m tftrt_tools bench "${found[@]}" "$files/$model" --data="$files/$model.rows.npz" --batch_size="$batch" --rounds=14 \
        --max_rounds=14 --json="$out/bench-$model-$batch.json"
    done
  done
  step qdq-keras3 "$((alone + 330))" "$python" -m benchmarks.qdq --gpu --input "$qdq" --output "$out/qdq" --models keras3 --ways implicit,qdq,chosen
  signal CONT; trap - EXIT; say "all go on"
}
"$python" -c "
import pathlib, sys
from benchmarks import _shared_weights
for path in pathlib.Path(sys.argv[1]).glob('*/plan.json'):
    _shared_weights.restore(path.parent)" "$qdq" > "$out/restore.log" 2>&1
mps=$(mktemp -d)
CUDA_MPS_PIPE_DIRECTORY=$mps CUDA_MPS_LOG_DIRECTORY=$mps nvidia-cuda-mps-control -d || echo "no MPS here: this will take long" >&2
ppocr ppocr_v4_det x:1x3x320x320 &
ppocr ppocr_v4_rec x:1x3x48x320 &
[ ! -e "$files/ppocr_v4_det.plain.fp16.onnx" ] || ppocr ppocr_v4_det x:1x3x320x320 .plain &
for one in plans small converted converted2; do (
  "$one"
  echo "$one" >> "$out/built.txt"
) & done
tests214 & tests217 & rounds &
wait
say "all ended"
