#!/bin/sh
# Lint, types, unit tests, then the whole-flow tests, with the environment named by $1.
set -eu
bin=${1:-.venv}/bin
start=$(date +%s)
step() { printf '\ntest: %s (%s s so far)\n' "$*" "$(($(date +%s) - start))"; }
step "ruff"
"$bin/ruff" check .
"$bin/ruff" format --check --quiet .
step "mypy"
"$bin/mypy"
step "pytest"
# shellcheck disable=SC2086
"$bin/python" -m pytest --durations=15 ${PYTEST_ARGS:-}
step "done"
