#!/usr/bin/env bash
# python.sh -- a run from Python by cffi, on the shared library.
#
#   tests/interop/python.sh LIBRARY SOURCE_DIR
#
# PYTHON names another interpreter than the system's, for which install-deps.sh installs cffi.
. "$(dirname "$0")/../cli/lib.bash"
python=${PYTHON:-/usr/bin/python3}
"$python" -c 'import cffi' 2>/dev/null || skip_all "$python has no cffi (python3-cffi)"
"$python" "$source_dir/tests/interop/run_object.py" "$1" >out 2>err || fail "run_object.py"
cat out
