#!/bin/sh
# test-isas.sh -- runs the kernel tests under each instruction set of this processor.
#
#   scripts/test-isas.sh [BUILD]
#
# oneDNN chooses its kernels and layouts by the instruction set. ONEDNN_MAX_CPU_ISA limits it, so
# that one machine can represent smaller ones. The full suite has run with the best instruction set;
# this script runs the tests whose result depends on the kernels of the cpu backend once with each
# smaller one: every operator against `ref` and in every memory layout, and whole networks, any cut of
# which gives the bits of one worker in the memory that was forecast. Sets with vnni add instructions
# for numbers of 8 bits only; there the operators suffice. The last lines list the tested
# instruction sets and those that this machine lacks. Exit code 1 if a test failed.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
jobs=$(nproc 2>/dev/null || echo 2)
operators='^backend/|^conformance/(backends|errors|layouts)$'
networks='^conformance/(fixtures|gradients|stages)$|^engine/same$|^run/same_numbers$|^sim/memory$'

isa() { # the instruction set under a limit, by `forerun info`
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
*) caps= ;; # oneDNN has no limits there
esac
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for pair in $caps; do
    cap=${pair%%=*} name=${pair#*=}
    case $seen in *" $name "*) continue ;; esac
    # Without the set, or with a oneDNN that does not support it, another one is used.
    if [ "$(isa "$cap")" != "$name" ]; then
        absent="$absent $name"
        continue
    fi
    seen="$seen$name "
    tests="$operators|$networks"
    case $name in *vnni*) tests=$operators ;; esac
    if ONEDNN_MAX_CPU_ISA=$cap FR_BACKEND=cpu ctest --test-dir "$build" -j "$jobs" -R "$tests" \
        --output-on-failure --no-tests=error >"$log" 2>&1; then
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
