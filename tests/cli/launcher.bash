# launcher.bash -- the mpirun of the MPI that $forerun was built with: on Debian plain mpirun may
# belong to another MPI. Sets the array `mpirun`; empty: not installed, or a build without MPI.
# shellcheck shell=bash
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_orte_execute_quiet=1 # Open MPI 4.1; 5 refuses -q and has no such setting
export OMPI_MCA_btl=^tcp             # one machine: no complaints about its networks

first_of() {
    local name
    for name in "$@"; do
        ! command -v "$name" || break
    done
}

patience_s=1800 # of an mpirun whose script was killed: longer than ctest lets a test run

mpirun=()
library=$("$forerun" info | sed -n '/^  mpi /{n;s/^ *//p}')
case $library in
'') ;;
MPICH*) mpirun=("$(first_of mpirun.mpich mpiexec.hydra mpirun)" --bind-to none) ;;
*) mpirun=("$(first_of mpirun.openmpi mpirun)" --bind-to none --oversubscribe) ;;
esac
[ -n "${mpirun[0]:-}" ] || mpirun=()

# rank_pid PID RANK: the process of a rank, somewhere below PID; nothing if there is none.
rank_pid() {
    local child
    for child in $(pgrep -P "$1"); do
        if { tr '\0' '\n' <"/proc/$child/environ" | grep -qxE "(OMPI_COMM_WORLD|PMI)_RANK=$2"; } 2>/dev/null; then
            echo "$child"
        else
            rank_pid "$child" "$2"
        fi
    done
}

# Remove mpirun's own messages about failed ranks from the file: Open MPI 5 and MPICH cannot be made
# quiet.
hush() {
    sed -i -E '/^(-{60,}|={60,})$/,/^(-{60,}|={60,})$/d
        /^\[[^]]*:[0-9]+\] PMIX ERROR/d
        /^\[warn\] Epoll /d # of libevent, in mpirun as it ends
        /^YOUR APPLICATION TERMINATED WITH|^This typically refers to|^Please see the FAQ page/d' "$1"
    [[ $library != MPICH* ]] || sed -i '/^$/d' "$1"
}
