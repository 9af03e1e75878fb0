#!/usr/bin/env bash
# Starts the vLLM that setup.sh installed, with its small model, as `tiny`: start.sh PORT [options of vLLM].
set -euo pipefail
port=$1
shift
folder=${WARMPATH_VLLM:-${XDG_CACHE_HOME:-$HOME/.cache}/warmpath/vllm}
# VLLM_SERVER_DEV_MODE: `/reset_prefix_cache`.
export VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1 VLLM_CPU_CI_ENV=1 \
  VLLM_SERVER_DEV_MODE=1 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
exec "$folder/venv/bin/python" -m vllm.entrypoints.openai.api_server --host 127.0.0.1 --port "$port" \
  --model "$folder/model" --served-model-name tiny --load-format dummy --dtype float32 --enforce-eager \
  --max-model-len 4096 --max-num-seqs 8 "$@"
