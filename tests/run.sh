#!/bin/sh
# Installs what the tests need, builds the release and runs one tier of them.
#   tests/run.sh [quick|ci|long]      default: quick
set -eu
cd "$(dirname "$0")/.."
tier=${1:-quick}

sh deploy/packages.sh tests

# The end-to-end tests talk to the real binary through Python's gRPC.
venv=build/venv
if ! "$venv/bin/python" -c 'import grpc, grpc_tools, grpc_health, grpc_reflection, pytest' 2>/dev/null; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q -r tests/requirements.txt
fi

cmake --preset release -DMOE_TESTS=ON
cmake --build --preset release --parallel "$(nproc)"
ctest --test-dir build/release -L "^$tier\$" --output-on-failure --no-tests=error
