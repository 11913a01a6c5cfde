# The house check passes on this tree and fails on each planted breach. That all headers compile
# alone, `make check` tests.
# Arguments: the binary (unused), the source folder.
set -eu
source=$2
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
for part in include src cli tests examples scripts; do
    [ -d "$source/$part" ] && cp -r "$source/$part" "$tree/"
done

check="$source/scripts/check-house.sh --root $tree"
$check layers kernels sizes words skips || { echo "FAIL: the tree itself breaks a rule"; exit 1; }

# plant CHECK FILE WORDS-OF-THE-MESSAGE <<< TEXT: one file more, one finding more
plant() {
    mkdir -p "$(dirname "$tree/$2")"
    cat > "$tree/$2"
    if said=$($check "$1" 2>&1); then
        echo "FAIL: $1 did not see $2:"; cat "$tree/$2"; exit 1
    fi
    case $said in
    *"$2"*"$3"*) ;;
    *) echo "FAIL: $1 on $2 should speak of '$3', said: $said"; exit 1 ;;
    esac
    rm "$tree/$2"
}

plant layers src/io/planted.c "must not see graph" <<< '#include "graph/shape.h"'
plant layers src/base/planted.h "must not see io" <<< '  #  include "io/file.h"'
plant layers src/tokens/planted.c "must not see models" <<< '#include <forerun/models.h>'
plant layers src/graph/planted.c "must not see engine" <<< '#include <forerun/engine.h>'
plant layers src/optim/planted.c "without .." <<< '#include "../io/file.h"'
plant layers src/engine/planted.c "one by one" <<< '#include <forerun/forerun.h>'
plant layers src/backend/ref/planted.c "inside that part" <<< '#include "backend/cpu/planted.h"'
plant layers src/attic/planted.c "has no layer" <<< 'int planted;'
plant layers include/forerun/base2.h "has no layer" <<< '/* planted */'
plant layers cli/planted.c "own files only" <<< '#include "base/alloc.h"'
plant kernels src/backend/cpu/planted.c "one header" <<< '#include <dnnl.h>'
plant kernels tests/graph/test_planted.c "one header" <<< '#include "oneapi/dnnl/dnnl.h"'
plant sizes src/base/planted.c "700 lines" < <(printf 'extern int a;\n%.0s' {1..701})
plant sizes src/base/planted.c "a function of 95 lines" < <(printf 'void f(void)\n{\n'; printf '    a++;\n%.0s' {1..95}; printf '}\n')
plant skips tests/base/test_planted.c "without a reason" <<< 'static void f(void **s) { if (!s) skip(); }'
plant skips tests/cli/planted.sh "without a reason" <<< "command -v planted || exit 7"7
plant words src/base/planted.c "planted" <<< "/* TO""DO: planted */"
plant words README.md "planted" <<< "see /wor""k/planted"
plant words src/base/planted.c "implemented" <<< "/* not yet implemented */"

# Headers are compiled one by one: the public ones and one module show it.
find "$tree/src" -mindepth 1 -maxdepth 1 -not -name base -exec rm -r {} +
plant headers include/forerun/planted.h "without FR_API" <<< 'int fr_planted(void);'
plant headers include/forerun/planted.h "C11" <<< 'fr_status planted(void);'
plant headers include/forerun/planted.h "C++17" <<< 'static inline int planted(int class) { return class; }'
plant headers include/forerun/planted.h "under 200" < <(printf '/* 1 */\n%.0s' {1..200})
plant headers src/base/planted.h "compile alone" <<< 'size_t planted(void);'
echo "check-house sees every planted breach"
