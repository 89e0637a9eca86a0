#!/usr/bin/env bash
# What `profile`, `diagnose`, `build --repeat` and the settings of a build show on a GPU, in steps of less than ten minutes.
#
#   benchmarks/insight_on_gpu.sh STEP OUTPUT [MODELS_DIR]
#
# STEP:
#   make      the models of `profiles` and `diagnosis`, with engines: many at once under NVIDIA's MPS; needs 16 cores
#   profiles  profile each, alone on the GPU, and record its engines for the tests
#   diagnosis provoked causes: the first finding, and its estimate beside what the mend gives; alone on the GPU
#   settings  what each setting of a build costs and gives; one build at a time
#   tests     tests of layers, of repeated builds and of optimize
# OUTPUT: a folder for models and results. MODELS_DIR: what `python -m benchmarks.real_models --make --models_dir=…` wrote; without it the
# trained models are left out. PYTHON: the interpreter, by default .venv/bin/python. SECONDS_LEFT: of a step, by default 560. CASES: of
# benchmarks.diagnosis, by default all; `make` then makes nothing else. A network of `products` takes two to four minutes to build beside others.
set -euo pipefail
step=${1:?STEP is missing} output=${2:?OUTPUT is missing} models=${3:-}
python=${PYTHON:-.venv/bin/python} seconds=${SECONDS_LEFT:-560}
IFS=, read -ra cases <<< "${CASES:-}"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p "$output/logs"
left() { echo $((seconds - SECONDS - 5)); }

convert() {  # convert NAME MODEL FLAGS
  [ -d "$2" ] && [ ! -d "$output/$1" ] || return 0
  timeout "$(left)" "$python" -m tftrt_tools convert --model="$2" --output="$output/$1" "${@:3}" \
    > "$output/logs/convert-$1.log" 2>&1 || echo "convert $1 ended with $?"
}
int8() { convert "$1" "$2" --precision=INT8 --calibration_data="$3" --calibration_method=max "${@:4}"; }
profile() {  # profile NAME ORIGINAL
  [ -d "$output/$1" ] && [ "$(left)" -gt 30 ] || return 0
  timeout "$(left)" "$python" -m tftrt_tools profile "$output/$1" --original="$2" --html="$output/$1.html" --json="$output/$1.json" \
    --trace="$output/$1.trace.json.gz" > "$output/logs/profile-$1.log" 2>&1 || echo "profile $1 ended with $?"
  timeout "$(left)" "$python" -m benchmarks.profile_recordings "$output/$1" --output="$output/recordings" >> "$output/logs/profile-$1.log" 2>&1 \
    || echo "recording $1 ended with $?"
}

picture=224x224x3 zoo=$output/zoo
case $step in
  make)
    mps=$(mktemp -d)
    export CUDA_MPS_PIPE_DIRECTORY=$mps CUDA_MPS_LOG_DIRECTORY=$mps TFTRT_BUILD_TURNS=0
    nvidia-cuda-mps-control -d || { echo "no MPS here: this will take long" >&2; unset CUDA_MPS_PIPE_DIRECTORY; }
    trap 'echo quit | nvidia-cuda-mps-control > /dev/null 2>&1 || true; rm -rf "$mps"' EXIT
    "$python" -m benchmarks.diagnosis "${cases[@]}" --make --jobs 4 --budget "$(left)" --workdir="$output/diagnosis" \
      > "$output/logs/diagnosis-make.log" 2>&1 &
    [ ${#cases[@]} -eq 0 ] || { wait; exit; }
    CUDA_VISIBLE_DEVICES=-1 "$python" -m saved_models resnet50 mobilenet_v2 bert_encoder --output="$zoo" > "$output/logs/zoo.log" 2>&1
    "$python" -c "import numpy as np; np.savez('$output/pictures.npz', image=np.random.default_rng(0).random((64, 224, 224, 3), np.float32))"
    ids='input_ids:8x128;input_mask:8x128'
    convert resnet_fp16 "$zoo/resnet50" --precision=FP16 --shapes="image:1x$picture,32x$picture" &
    int8 resnet_int8 "$zoo/resnet50" "$output/pictures.npz" --shapes="image:32x$picture" &
    convert mobilenet_fp16 "$zoo/mobilenet_v2" --precision=FP16 --shapes="image:1x$picture,32x$picture" &
    convert encoder_fp16 "$zoo/bert_encoder" --precision=FP16 --shapes="$ids" &
    if [ -n "$models" ]; then
      convert fer_fp16 "$models/fer" --precision=FP16 --shapes=input_1:1x64x64x1,32x64x64x1 &
      int8 fer_int8 "$models/fer" "$models/fer.calibration.npz" --shapes=input_1:32x64x64x1 &
      convert musicnn_fp16 "$models/musicnn" --precision=FP16 --shapes=spectrogram:1x187x96,16x187x96 &
    fi
    wait ;;
  profiles)
    profile resnet_fp16 "$zoo/resnet50"; profile resnet_int8 "$zoo/resnet50"; profile mobilenet_fp16 "$zoo/mobilenet_v2"
    profile encoder_fp16 "$zoo/bert_encoder"
    if [ -n "$models" ]; then profile fer_fp16 "$models/fer"; profile fer_int8 "$models/fer"; profile musicnn_fp16 "$models/musicnn"; fi ;;
  diagnosis) "$python" -m benchmarks.diagnosis "${cases[@]}" --case_budget 200 --budget "$(left)" --workdir="$output/diagnosis" ;;
  settings) "$python" -m benchmarks.build_settings --budget "$(left)" --workdir="$output/settings" ;;
  tests) timeout "$(left)" "$python" -m pytest -n 0 -m gpu -q tests/gpu/test_gpu_layers.py tests/gpu/test_gpu_profile.py tests/gpu/test_gpu_diagnose.py \
      tests/gpu/test_gpu_build_repeat.py ;;
  *) echo "no step $step: make, profiles, diagnosis, settings or tests" >&2; exit 2 ;;
esac
