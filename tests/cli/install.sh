# Programs find the files of `make install` by pkg-config and by CMake, and link to the shared and
# the static library, in a folder whose name has a space.
. "$(dirname "$0")/lib.bash"
build=$(dirname "$forerun")
prefix="$work/in a folder"
quietly() { "$@" >log 2>&1 || { cat log; fail "$*"; }; }
quietly cmake --install "$build" --prefix "$prefix"
pc=$(find "$prefix" -name forerun.pc)
export PKG_CONFIG_PATH=${pc%/forerun.pc}
library=$(dirname "$PKG_CONFIG_PATH")

for path in "$prefix/bin/forerun" "$library/libforerun.so.0" "$library/libforerun.a"; do
    [ -e "$path" ] || fail "$path is not installed"
done
share=$prefix/share
for path in bash-completion/completions/forerun zsh/site-functions/_forerun \
    fish/vendor_completions.d/forerun.fish; do
    grep -q 'completion of forerun' "$share/$path" || fail "$share/$path is not installed"
done
cmp "$source_dir/docs/forerun.1" "$share/man/man1/forerun.1" || fail "the man page is not installed"
for header in "$source_dir"/include/forerun/*.h; do
    cmp "$header" "$prefix/include/forerun/${header##*/}" || fail "header not installed"
done
exported=$(nm -D --defined-only "$library/libforerun.so" | awk '{ print $3 }' | sort)
declared=$(sed -n 's/^FR_API .*[ *]\(fr_[a-z0-9_]*\)(.*/\1/p' "$source_dir"/include/forerun/*.h | sort)
same "$exported" "$declared" "names that the shared library exports"
if grep -rnF -e "$build" -e "$source_dir" "$library/cmake" "$pc"; then fail "a place of the build is installed"; fi

version=$(pkg-config --modversion forerun)
expected="$version 23 cpu" # 4 x 3 + 3 and 3 x 2 + 2 parameters
is_shared() { # PROGRAM
    same "$(LD_LIBRARY_PATH=$library "$1")" "$expected" "$1"
    LD_LIBRARY_PATH=$library ldd "$1" | grep -F "$library/libforerun.so.0" >/dev/null || fail "$1: not linked to libforerun.so.0"
    if readelf -d "$1" | grep NEEDED | grep -E 'dnnl|fyaml|mpi'; then fail "$1: linked to what the library needs"; fi
}
is_static() { # PROGRAM
    same "$("$1")" "$expected" "$1"
    if readelf -d "$1" | grep NEEDED | grep forerun; then fail "$1: linked to the shared library"; fi
}

# By CMake; the shared library needs nothing else, the static one the libraries it was built with.
dependent() { # FOLDER DEFINITION...
    cmake -S "$source_dir/tests/cli/dependent" -B "$1" -G "Unix Makefiles" \
        -DCMAKE_C_FLAGS="-std=c11 -Wall -Wextra -Werror" -DCMAKE_PREFIX_PATH="$prefix" "${@:2}"
}
quietly dependent "by cmake" -DCOMPONENTS=static
quietly cmake --build "by cmake"
is_shared "by cmake/shared"
is_static "by cmake/static"
PKG_CONFIG=false quietly dependent "without pkg-config"
if PKG_CONFIG=false dependent lacking -DCOMPONENTS=static >log 2>&1; then fail "static without what it needs was found"; fi
if dependent unknown -DCOMPONENTS=fortran >log 2>&1; then fail "a component that is not there was found"; fi

# By pkg-config, which escapes the space for the shell.
user=$source_dir/tests/cli/dependent/main.c
eval "cc -std=c11 -Wall -Wextra -Werror $(pkg-config --cflags forerun) '$user' -o by-pc $(pkg-config --libs forerun)"
is_shared ./by-pc
rm "$library"/libforerun.so*
eval "cc -std=c11 $(pkg-config --cflags forerun) '$user' -o by-pc-static $(pkg-config --static --libs forerun)"
is_static ./by-pc-static
said=$("$prefix/bin/forerun" --version)
case $said in *"$version"*) ;; *) fail "forerun --version said '$said', expected $version" ;; esac
echo "installed, found by pkg-config and CMake, linked both ways"
