#!/usr/bin/env bash
# The ci tier beyond the release build's tests: sources formatted, the build without the server, and the unit, server and
# fault tests under ASan+UBSan and TSan. Expects what tests/run.sh has installed.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=$(nproc)

step() { printf '\n=== %s (%s s)\n' "$*" "$SECONDS"; }

step "formatting"
if command -v clang-format >/dev/null; then
  git ls-files '*.h' '*.cc' | xargs clang-format --dry-run -Werror
fi

step "build without the server"
cmake --preset no-server -DMOE_TESTS=OFF -DMOE_BENCH=OFF >/dev/null
cmake --build --preset no-server --parallel "$jobs" -- --quiet
./build/no-server/moe run --quiet --seed 7 --max-new-tokens 20 "JULIET:"

step "build with asan"
cmake --preset asan -DMOE_BENCH=OFF >/dev/null
cmake --build --preset asan --parallel "$jobs" -- --quiet
# TSan is for what threads share. Its build runs beside the tests before it, which mostly wait.
threaded="parallel_test engine_loop_test cluster_test device_test server_test server_ranks_test"
step "tests with asan; beside them the build with tsan"
cmake --preset tsan -DMOE_BENCH=OFF >/dev/null
# shellcheck disable=SC2086  # a list of words is wanted
cmake --build --preset tsan --parallel "$jobs" --target $threaded -- --quiet >build/tsan/build.log 2>&1 &
tsan_build=$!
trap 'kill $tsan_build 2>/dev/null || true' EXIT
# These only compare numbers that units have under the sanitizer: fixture_test, model_test.
numbers="contract|dtypes|families|golden"
LSAN_OPTIONS="suppressions=$PWD/tests/lsan.supp:print_suppressions=0" MOE_TEST_PATIENCE=10 \
  ctest --test-dir build/asan -L ci -E "^integration_($numbers)\$" --output-on-failure --no-tests=error

step "what the tests leave of the build with tsan"
wait $tsan_build || { cat build/tsan/build.log; exit 1; }
step "tests with tsan"
TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp halt_on_error=1" MOE_TEST_PATIENCE=10 \
  ctest --test-dir build/tsan -R "^(${threaded// /|})\$" --output-on-failure --no-tests=error
