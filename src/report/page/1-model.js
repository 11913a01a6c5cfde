// model.js -- meaning of the data: runs, their colours and dashes, their key figures.
const Model = (() => {
    "use strict";
    const dashes = [[], [7, 3], [2, 2.5], [9, 3, 2, 3]];
    const n_colors = 7;  // with 4 dashes: 28 combinations, since 7 and 4 have no common factor

    // A case has the colour of the case with the same name on another clock: charts never show
    // both.
    function styleOf(found, kind, series) {
        const same = found && series.find((x) => x.case && x.case.name === found.name);
        const isTaken = same && series.some((x) => x.kind === kind && x.index === same.index);
        if (same && !isTaken) return same.index;
        return series.reduce((most, x) => Math.max(most, x.index + 1), 0);
    }

    // Runs of one case of a comparison (its seeds) are one series: one colour, one legend entry.
    function seriesOf(data) {
        const cases = (data.compare && data.compare.cases) || [];
        // A chart shows one clock, so groups are named only if several share a clock.
        const severalGroups = (kind) =>
            new Set(cases.filter((c) => c.kind === kind).map((c) => c.group)).size > 1;
        const label = (c) => (c.group && severalGroups(c.kind) ? `${c.group} ${c.name}` : c.name);
        const within = (run, path) => `/${run.folder}`.endsWith(`/${path}`);
        const caseOf = (run) => cases.find((c) => c.runs.some((path) => within(run, path)));
        const series = [];
        for (const run of data.runs) {
            const found = caseOf(run);
            let one = found && series.find((other) => other.case === found);
            if (!one) {
                const i = styleOf(found, run.kind, series);
                one = {
                    name: found ? label(found) : run.name,
                    case: found,
                    kind: run.kind,
                    runs: [],
                    color: `run-${i % n_colors}`,
                    dash: dashes[i % dashes.length],
                    on: true,
                    index: i
                };
                series.push(one);
            }
            one.runs.push(run);
            run.series = one;
        }
        return series;
    }

    // Runs by clock: times of this machine and of a described cluster share no axis and no scale. A
    // single clock needs no title.
    function clocks(runs) {
        const titles = {
            measured: "Measured: the clock of this machine",
            emulated: "Emulated: the clock of the described cluster"
        };
        const kinds = [...new Set(runs.map((run) => run.kind))];
        return kinds.map((kind) => ({
                             title: kinds.length > 1 ? titles[kind] || kind : null,
                             runs: runs.filter((run) => run.kind === kind)
                         }));
    }

    // The line of a series as a small picture for legends and tables.
    function swatch(series) {
        const ns = "http://www.w3.org/2000/svg";
        const svg = document.createElementNS(ns, "svg");
        svg.setAttribute("class", "dash");
        svg.setAttribute("width", 26);
        svg.setAttribute("height", 8);
        svg.setAttribute("aria-hidden", "true");
        const line = document.createElementNS(ns, "line");
        for (const [k, v] of Object.entries({
                 x1: 0,
                 x2: 26,
                 y1: 4,
                 y2: 4,
                 "stroke-width": 2.5,
                 "stroke-dasharray": series.dash.join(" ")
             }))
            line.setAttribute(k, v);
        line.style.stroke = `var(--${series.color})`;
        svg.append(line);
        return svg;
    }

    const last = (column) => (column && column.length ? column[column.length - 1] : null);
    const s = (run) => run.summary || {};

    function layout(run) {
        const {stages, replicas, n_workers} = s(run);
        if (!stages) return "";
        if (Array.isArray(replicas)) {
            return `${Format.plural(stages, "stage")}, replicas ${replicas.join(" + ")}`;
        }
        if (n_workers === 1) return "1 worker";
        const copies = replicas > 1 ? ` \u00d7 ${Format.plural(replicas, "replica")}` : "";
        const shared = n_workers && n_workers !== stages * replicas
            ? ` on ${Format.plural(n_workers, "worker")}`
            : "";
        return `${Format.plural(stages, "stage")}${copies}${shared}`;
    }

    function status(run) { return run.summary ? run.summary.status : "unfinished"; }

    function peak(run) {
        const workers = s(run).workers || [];
        return workers.length ? Math.max(...workers.map((w) => w.peak_bytes || 0)) : null;
    }

    function traffic(run) {
        const t = s(run).traffic;
        return t ? t.forward + t.backward + t.sums : null;
    }

    // Rates of different clocks are not compared.
    function speedup(run, first) {
        const a = s(run).samples_per_s;
        const b = s(first).samples_per_s;
        return a && b && run.kind === first.kind ? a / b : null;
    }

    // Key figures: label, whether more or less is better, value and format. `note` is for tiles.
    const figures = [
        {
            key: "accuracy",
            label: "Accuracy",
            best: "high",
            show: Format.percent,
            value: (r) => s(r).eval_accuracy,
            note: () => "of the last evaluation"
        },
        {
            key: "eval_loss",
            label: "Loss (eval)",
            best: "low",
            show: Format.number,
            value: (r) => s(r).eval_loss,
            note: () => "of the last evaluation"
        },
        {
            key: "train_loss",
            label: "Loss (train)",
            best: "low",
            show: Format.number,
            value: (r) => (r.summary ? r.summary.train_loss : last(r.metrics.loss)),
            note: (r) => (r.summary ? "mean over the last epoch" : "of the last mini-batch")
        },
        {
            key: "rate",
            label: "Samples/s",
            best: "high",
            show: (x) => Format.number(x, 3),
            value: (r) => (r.summary ? r.summary.samples_per_s : last(r.metrics.samples_per_s)),
            note: (r) => `${Format.whole(last(r.metrics.samples))} in ${
                Format.seconds(last(r.metrics.elapsed_s))}`
        },
        {
            key: "speedup",
            label: "Speed\u2011up",
            best: "high",
            several: true,
            show: (x) => (Format.is(x) ? `${Format.number(x, 3)}\u00d7` : Format.none),
            value: (r, first) => speedup(r, first)
        },
        {
            key: "bubble",
            label: "Idle",
            best: "low",
            show: Format.percent,
            value: (r) => s(r).bubble && s(r).bubble.share,
            note: (r) => `of the workers\u2019 time; ${
                Format.percent(s(r).bubble.fill_drain)} the schedule\u2019s own`
        },
        {
            key: "memory",
            label: "Memory",
            best: "low",
            show: Format.bytes,
            value: peak,
            note: (r) =>
                (s(r).n_workers > 1 ? `of the largest of ${s(r).n_workers} workers`
                                    : "of the worker, at its peak")
        },
        {
            key: "traffic",
            label: "Traffic",
            best: "low",
            show: Format.bytes,
            value: traffic,
            note: () => "per sample, between workers"
        },
        {
            key: "batch_s",
            label: "Mini-batch",
            best: "low",
            show: Format.seconds,
            value: (r) => s(r).measured_s_per_batch,
            note: (r) =>
                (Format.is(s(r).predicted_s_per_batch)
                     ? `forecast ${Format.seconds(s(r).predicted_s_per_batch)}`
                     : "")
        },
        {
            key: "error",
            label: "Forecast error",
            several: true,
            show: (x) => Format.signed(x, Format.percent),
            value: (r) => s(r).prediction_error
        },
    ];

    // Its name among runs of the same clock; the seeds of a case share one name.
    const shortName = (run) => (run.series.runs.length === 1 ? run.series.name : run.name);

    // Its name in a list with runs of two clocks.
    const label = (run) => (run.kind === "emulated" ? `${run.name} (emulated)` : run.name);

    function describe(run) {
        const x = s(run);
        return [
            x.method, x.model && `${x.model} on ${x.data}`, layout(run),
            run.summary && run.n_steps && Format.plural(run.n_steps, "update")
        ].filter(Boolean)
            .join(" \u00b7 ");
    }

    return {label, shortName, seriesOf, clocks, swatch, figures, describe, layout, status, last};
})();
