#!/bin/sh
# make-regression-data.sh [FOLDER] -- train.csv and test.csv for examples/regression.yaml: four
# inputs, and two targets that follow from them with a little noise. The same files on every
# machine.
set -eu
folder=${1:-.}
awk -v folder="$folder" '
function draw() { # of -1 .. 1, by a generator that fits the integers of every awk
    state = (state * 16807) % 2147483647
    return 2 * state / 2147483647 - 1
}
BEGIN {
    state = 20
    for (i = 0; i < 1200; i++) {
        file = folder (i < 1000 ? "/train.csv" : "/test.csv")
        if (i == 0 || i == 1000) print "area,age,distance,noise_level,price,rent" >file
        area = draw(); age = draw(); distance = draw(); level = draw()
        price = 1.5 * area - 0.7 * age * area - distance * distance + 0.02 * draw()
        rent = 0.8 * area - 0.3 * distance - 0.2 * level + 0.02 * draw()
        printf "%.6f,%.6f,%.6f,%.6f,%.6f,%.6f\n", area, age, distance, level, price, rent >file
    }
}'
