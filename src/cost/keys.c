/* keys.c -- the keys of a cluster file (`parallel.cluster`, --cluster). Paths begin with
 * "cluster:", since it is a file of its own. A device is told in the same words wherever one is:
 * for all, for a group, for items of a list. */
#include "io/key.h"
#include <forerun/cost.h>

#define ANY "cluster:device."

static const fr_key keys[] = {
    FR_TEXT("cluster:name", "cluster", "for people"),
    FR_AMOUNT("cluster:overhead", "0 s",
              "what a worker takes for each instruction besides computing"),
    FR_REAL(ANY "speed", "1", 1e-9, 1e9, "times as fast as the machine that was profiled"),
    FR_AMOUNT(ANY "flops", NULL, "instead of speed: peak rate, as 15 TFLOPS"),
    FR_REAL(ANY "efficiency", "0.5", 1e-6, 1, "share of flops that training reaches"),
    FR_AMOUNT(ANY "memory", "0", "as 16 GB; 0: any amount"),
    FR_TEXT(ANY "name", "device", "for people; -0, -1, ... follow where there are several"),
    FR_TEXT("cluster:topology.name", "cluster", "for people; of a group in a list: group"),
    FR_AMOUNT("cluster:topology.bandwidth", "",
              "of each port in each direction, or of the bus, as 12 GB/s; free: latency only"),
    FR_AMOUNT("cluster:topology.latency", "0 s", "of a message through this group"),
    FR_BOOL("cluster:topology.shared", "false",
            "its children share one bus; otherwise each has a port in and a port out"),
    FR_INT("cluster:topology.devices", NULL, 1, 1000000,
           "how many devices it joins, or a list of them"),
    FR_INT("cluster:topology.devices[].count", "1", 1, 1000000,
           "so many alike; beside it the keys of device"),
    FR_ITEMS("cluster:topology.groups", NULL,
             "instead of devices: the groups it joins, each with the keys of topology"),
    FR_INT("cluster:topology.groups[].count", "1", 1, 1000000, "so many alike"),
    FR_ITEMS("cluster:topology.device", NULL,
             "what all devices of this group have in common: the keys of device"),
    FR_KEY_END,
};

const fr_key *fr_cluster_keys(void) { return keys; }
