# What `make install` lays down serves a program that knows pkg-config only: linked to the shared
# library and to the static one. Arguments: the binary in its build folder, the source folder.
set -eu
build=$(dirname "$1")
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
prefix=$(sed -n 's/^CMAKE_INSTALL_PREFIX:[A-Z]*=//p' "$build/CMakeCache.txt")
DESTDIR=$top cmake --install "$build" > "$top/log" || { cat "$top/log"; exit 1; }
pc=$(find "$top" -name forerun.pc)
export PKG_CONFIG_SYSROOT_DIR=$top PKG_CONFIG_PATH=${pc%/forerun.pc}
library=$top$(PKG_CONFIG_SYSROOT_DIR='' pkg-config --variable=libdir forerun)
fail() { echo "FAIL: $*"; exit 1; }

for path in "$top$prefix/bin/forerun" "$library/libforerun.so.0" "$library/libforerun.a"; do
    [ -e "$path" ] || fail "$path is not installed"
done
share=$top$prefix/share
for path in bash-completion/completions/forerun zsh/site-functions/_forerun \
    fish/vendor_completions.d/forerun.fish; do
    grep -q 'completion of forerun' "$share/$path" || fail "$share/$path is not installed"
done
cmp "$2/docs/forerun.1" "$share/man/man1/forerun.1" || fail "the man page is not installed"
for header in "$2"/include/forerun/*.h; do
    cmp "$header" "$top$prefix/include/forerun/${header##*/}" || fail "header not installed"
done
internal=$(nm -D --defined-only "$library/libforerun.so" | grep -c ' fr__' || true)
[ "$internal" = 0 ] || fail "the shared library shows $internal internal names"

cat > "$top/user.c" <<'C'
#include <forerun/forerun.h>
#include <stdio.h>

int main(void)
{
    fr_ctx *ctx = fr_ctx_create();
    fr_graph *graph = NULL;
    fr_model_options sizes = {.inputs = 4, .depth = 1, .width = 3, .classes = 2};
    const fr_model *mlp = fr_model_find("mlp");
    if (!ctx || !mlp || fr_model_build(ctx, mlp, &sizes, &graph) != FR_OK) {
        fprintf(stderr, "%s\n", ctx ? fr_ctx_error(ctx) : "no context");
        return 1;
    }
    const fr_backend *cpu = fr_backend_find("cpu");
    printf("%s %lld %s\n", fr_version(), (long long)fr_graph_param_count(graph),
           cpu ? fr_backend_name(cpu) : "none");
    fr_graph_free(graph);
    fr_ctx_free(ctx);
    return 0;
}
C
version=$(pkg-config --modversion forerun)
expected="$version 23 cpu" # 4 x 3 + 3 and 3 x 2 + 2 parameters

cc -std=c11 -Wall -Wextra -Werror $(pkg-config --cflags forerun) "$top/user.c" -o "$top/shared" \
    $(pkg-config --libs forerun)
said=$(LD_LIBRARY_PATH=$library "$top/shared")
[ "$said" = "$expected" ] || fail "shared: said '$said', expected '$expected'"
LD_LIBRARY_PATH=$library ldd "$top/shared" | grep -q "$library/libforerun.so.0" || fail "not linked to libforerun.so.0"

rm "$library"/libforerun.so*
cc -std=c11 $(pkg-config --cflags forerun) "$top/user.c" -o "$top/static" \
    $(pkg-config --static --libs forerun)
said=$("$top/static")
[ "$said" = "$expected" ] || fail "static: said '$said', expected '$expected'"
said=$("$top$prefix/bin/forerun" --version)
case $said in *"$version"*) ;; *) fail "forerun --version said '$said', expected $version" ;; esac
echo "installed, found by pkg-config, linked both ways"
