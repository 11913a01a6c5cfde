// bars.js -- rows of bars: use of time, use of memory, forecasts.
const Bars = (() => {
    "use strict";
    const {el} = Dom;

    // A row has name, bar and value; the scale is below the bars.
    function grid(rows, ends, wordy) {
        const scale = el("div", {class: "axis"}, ends.map((text) => el("span", {}, text)));
        const kind = `bars${rows.length > 24 ? " many" : ""}${wordy ? " wordy" : ""}`;
        return el("div", {class: kind}, rows, el("span"), scale, el("span"));
    }

    // aside: the part of a name that is hidden on a phone.
    function label(name, aside) {
        return el(
            "span", {class: "name", title: `${name}${aside || ""}`}, name,
            aside ? el("span", {class: "aside"}, aside) : null);
    }

    // A row: {name, aside, value, head, text(share), parts: [[surface, share of the width, what it
    // is, amount]], marks: [share]}
    function row({name, aside, value, parts, marks, head, text}) {
        const pieces = parts.filter(([, share]) => share > 0).map(([color, share]) => {
            const {class: pattern, css} = Dom.paint(color);
            return el(
                "i", {class: pattern, css: {width: `${100 * share}%`, ...css}},
                text && share > 0.06 && !pattern ? text(share) : null);
        });
        const bar =
            el("div", {class: "bar", role: "img", "aria-label": `${name}: ${value}`}, pieces,
               (marks || []).map((share) => el("i", {
                                     class: "mark",
                                     css: {left: `${100 * Math.min(1, share)}%`}
                                 })));
        Dom.explain(
            bar, head || name,
            parts.filter(([, , , amount]) => amount)
                .map(([color, , label, amount]) => [label, amount, Dom.chip(color)]));
        return [label(name, aside), bar, el("span", {class: "value"}, value)];
    }

    function table(rows, ends) { return grid(rows.map(row), ends); }

    // One card per clock; make(runs) fills it.
    const cards = (runs, make) => Model.clocks(runs).map(
        (clock) =>
            el("div", {class: "card"},
               clock.title ? el("div", {class: "title"}, clock.title) : null, make(clock.runs)));

    const stagesOf = (w) => `, stage${w.stages.length > 1 ? "s" : ""} ${w.stages.join(" ")}`;
    const workerName = (w, i) => `worker ${i}${stagesOf(w)}`;

    /* --- where the time went --- */

    const times = [
        ["forward", "forward", "forward"], ["backward", "backward", "backward"],
        ["weight", "weight", "backward (weights)"], ["step", "step", "update"],
        ["transfer", "transfer", "transfer"], ["wait_forward", "~forward", "waiting for a forward"],
        ["wait_backward", "~backward", "waiting for a backward"],
        ["wait_other", "~", "waiting for data, a slot or a sum"]
    ];

    function ofWorker(w, i) {
        const known = times.reduce((sum, [key]) => sum + (w.time[key] || 0), 0);
        const all = Math.max(w.wall_s || 0, known) || 1;
        const say = (v) => `${Format.seconds(v)} (${Format.percent(v / all)})`;
        const parts = times.map(
            ([key, color, label]) => [color, w.time[key] / all, label, say(w.time[key] || 0)]);
        parts.push(
            ["rest", Math.max(0, all - known) / all, "the rest", say(Math.max(0, all - known))]);
        return {
            name: `worker ${i}`,
            aside: stagesOf(w),
            value: `${Format.percent(w.busy_s / all, 0)} busy`,
            parts,
            head: `${workerName(w, i)}: ${Format.seconds(all)} of training`,
            text: (share) => Format.percent(share, 0)
        };
    }

    function time(run) {
        const workers = (run.summary && run.summary.workers) || [];
        if (!workers.length || !workers[0].time) return null;
        return el(
            "section", {id: "time"}, el("h2", {}, "Where the time goes"),
            el("p", {},
               "How each worker spent the training time; a full pipeline has no hatched part."),
            Dom.legend([
                ["forward", "forward"], ["backward", "backward"],
                workers.some((w) => w.time.weight) ? ["weight", "backward (weights)"] : null,
                ["step", "update"], ["transfer", "transfer"], ["~forward", "waiting for a forward"],
                ["~backward", "for a backward"], ["~", "for data, a slot, a sum"]
            ].filter(Boolean)),
            el("div", {class: "card"}, table(workers.map(ofWorker), ["0 %", "50 %", "100 %"])));
    }

    // Causes are computed from mean times, so one may be slightly negative. The text shows it, and
    // the others are scaled so that the bar has its true length.
    const causes = [
        ["fill_drain", "forward", "fill and drain: the schedule\u2019s own"],
        ["imbalance", "backward", "imbalance of the stages"],
        ["communication", "step", "communication, data and the rest"]
    ];

    function idle(runs) {
        const with_it = runs.filter(
            (run) => run.summary && run.summary.bubble && Format.is(run.summary.bubble.share));
        if (!with_it.length) return null;
        const bar = (run) => {
            const b = run.summary.bubble;
            const drawn = causes.reduce((sum, [key]) => sum + Math.max(0, b[key]), 0) || 1;
            const scale = Math.max(0, b.share) / drawn;
            return {
                name: Model.shortName(run),
                value: Format.percent(b.share),
                head: `${run.name}: workers idle ${Format.percent(b.share)}`,
                parts: causes.map(
                    ([
                        key, color, label
                    ]) => [color, scale * Math.max(0, b[key]), label, Format.percent(b[key])]),
                text: (share) => Format.percent(share, 0)
            };
        };
        return el(
            "section", {id: "idle"}, el("h2", {}, "Idle workers, and why"),
            el("p", {},
               "Share of all workers\u2019 time without computation, by cause. " +
                   "The full width is all of their time."),
            Dom.legend(causes.map(([, color, label]) => [color, label])),
            el("div", {class: "cards"},
               cards(with_it, (some) => table(some.map(bar), ["0 %", "50 %", "100 %"]))));
    }

    /* --- memory --- */

    const memoryParts = [
        ["weights", "weights"], ["grads", "gradients"], ["optimizer", "optimizer"],
        ["buffers", "running statistics"], ["slots", "slots: micro-batches in flight"],
        ["workspace", "workspace"], ["cache", "cache"], ["io", "transfers"]
    ];

    function memory(run) {
        const workers = (run.summary && run.summary.workers) || [];
        if (!workers.some((w) => w.predicted)) return null;
        const most = Math.max(...workers.map(
                         (w) => Math.max(w.peak_bytes || 0, w.predicted_peak_bytes || 0))) ||
            1;
        const rows = workers.map(
            (w, i) => ({
                name: `worker ${i}`,
                aside: stagesOf(w),
                value: Format.bytes(w.peak_bytes),
                marks: [w.peak_bytes / most],
                head:
                    `${workerName(w, i)}: forecast ${Format.bytes(w.predicted_peak_bytes)}, peak ${
                        Format.bytes(w.peak_bytes)}` +
                    `, ${Format.plural(w.weight_copies, "copy", "copies")} of the weights`,
                parts: memoryParts.map(
                    ([key, label], k) =>
                        [`part-${k}`, (w.predicted[key] || 0) / most, label,
                         Format.bytes(w.predicted[key] || 0)]),
            }));
        const used =
            memoryParts.map((part, k) => [`part-${k}`, part[1], part[0]])
                .filter(([, , key]) => workers.some((w) => w.predicted[key] > 0.002 * most));
        return el(
            "section", {id: "memory"}, el("h2", {}, "Memory"),
            el("p", {},
               "Forecast memory of each worker, by purpose; " +
                   "the vertical mark is the peak that was measured."),
            Dom.legend(used),
            el("div", {class: "card"},
               table(rows, ["0", Format.bytes(most / 2), Format.bytes(most)])));
    }

    /* --- prediction --- */

    // The measured value above the forecast, on one scale.
    function pair(name, value, head, happened, said, most) {
        const strip = (parts, open) =>
            el("div", {class: open ? "bar thin open" : "bar thin"},
               parts.map(
                   ([color, v]) => el(
                       "i", {css: {width: `${100 * v / most}%`, background: `var(--${color})`}})));
        const bars =
            el("div", {role: "img", "aria-label": `${name}: ${value}`}, strip(happened, false),
               strip(said, true));
        Dom.explain(bars, head, [
            ...happened.map(([color, v, label]) => [label, Format.seconds(v), Dom.chip(color)]),
            ...said.map(
                ([color, v, label]) => [`${label}, forecast`, Format.seconds(v), Dom.chip(color)])
        ]);
        return [label(name), bars, el("span", {class: "value"}, value)];
    }

    function pairs(rows, ends) { return grid(rows.map((r) => pair(...r)), ends, true); }

    function batchTimes(runs) {
        const known = runs.filter(
            (r) => r.summary && Format.is(r.summary.predicted_s_per_batch) &&
                Format.is(r.summary.measured_s_per_batch));
        if (!known.length || runs.length < 2) return null;  // one run: a tile shows it
        const mostOf = (some) => Math.max(...some.flatMap(
            (r) => [r.summary.predicted_s_per_batch, r.summary.measured_s_per_batch]));
        const strip = (r, most) => {
            const {
                predicted_s_per_batch: said,
                measured_s_per_batch: took,
                prediction_error: error
            } = r.summary;
            return [
                Model.shortName(r),
                `${Format.seconds(took)}, forecast ${Format.seconds(said)} (${
                    Format.signed(error, Format.percent)})`,
                r.name, [["run-0", took, "mini-batch"]], [["run-0", said, "mini-batch"]], most
            ];
        };
        const chart = (some) => {
            const most = mostOf(some);
            return pairs(
                some.map((r) => strip(r, most)),
                ["0", Format.seconds(most / 2), Format.seconds(most)]);
        };
        return el(
            "section", {id: "batches"}, el("h2", {}, "Time per mini-batch, forecast and measured"),
            el("p", {}, "The full bar is measured, the faint bar below it is the forecast."),
            el("div", {class: "cards"}, cards(known, chart)));
    }

    // Causes of the forecast error: stages took more or less time than when they were measured, or
    // the virtual clock is wrong.
    function whyOff(summary) {
        const signed = (x) => Format.signed(x, Format.percent);
        const {prediction_error: all, cost_error: cost, schedule_error: clock} = summary;
        if (!Format.is(cost) || !Format.is(clock)) return "";
        return ` The forecast of a mini-batch is ${signed(all)} off: ${
            signed(cost)} by these times, ${signed(clock)} by the schedule.`;
    }

    function stageTimes(summary, stages) {
        const known =
            stages.filter((s) => Format.is(s.predicted_forward_s) && Format.is(s.forward_s));
        if (!known.length) return null;
        const total = (s, p) => s[`${p}forward_s`] + s[`${p}backward_s`];
        const most = Math.max(...known.flatMap((s) => [total(s, ""), total(s, "predicted_")]));
        const parts = (s, p) => [
            ["forward", s[`${p}forward_s`], "forward"],
            ["backward", s[`${p}backward_s`], "backward"]];
        const rows = known.map(
            (s) =>
                [`stage ${stages.indexOf(s)}`,
                 `${Format.seconds(total(s, ""))}, forecast ${
                     Format.seconds(total(s, "predicted_"))}`,
                 `stage ${stages.indexOf(s)}: ${s.first} to ${s.last}, a micro-batch`, parts(s, ""),
                 parts(s, "predicted_"), most]);
        return el(
            "div", {class: "card"},
            el("div", {class: "title"}, "Time per micro-batch in each stage"),
            el("p", {class: "soft small"},
               `The full bar is measured, the faint bar below it is the forecast.${
                   whyOff(summary)}`),
            Dom.legend([["forward", "forward"], ["backward", "backward"]]),
            pairs(rows, ["0", Format.seconds(most / 2), Format.seconds(most)]));
    }

    // Where the weight policy gives stages rates and momentum of their own.
    function ruleOf(s) {
        return (s.lr_factor ? `, rate \u00d7 ${Format.number(s.lr_factor, 3)}` : "") +
            (s.momentum ? `, momentum ${Format.number(s.momentum, 4)}` : "");
    }

    function weightErrors(stages) {
        const known = stages.filter((s) => s.prediction && s.prediction.stale_rmse > 0);
        if (!known.length) return null;
        const ratio = (s) => s.prediction.predicted_rmse / s.prediction.stale_rmse;
        const most = Math.max(1, ...known.map(ratio));
        const rows =
            known.map((s) => ({
                          name: `stage ${stages.indexOf(s)}`,
                          value: `${Format.number(ratio(s), 2)}\u00d7`,
                          marks: [1 / most],
                          head: `stage ${stages.indexOf(s)}, ${
                              Format.number(s.prediction.ahead, 2)} updates ahead${ruleOf(s)}`,
                          parts: [
                              [
                                  "predicted", ratio(s) / most, "error of predicted weights",
                                  `rms ${Format.number(s.prediction.predicted_rmse, 3)}`
                              ],
                              [
                                  "rest", 0, "error of stale weights",
                                  `rms ${Format.number(s.prediction.stale_rmse, 3)}`
                              ]
                          ],
                      }));
        return el(
            "div", {class: "card"},
            el("div", {class: "title"}, "Error of predicted weights over that of stale ones"),
            el("p", {class: "soft small"},
               "Distance from the actual later weights. Left of the mark, predicted weights " +
                   "were nearer than stale ones. That alone does not make a method learn as " +
                   "well as one worker: compare the loss."),
            table(
                rows,
                ["0", `${Format.number(most / 2, 2)}\u00d7`, `${Format.number(most, 3)}\u00d7`]));
    }

    function prediction(run) {
        const stages = (run.summary && run.summary.per_stage) || [];
        const cards = [stageTimes(run.summary, stages), weightErrors(stages)].filter(Boolean);
        if (!cards.length) return null;
        return el(
            "section", {id: "prediction"}, el("h2", {}, "Predictions"),
            el("p", {}, "Forecast times and predicted weights beside the actual ones."),
            el("div", {class: "two"}, cards));
    }

    return {time, idle, memory, batchTimes, prediction};
})();
