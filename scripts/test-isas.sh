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
ran="$best (the whole suite)" absent='' seen=" $best " failed=''
case $(uname -m) in
x86_64) caps="SSE41=sse4.1 AVX=avx AVX2=avx2 AVX2_VNNI=avx2+vnni AVX2_VNNI_2=avx2+vnni2 AVX512_CORE=avx512
    AVX512_CORE_VNNI=avx512+vnni AVX512_CORE_BF16=avx512+bf16 AVX512_CORE_FP16=avx512+fp16
    AVX512_CORE_AMX=avx512+amx AVX512_CORE_AMX_FP16=avx512+amx+fp16" ;;
*) caps= ;; # oneDNN has no caps there
esac
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for pair in $caps; do
    cap=${pair%%=*} name=${pair#*=}
    case $seen in *" $name "*) continue ;; esac
    # A processor without the set, or a oneDNN that does not know it, goes on with another one.
    if [ "$(isa "$cap")" != "$name" ]; then
        absent="$absent $name"
        continue
    fi
    seen="$seen$name "
    if ONEDNN_MAX_CPU_ISA=$cap ctest --test-dir "$build" -j "$jobs" -R "$tests" --output-on-failure \
        --no-tests=error >"$log" 2>&1; then
        ran="$ran, $name"
    else
        failed="$failed $name"
        cat "$log"
    fi
    echo "Kernels under $name: $(grep 'tests passed' "$log" || echo 'no test ran')"
done
echo "Instruction sets tested: $ran."
[ -z "$absent" ] || echo "Not tested, this processor does not have them:$absent."
[ -z "$failed" ] || {
    echo "Tests failed under:$failed." >&2
    exit 1
}
