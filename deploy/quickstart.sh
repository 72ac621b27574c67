#!/bin/sh
# From a fresh Debian 12 to text over gRPC: installs what is needed, builds the release, starts the server with the demo
# model that is linked into it, lets a client generate from it, and stops it.
#   deploy/quickstart.sh ["a prompt"]
set -eu
cd "$(dirname "$0")/.."
prompt=${1:-JULIET:}

sh deploy/packages.sh
cmake --preset release -DMOE_TESTS=OFF
cmake --build --preset release --target moe --parallel "$(nproc)"

log=$(mktemp)
./build/release/moe serve --port 0 --admin-port 0 2>"$log" &
server=$!
trap 'kill "$server" 2>/dev/null || true; rm -f "$log"' EXIT

# The address is printed once the server is ready; port 0 means that the system chose one.
address=""
tries=0
while [ -z "$address" ]; do
  address=$(sed -n 's/.*listening on \([0-9.]*:[0-9]*\).*/\1/p' "$log" | head -n 1)
  tries=$((tries + 1))
  if ! kill -0 "$server" 2>/dev/null || [ "$tries" -gt 300 ]; then
    cat "$log" >&2
    exit 1
  fi
  sleep 0.1
done
cat "$log"
echo
echo "\$ moe generate --target $address --max-new-tokens 100 --seed 7 \"$prompt\""
./build/release/moe generate --target "$address" --max-new-tokens 100 --seed 7 "$prompt"
