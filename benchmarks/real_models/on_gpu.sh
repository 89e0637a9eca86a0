#!/usr/bin/env bash
# The runs over real models that need a GPU, in steps of less than ten minutes each; a step that is run again goes on where it stopped.
#
#   benchmarks/real_models/on_gpu.sh STEP MODELS_DIR OUTPUT [BASELINE]
#
# STEP: tests, builds, small, medium, texts, int8 or table. MODELS_DIR: what `python -m benchmarks.real_models --make --models_dir=…` wrote.
# BASELINE: another checkout of this repository, whose build times are measured in turns (builds). PYTHON: the interpreter, by default
# .venv/bin/python. Needs the GPU alone: TensorRT chooses kernels by timing them.
set -euo pipefail
step=${1:?STEP is missing} models=${2:?MODELS_DIR is missing} output=${3:?OUTPUT is missing} baseline=${4:-}
python=${PYTHON:-.venv/bin/python}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
mkdir -p "$output"

over() {  # over NAME MODELS [FLAGS]: convert with two profiles, build, verify, time against native
  "$python" -m benchmarks.real_models --gpu --models_dir="$models" --output="$output/$1" --models="$2" --deadline=560 "${@:3}"
}

case $step in
  tests)
    timeout 570 "$python" -m pytest -n 0 -m gpu -q tests/test_gpu_names.py tests/test_gpu_engines.py tests/test_gpu_detector.py \
      tests/test_methods.py ;;
  builds)
    "$python" -m benchmarks.build_time --workdir="$output/builds" --json="$output/builds.json" --resume --budget=560 \
      ${baseline:+--baseline="$baseline"} --cases=cold,cached,tensorrt \
      "$models/deepcut=input_1:1x21,64x21;input_2:1x21,64x21" "$models/fer=input_1:1x64x64x1,64x64x64x1" ;;
  small) over small fer,mtcnn_rnet,mtcnn_onet,mtcnn_pnet,jpeg_classifier,keras3,detector,stft_tagger --precisions=FP16 --budget=200 ;;
  medium) over medium musicnn,musicnn_vgg,deepcut,deeplc,basic_pitch,tcn,dilated_unet --precisions=FP16 --budget=240 ;;
  texts) over texts dgaintel,textgenrnn,gru_digits,guesslang,text_lookup,distilbert,gpt2 --precisions=FP16 --budget=240 ;;
  int8) over int8 fer,mtcnn_onet,musicnn,tcn,deeplc,textgenrnn --precisions=INT8 --methods=entropy,auto --budget=400 ;;
  table) "$python" -m benchmarks.real_models --table --markdown --output="$output" ;;
  *) echo "no step $step: tests, builds, small, medium, texts, int8 or table" >&2; exit 2 ;;
esac
