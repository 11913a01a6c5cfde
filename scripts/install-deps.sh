#!/bin/sh
# install-deps.sh -- installs missing packages that Forerun needs.
#
#   scripts/install-deps.sh            what `make` and `make demo` need
#   scripts/install-deps.sh --test     and what `make test` needs (a browser to look at the report, shells, readers of man pages)
#   scripts/install-deps.sh --bench    and what bench/ needs (PyTorch to compare with, iproute2 for slow networks)
#   scripts/install-deps.sh --dev      and what .ci/run needs (clang, clang-format, debootstrap)
#
# Tested: Debian 12 and 13. Expected to work: Ubuntu 24.04 and 26.04 (apt), Fedora (dnf). If nothing
# is missing, it does nothing, prints nothing and needs neither network nor privileges. On other
# systems it only lists the missing parts.
set -eu

packages="build-essential cmake ninja-build pkg-config libdnnl-dev libfyaml-dev libjansson-dev
    nettle-dev libxxhash-dev zlib1g-dev libcmocka-dev libopenmpi-dev openmpi-bin coinor-libcbc-dev
    libmicrohttpd-dev protobuf-compiler locales dataset-fashion-mnist"
bench="python3 python3-torch python3-numpy libopenblas0-openmp iproute2"
readers="git jq curl zsh fish mandoc man-db python3-cffi" # what reads and uses what Forerun makes
test="chromium chromium-driver libxml2-utils $readers"
dev="clang libclang-rt-dev libomp-dev debootstrap"

ID='' VERSION_ID=''
# shellcheck disable=SC1091
[ ! -r /etc/os-release ] || . /etc/os-release
case "$ID $VERSION_ID" in
"debian 12") dev="$dev clang-format-14" ;; # the sources are formatted by version 14
"ubuntu 24.04")
    dev="$dev clang-format-14"
    bench="python3 python3-numpy libopenblas0-openmp iproute2" # there is no PyTorch package
    test="libxml2-utils $readers"                              # the browser is a snap
    ;;
"ubuntu "*) test="libxml2-utils $readers" ;;
"fedora "*)
    packages="gcc gcc-c++ make cmake ninja-build pkgconf-pkg-config onednn-devel libfyaml-devel
        jansson-devel nettle-devel xxhash-devel zlib-devel libcmocka-devel openmpi-devel
        coin-or-Cbc-devel libmicrohttpd-devel protobuf-compiler glibc-all-langpacks"
    bench="python3 python3-torch python3-numpy iproute"
    test="chromium chromedriver libxml2 $readers"
    dev="clang compiler-rt libomp-devel debootstrap"
    ;;
esac

for option in "$@"; do
    case $option in
    --test) packages="$packages $test" ;;
    --bench) packages="$packages $bench" ;;
    --dev) packages="$packages $dev" ;;
    *)
        sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
    esac
done

# Unknown package manager: list the missing parts by names that fit any system.
look() {
    for tool in cc c++ cmake ninja pkg-config; do
        command -v "$tool" >/dev/null || echo "  $tool"
    done
    for library in libfyaml jansson nettle libxxhash zlib cmocka; do
        pkg-config --exists "$library" 2>/dev/null || echo "  $library (library and headers)"
    done
    echo '#include <dnnl.h>' | cc -E -x c - >/dev/null 2>&1 ||
        echo "  oneDNN 2.6 to 3.x (library dnnl, header dnnl.h, built for OpenMP)"
    command -v mpicc >/dev/null || echo "  Open MPI or MPICH (only for runs of many processes)"
    pkg-config --exists cbc 2>/dev/null || echo "  CBC (only for the planner dlplacer)"
    pkg-config --exists libmicrohttpd 2>/dev/null || echo "  libmicrohttpd (only for train --serve)"
}
has() { command -v "$1" >/dev/null; }
# The installed packages, as words "installed=PACKAGE".
# shellcheck disable=SC2086
if has apt-get && has dpkg-query; then
    manager="apt-get -q -y"
    options=--no-install-recommends
    have=$(dpkg-query -W -f '${db:Status-Status}=${Package} ' $packages 2>/dev/null || true)
elif [ "$ID" = fedora ] && has dnf && has rpm; then
    manager="dnf -y"
    options=--setopt=install_weak_deps=False
    have=
    for package in $packages; do # by what a package provides: names change
        ! rpm -q --whatprovides "$package" >/dev/null 2>&1 || have="$have installed=$package"
    done
    have="$have "
else
    missing=$(look)
    [ -z "$missing" ] && exit 0
    cat >&2 <<TEXT
install-deps: no package names for this system; please install these by its own means:
$missing
The demo also reads the four Fashion-MNIST files (data.path in examples/fashion-cnn.yaml).
TEXT
    exit 1
fi
missing=
for package in $packages; do
    case " $have" in
    *" installed=$package "*) ;;
    *) missing="$missing $package" ;;
    esac
done
[ -z "$missing" ] && exit 0

as_root=
if [ "$(id -u)" != 0 ]; then
    if ! has sudo; then
        echo "install-deps: missing packages, and neither root nor sudo to install them; run as root:" >&2
        echo "  ${manager%% *} install$missing" >&2
        exit 1
    fi
    as_root=sudo
fi
manage() {
    # shellcheck disable=SC2086
    $as_root env DEBIAN_FRONTEND=noninteractive $manager "$@"
}
echo "install-deps: installing$missing"
# shellcheck disable=SC2086
case $manager in
apt-get*) # package lists may be absent or name versions that are gone: fetch them only then
    if ! apt-get -q -s install $options $missing >/dev/null 2>&1 || ! manage install $options $missing; then
        manage update
        manage install $options $missing
    fi
    ;;
*)
    manage install $options $missing
    echo "install-deps: Fedora is untested. MPI: module load mpi/openmpi-x86_64 before the build;" \
        "the demo needs the four Fashion-MNIST files (data.path in examples/demo.yaml)."
    ;;
esac
