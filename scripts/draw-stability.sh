#!/usr/bin/env bash
# draw-stability.sh -- draws how the largest stable learning rate falls with the number of stages.
#
#   scripts/draw-stability.sh [FORERUN] >FIGURE.svg
#
# The numbers are those of `forerun methods --stability`: adamw, one micro-batch per update.
# scripts/make-reference.sh writes docs/stability.svg by it. FORERUN is the command (default:
# build/forerun).
set -euo pipefail
forerun=${1:-$(dirname "$0")/../build/forerun}
methods='single vanilla-async pipedream pipeoptim spectrain xpipe forerun'

for n in 2 3 4 5 6 8 10 12 14 16; do
    "$forerun" methods --stability --stages $n --micro 1 --set train.optimizer.name=adamw |
        awk -v n=$n 'NF == 5 && $2 + 0 > 0 { print n, $1, $2 }'
done | awk -v methods="$methods" '
    function x(n) { return 60 + (log(n) - log(2)) / log(8) * 440 }
    function y(value) { return 300 - (log(value) - log(0.1)) / log(500) * 250 }
    { limit[$2, $1] = $3; if (!($1 in known)) { known[$1]; stages[++n_stages] = $1 } }
    END {
        print "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 680 350\" width=\"680\" height=\"350\" role=\"img\">"
        print "<title>largest stable learning rate x curvature by number of stages</title>"
        print "<style>"
        print "text{font:12px system-ui,sans-serif;fill:#24292f}.h{font-size:15px;font-weight:600}.m{fill:#57606a}"
        print ".e{text-anchor:end}.k{text-anchor:middle}.g{stroke:#808a94;stroke-opacity:.3}"
        print "polyline{fill:none;stroke-width:2.2}"
        print "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.m{fill:#9da7b1}}"
        print "</style>"
        print "<text class=\"h\" x=\"60\" y=\"22\">Largest stable learning rate x curvature</text>"
        print "<text class=\"m\" x=\"60\" y=\"39\">a direction that all stages share; adamw, one micro-batch per update</text>"
        n_ticks = split("0.1 0.2 0.5 1 2 5 10 20 50", tick, " ")
        for (i = 1; i <= n_ticks; i++)
            printf "<line class=\"g\" x1=\"60\" x2=\"500\" y1=\"%.1f\" y2=\"%.1f\"/><text class=\"m e\" x=\"53\" y=\"%.1f\">%s</text>\n", \
                y(tick[i]), y(tick[i]), y(tick[i]) + 4, tick[i]
        for (i = 1; i <= n_stages; i++)
            printf "<text class=\"m k\" x=\"%.1f\" y=\"318\">%d</text>\n", x(stages[i]), stages[i]
        print "<text class=\"m k\" x=\"280\" y=\"338\">stages</text>"

        # Methods with the same limits share a line and a label.
        n_colours = split("#808a94 #c0392b #2f7fc4 #1f9e77 #c77f00 #8e55b0", colour, " ")
        n_names = split(methods, name, " ")
        for (i = 1; i <= n_names; i++) {
            points = ""
            for (j = 1; j <= n_stages; j++)
                if ((name[i], stages[j]) in limit)
                    points = points sprintf("%.1f,%.1f ", x(stages[j]), y(limit[name[i], stages[j]]))
            if (points == "") continue
            if (points in line_of) { label[line_of[points]] = label[line_of[points]] ", " name[i]; continue }
            line_of[points] = ++n_lines
            line[n_lines] = points
            label[n_lines] = name[i]
            end[n_lines] = y(limit[name[i], stages[n_stages]])
        }
        # Labels from the top down, at least a line apart.
        for (i = 1; i <= n_lines; i++) order[i] = i
        for (i = 2; i <= n_lines; i++)
            for (j = i; j > 1 && end[order[j]] < end[order[j - 1]]; j--) {
                swap = order[j]; order[j] = order[j - 1]; order[j - 1] = swap
            }
        at = 0
        for (i = 1; i <= n_lines; i++) {
            k = order[i]
            at = end[k] > at + 16 ? end[k] : at + 16
            printf "<polyline stroke=\"%s\" points=\"%s\"/>\n", colour[(k - 1) % n_colours + 1], line[k]
            printf "<polyline stroke=\"%s\" style=\"stroke-width:1\" points=\"502,%.1f 514,%.1f\"/>", \
                colour[(k - 1) % n_colours + 1], end[k], at
            printf "<text x=\"518\" y=\"%.1f\">%s</text>\n", at + 4, label[k]
        }
        print "</svg>"
    }'
