#!/usr/bin/env bash
# The ci tier beyond the release build's tests: the build without the server, and the unit, server and fault tests under
# ASan+UBSan and TSan. Expects what tests/run.sh has installed.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=$(nproc)

step() { printf '\n=== %s (%s s)\n' "$*" "$SECONDS"; }

step "build without the server"
cmake --preset no-server -DMOE_TESTS=OFF -DMOE_BENCH=OFF >/dev/null
cmake --build --preset no-server --parallel "$jobs" -- --quiet
./build/no-server/moe run --quiet --seed 7 --max-new-tokens 20 "JULIET:"

for sanitizer in asan tsan; do
  step "build with $sanitizer"
  cmake --preset "$sanitizer" -DMOE_BENCH=OFF >/dev/null
  cmake --build --preset "$sanitizer" --parallel "$jobs" -- --quiet
  step "tests with $sanitizer"
  # TSan is for what threads share; the rest runs under ASan and UBSan.
  select=()
  [ "$sanitizer" = tsan ] && select=(-R 'parallel_test|engine_loop_test|server_test|device_test')
  MOE_TEST_PATIENCE=10 ctest --test-dir "build/$sanitizer" -L ci --output-on-failure --no-tests=error "${select[@]}"
done
