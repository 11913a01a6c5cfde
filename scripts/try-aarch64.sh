#!/usr/bin/env bash
# try-aarch64.sh -- builds Forerun for 64-bit Arm by a cross compiler and tests it under emulation.
#
#   scripts/try-aarch64.sh [OPTION]...     options of try-system.sh: --fresh, --keep, --cache DIR ...
#   scripts/try-aarch64.sh --here          in this system, which is Debian 13 on x86-64, as root
#
# In a Debian 13 made by try-system.sh it installs Debian's cross compiler, qemu-user and the
# libraries for arm64 (without MPI, CBC and libmicrohttpd), builds the library, the command and all
# test programs with warnings as errors, and runs the tests of `ctest --preset aarch64`: conformance
# of ref and cpu, backend, engine/same, the examples, a training by the command. qemu emulates one
# model of processor (cmake/aarch64.cmake), so the result does not depend on the host. Exit codes
# are those of try-system.sh.
set -euo pipefail
self=$(realpath "$0")
cd "$(dirname "$self")/.."
case ${1:-} in
--here) [ $# = 1 ] || { echo "try-aarch64: --here takes no options" >&2 && exit 2; } ;;
-h | --help) sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$self" && exit 0 ;;
*) exec scripts/try-system.sh --run "scripts/try-aarch64.sh --here" "$@" trixie ;;
esac

part() { printf '\ntry-aarch64: %s (at %d s)\n' "$*" "$SECONDS"; }
part "packages"
packages=(cmake ninja-build pkgconf gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user)
for library in libdnnl-dev libfyaml-dev libjansson-dev nettle-dev libxxhash-dev zlib1g-dev libcmocka-dev; do
    packages+=("$library:arm64")
done
export DEBIAN_FRONTEND=noninteractive
dpkg --add-architecture arm64
apt-get -qq update
apt-get -qq install --no-install-recommends "${packages[@]}" >/dev/null

part "build"
cmake --preset aarch64 >/dev/null
cmake --build --preset aarch64 -- --quiet

part "tests on an emulated processor"
ctest --preset aarch64 -j "$(nproc)"
