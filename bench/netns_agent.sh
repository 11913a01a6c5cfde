#!/bin/sh
# netns_agent.sh NODE COMMAND... -- run a command on a node of netns.py, as ssh would on a host.
#
# A node is a network namespace called NAME-NUMBER. A process in it has a host of that name, its own
# folder for temporary files (those of Open MPI would collide) and one core, number NUMBER of
# FR_NETNS_CORES. Open MPI calls this program instead of ssh; as with ssh, the arguments become one
# shell command.
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
