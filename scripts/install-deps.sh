#!/bin/sh
# install-deps.sh -- installs the Debian packages that Forerun needs and that are missing.
#
#   scripts/install-deps.sh            what `make` and `make demo` need
#   scripts/install-deps.sh --test     and what `make test` needs (a browser to look at the report)
#   scripts/install-deps.sh --bench    and what bench/ needs (PyTorch to compare with, iproute2 for slow networks)
#   scripts/install-deps.sh --dev      and what .ci/run needs (clang, clang-format)
#
# With nothing missing it does nothing, says nothing and needs neither network nor rights.
# On a system without apt it only looks, and lists what it cannot find.
set -eu

packages="build-essential cmake ninja-build pkg-config libdnnl-dev libfyaml-dev libjansson-dev
    zlib1g-dev libcmocka-dev libopenmpi-dev openmpi-bin coinor-libcbc-dev libmicrohttpd-dev
    protobuf-compiler locales dataset-fashion-mnist"
bench="python3 python3-torch python3-numpy libopenblas0-openmp iproute2"
test="chromium chromium-driver jq curl"
dev="clang clang-format-14 libclang-rt-14-dev libomp-14-dev"

for option in "$@"; do
    case $option in
    --test) packages="$packages $test" ;;
    --bench) packages="$packages $bench" ;;
    --dev) packages="$packages $dev" ;;
    *)
        sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
    esac
done

# Without apt: name what a build would miss, in words that fit any system.
look() {
    for tool in cc c++ cmake ninja pkg-config; do
        command -v "$tool" >/dev/null || echo "  $tool"
    done
    for library in libfyaml jansson zlib cmocka; do
        pkg-config --exists "$library" 2>/dev/null || echo "  $library (library and headers)"
    done
    echo '#include <dnnl.h>' | cc -E -x c - >/dev/null 2>&1 ||
        echo "  oneDNN 2.x or 3.x (library dnnl, header dnnl.h, built for OpenMP)"
    command -v mpicc >/dev/null || echo "  Open MPI or MPICH (only for runs of many processes)"
    pkg-config --exists cbc 2>/dev/null || echo "  CBC (only for the planner dlplacer)"
    pkg-config --exists libmicrohttpd 2>/dev/null || echo "  libmicrohttpd (only for train --serve)"
}
if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    missing=$(look)
    [ -z "$missing" ] && exit 0
    cat >&2 <<TEXT
install-deps: this system has no apt; please install these by its own means:
$missing
The demo also reads the four Fashion-MNIST files (data.path in examples/fashion-cnn.yaml).
TEXT
    exit 1
fi

# shellcheck disable=SC2086
have=" $(dpkg-query -W -f '${db:Status-Status}=${Package} ' $packages 2>/dev/null || true)"
missing=
for package in $packages; do
    case $have in
    *" installed=$package "*) ;;
    *) missing="$missing $package" ;;
    esac
done
[ -z "$missing" ] && exit 0

as_root=
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "install-deps: missing packages, and neither root nor sudo to install them; run as root:" >&2
        echo "  apt-get update && apt-get install$missing" >&2
        exit 1
    fi
    as_root=sudo
fi

apt() {
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y "$@"
}
echo "install-deps: installing$missing"
# Package lists may be absent or name versions that are gone: fetch them only then.
# shellcheck disable=SC2086
if ! apt-get -q -s install --no-install-recommends $missing >/dev/null 2>&1 ||
    ! apt install --no-install-recommends $missing; then
    apt update
    apt install --no-install-recommends $missing
fi
