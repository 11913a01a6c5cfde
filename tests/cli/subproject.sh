# Forerun inside another project (add_subdirectory), by Unix Makefiles, in a folder whose name has a
# space, without MPI, CBC and libmicrohttpd: only the library that is used is compiled, with the
# settings of the other project, and its program runs.
# Arguments: the binary (unused), the source folder.
. "$(dirname "$0")/lib.bash"
top="$work/a project"
mkdir -p "$top/forerun"
cp -r "$source_dir"/{CMakeLists.txt,cmake,include,src} "$top/forerun/" # all that it may need
cmake -S "$source_dir/tests/cli/dependent" -B "$top/build" -G "Unix Makefiles" -DFORERUN_SOURCE="$top/forerun" \
    -DCMAKE_BUILD_TYPE=None -DCMAKE_C_FLAGS=-O0 -DFR_MPI=OFF -DFR_CBC=OFF -DFR_MICROHTTPD=OFF -DFR_WERROR=ON >log 2>&1 ||
    { cat log; fail "it cannot be configured"; }
if grep -e ' -O[1-9]' "$top/build/compile_commands.json"; then fail "flags that nobody gave"; fi
grep -q '^BUILD_TESTING:BOOL=ON$' "$top/build/CMakeCache.txt" || fail "a setting of the project was changed"
cmake --build "$top/build" --target static -j "$(nproc)" >log 2>&1 || { cat log; fail "it cannot be built"; }
version=$(sed -n 's/^project(forerun VERSION \([0-9.]*\).*/\1/p' "$source_dir/CMakeLists.txt")
same "$("$top/build/static")" "$version 23 cpu" "the program"
if readelf -d "$top/build/static" | grep NEEDED | grep -E 'forerun|mpi|Cbc|microhttpd'; then fail "linked to more than it needs"; fi
[ ! -e "$top/build/forerun/libforerun.so" ] || fail "the other library was built as well"
if ctest --test-dir "$top/build" -N | grep -E 'base/|cli/'; then fail "its tests are tests of the project"; fi
cmake --build "$top/build" --target shared -j "$(nproc)" >log 2>&1 || { cat log; fail "shared: it cannot be built"; }
same "$("$top/build/shared")" "$version 23 cpu" "the program with the shared library"
echo ok
