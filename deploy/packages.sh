#!/bin/sh
# Installs what building needs on Debian 12 (and newer); with "tests" as argument also what the tests need.
# Does nothing when all of it is there. Needs root or sudo only to install.
set -eu

build="g++ cmake ninja-build pkg-config git ca-certificates
  libgrpc++-dev protobuf-compiler-grpc protobuf-compiler libprotobuf-dev libabsl-dev
  prometheus-cpp-dev libcivetweb-dev libcli11-dev nlohmann-json3-dev libpcre2-dev libutf8proc-dev libssl-dev libgloo-dev"
tests="libgtest-dev libgmock-dev python3-venv prometheus ccache clang-format"

packages=$build
[ "${1:-}" = tests ] && packages="$packages $tests"

missing=""
for package in $packages; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
[ -z "$missing" ] && exit 0

echo "Installing:$missing"
as_root=""
[ "$(id -u)" = 0 ] || as_root="sudo"
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -q
# shellcheck disable=SC2086  # a list of words is wanted
$as_root apt-get install -q -y --no-install-recommends $missing
