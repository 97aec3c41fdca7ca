#!/bin/sh
# Train and evaluate a small slice on a GPU: under 10 minutes, within 12 GB, in mixed precision, equal to the CPU.
# $1 is the virtual environment; what follows goes to the check (--cpu: a dry run). Nothing is downloaded.
# Exit code 0: passed; 1: a check failed; 2: there is no GPU. Prints one JSON record.
set -eu
venv=${1:-.venv}
[ $# -eq 0 ] || shift
HF_HUB_OFFLINE=1 exec "$venv/bin/python" -m ecoagent.evaluation.gpu_check "$@"
