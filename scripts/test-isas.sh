#!/bin/sh
# test-isas.sh -- the suites of kernels under each instruction set that this processor has.
#
#   scripts/test-isas.sh [BUILD]
#
# oneDNN chooses its kernels and layouts by the instruction set. ONEDNN_MAX_CPU_ISA caps it, so that
# one machine can stand in for smaller ones. The whole suite has run under the best one; here follow
# the tests that compute with the cpu backend, once under each smaller one. The last lines say which
# instruction sets ran and which this machine cannot run. Exit code 1 if a test failed.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
jobs=$(nproc 2>/dev/null || echo 2)
tests='^(backend|conformance)/|^engine/(same|random|replicas|recompute|update|async|reference)$'
tests="$tests|^train/(layouts|same_numbers)\$|^sim/memory\$"

isa() { # what `forerun info` calls the instruction set under a cap
    ONEDNN_MAX_CPU_ISA=$1 "$build/forerun" info | sed -n 's/^ *oneDNN [0-9.]*, \([^,]*\),.*/\1/p'
}

best=$(isa DEFAULT)
[ -n "$best" ] || {
    echo "test-isas: $build/forerun info names no instruction set" >&2
    exit 1
}
ran="$best (the whole suite)" absent= seen=" $best " failed=
case $(uname -m) in
x86_64) caps="SSE41 AVX AVX2 AVX2_VNNI AVX512_CORE AVX512_CORE_VNNI AVX512_CORE_BF16 AVX512_CORE_FP16
    AVX512_CORE_AMX" ;;
*) caps= ;; # oneDNN has no caps there
esac
for cap in $caps; do
    name=$(isa "$cap")
    want=$(echo "$cap" | tr '[:upper:]' '[:lower:]' |
        sed 's/sse41/sse4.1/; s/avx512_core/avx512/; s/_/+/g')
    # The cap acts: a processor without it goes on with the next smaller one that it has.
    if [ "$name" != "$want" ]; then
        absent="$absent $want"
        continue
    fi
    case $seen in *" $name "*) continue ;; esac
    seen="$seen$name "
    echo "=== kernels under $name (ONEDNN_MAX_CPU_ISA=$cap)"
    if ONEDNN_MAX_CPU_ISA=$cap ctest --test-dir "$build" -j "$jobs" -R "$tests" --quiet \
        --output-on-failure --no-tests=error; then
        ran="$ran, $name"
    else
        failed="$failed $name"
    fi
done
echo "Instruction sets tested: $ran."
[ -z "$absent" ] || echo "Not tested, this processor does not have them:$absent."
[ -z "$failed" ] || {
    echo "Tests failed under:$failed." >&2
    exit 1
}
