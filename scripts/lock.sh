#!/bin/sh
# Resolve requirements.lock from pyproject.toml, for every platform, without torch's own GPU libraries:
# pip brings those with torch where the CUDA build is taken.
set -eu
venv=${1:-.venv}
skip=$("$venv/bin/python" - <<'PY'
names = """cuda-bindings cuda-pathfinder cuda-toolkit nvidia-cublas nvidia-cuda-cupti nvidia-cuda-nvrtc
nvidia-cuda-runtime nvidia-cudnn-cu13 nvidia-cufft nvidia-cufile nvidia-curand nvidia-cusolver nvidia-cusparse
nvidia-cusparselt-cu13 nvidia-nccl-cu13 nvidia-nvjitlink nvidia-nvshmem-cu13 nvidia-nvtx triton""".split()
print(" ".join(f"--no-emit-package {n}" for n in names))
PY
)
# shellcheck disable=SC2086
"$venv/bin/python" -m uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --no-annotate \
    --no-header --quiet $skip -o requirements.lock
