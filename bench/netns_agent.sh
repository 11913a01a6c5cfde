#!/bin/sh
# netns_agent.sh NODE COMMAND... -- run a command on a node of netns.py, as ssh would on a host.
#
# A node is a network namespace called NAME-NUMBER. What runs there sees a host of that name, has a
# folder of its own for temporary files (Open MPI's would collide) and one core, the NUMBERth of
# FR_NETNS_CORES. Open MPI calls this program in place of ssh; like there, words become one line for
# a shell.
set -eu
node=$1
shift
# shellcheck disable=SC2086
set -- "${node##*-}" "$*" $FR_NETNS_CORES
number=$1 command=$2
shift 2
shift "$number"
export TMPDIR="$FR_NETNS_FOLDER/$node"
mkdir -p "$TMPDIR"
exec taskset -c "$1" ip netns exec "$node" unshare --uts \
    sh -c "hostname '$node' && $command"
