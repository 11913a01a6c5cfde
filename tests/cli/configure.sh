# The build description: the caller's flags are used, and an unsuitable oneDNN is refused with a
# reason and a remedy. Nothing is compiled.
. "$(dirname "$0")/lib.bash"
configure() { cmake -S "$source_dir" -B tree -G Ninja -DBUILD_TESTING=OFF "$@" >log 2>&1; }

# compiled WORD...: each command of the last configuration has these words, in this order.
compiled() {
    local n with
    n=$(grep -c '"command":' tree/compile_commands.json)
    with=$(grep '"command":' tree/compile_commands.json | grep -cE -- " $(printf '%s .*' "$@")")
    [ "$n" -gt 100 ] || fail "only $n commands"
    same "$with" "$n" "commands with $*"
}
not_compiled() { if grep -m1 -e "$1" tree/compile_commands.json; then fail "$1 is there"; fi; }
configure || { cat log; fail "the defaults"; }
compiled -O3
configure -DCMAKE_C_FLAGS_RELEASE=-O1 -DCMAKE_C_FLAGS=-g3 || { cat log; fail "flags of a release"; }
compiled -g3 -O1
not_compiled ' -O3'
configure -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG=-ggdb || { cat log; fail "flags for debugging"; }
compiled -ggdb
not_compiled ' -O'
configure -DFR_MPI=OFF -DFR_CBC=OFF -DFR_MICROHTTPD=OFF || { cat log; fail "without what can be left out"; }
not_compiled FR_HAVE_

# oneDNN by its headers: refuses MAJOR MINOR RUNTIME WORD...
refuses() {
    mkdir -p fake/oneapi/dnnl
    : >fake/dnnl.h
    printf '#define DNNL_VERSION_MAJOR %d\n#define DNNL_VERSION_MINOR %d\n' "$1" "$2" >fake/oneapi/dnnl/dnnl_version.h
    printf '#define DNNL_RUNTIME_OMP 2u\n#define DNNL_CPU_THREADING_RUNTIME %s\n' "$3" >fake/oneapi/dnnl/dnnl_config.h
    refused "${@:4}"
}
refused() { # WORD...
    if configure -DDNNL_INCLUDE="$work/fake"; then fail "it was taken: $*"; fi
    for word in "$work/fake" libdnnl-dev "$@"; do
        tr -s '\n ' ' ' <log | grep -F -- "$word" >/dev/null || { cat log; fail "the refusal does not say '$word'"; }
    done
}
refuses 2 5 DNNL_RUNTIME_OMP "oneDNN 2.5 is not supported" "2.6 to 3.x"
refuses 4 0 DNNL_RUNTIME_OMP "oneDNN 4.0 is not supported"
for runtime in TBB THREADPOOL SEQ DPCPP; do
    refuses 3 7 DNNL_RUNTIME_$runtime "DNNL_RUNTIME_$runtime, not by OpenMP" -DDNNL_CPU_RUNTIME=OMP
done
rm -r fake/oneapi # as before version 2
refused "before 2" "not supported"
echo ok
