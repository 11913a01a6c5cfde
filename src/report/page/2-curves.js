// curves.js -- lines over steps, samples or time: loss, accuracy and related values.
//
// All charts of a group share the x axis, its zoomed range and the crosshair. A group holds runs of
// one clock. A point is a mean over a range of mini-batches; the band shows the extremes of the
// range.
const Curves = (() => {
    "use strict";
    const {el} = Dom;

    /* --- lines out of runs --- */

    // Evaluations have step and time; samples are interpolated from the metrics around the step.
    function samplesAt(run, step) {
        const {step: at, samples} = run.metrics;
        if (!at.length) return null;
        const found = at.findIndex((x) => x >= step);
        const i = found < 0 ? at.length - 1 : found;
        if (i === 0 || at[i] === step) return (samples[i] / at[i]) * step;
        const share = (step - at[i - 1]) / (at[i] - at[i - 1]);
        return samples[i - 1] + share * (samples[i] - samples[i - 1]);
    }

    function metric(run, key, x) {
        const y = run.metrics[key];
        if (!y || !y.some(Format.is)) return null;
        const band = key === "loss" && run.metrics.loss_low;
        return {
            run,
            x: run.metrics[x],
            y,
            low: band ? run.metrics.loss_low : null,
            high: band ? run.metrics.loss_high : null
        };
    }

    function evaluation(run, key, x) {
        const y = run.eval && run.eval[key];
        if (!y || !y.some(Format.is)) return null;
        const at =
            x === "samples" ? run.eval.step.map((step) => samplesAt(run, step)) : run.eval[x];
        return {run, x: at, y, points: true};
    }

    const charts = [
        {
            title: "Loss",
            note: "training; dots: evaluation",
            big: true,
            smooth: true,
            scales: true,
            show: Format.number,
            lines: (run, x) => [metric(run, "loss", x), evaluation(run, "loss", x)]
        },
        {
            title: "Accuracy",
            note: "evaluation",
            big: true,
            least: 0.02,
            show: (v) => Format.percent(v, 2),
            tick: (v, n, step) =>
                Format.percent(v, Math.max(0, Math.ceil(-2 - Math.log10(step) - 1e-9))),
            lines: (run, x) => [evaluation(run, "accuracy", x)]
        },
        {
            title: "Learning rate",
            note: "",
            show: Format.number,
            lines: (run, x) => [metric(run, "lr", x)]
        },
        {
            title: "Throughput",
            note: "samples per second",
            smooth: true,
            show: (v) => Format.number(v, 3),
            tick: Format.number,
            zero: true,
            lines: (run, x) => [metric(run, "samples_per_s", x)]
        },
        {
            title: "Gradient norm",
            note: "before clipping",
            smooth: true,
            scales: true,
            show: Format.number,
            lines: (run, x) => [metric(run, "grad_norm", x)]
        },
    ];

    const hasData = (chart, runs) => runs.some((run) => chart.lines(run, "step").some(Boolean));

    /* --- the section --- */

    class Group {
        // zoomed: called whenever the range may have changed.
        constructor({title, runs}, series, zoomed) {
            Object.assign(this, {
                title,
                runs,
                series: series.filter((one) => one.runs.some((run) => runs.includes(run))),
                zoomed,
                x: "step",
                log: false,
                smooth: 0.6,
                hover: null,
                pointed: null
            });
            this.charts = charts.filter((c) => hasData(c, runs)).map((c) => new Chart(this, c));
            this.stretch = null;
            this.refit();
        }
        // The full range of the chosen axis; during a run its end moves.
        refit() {
            const ends = this.runs.map((run) => Model.last(run.metrics[this.x])).filter(Format.is);
            const end = Math.max(...ends, this.x === "elapsed_s" ? 1e-3 : 1);
            this.stretch = new View.Stretch(0, end, end / 1e4);
        }
        whole() {
            return this.stretch.low === this.stretch.first &&
                this.stretch.high === this.stretch.last;
        }
        redraw() {
            this.zoomed();
            this.charts.forEach((chart) => chart.redraw());
        }
    }

    function legend(group) {
        return el(
            "div", {class: "legend", "aria-label": "runs; click to hide or show"},
            group.series.map((series) => {
                const button =
                    el("button", {
                        type: "button",
                        "aria-pressed": "true",
                        title: "click: hide or show; double-click: only this one"
                    },
                       Model.swatch(series), series.name);
                const press = () => group.series.forEach(
                    (s, i) =>
                        button.parentNode.children[i].setAttribute("aria-pressed", String(s.on)));
                button.addEventListener("click", () => {
                    series.on = !series.on;
                    press();
                    group.redraw();
                });
                button.addEventListener("dblclick", () => {
                    const alone = group.series.every((s) => s.on === (s === series));
                    group.series.forEach((s) => {
                        s.on = alone || s === series;
                    });
                    press();
                    group.redraw();
                });
                for (const [event, who] of [
                         ["pointerenter", series], ["pointerleave", null], ["focus", series],
                         ["blur", null]]) {
                    button.addEventListener(event, () => {
                        group.pointed = group.series.length > 1 ? who : null;
                        group.redraw();
                    });
                }
                return button;
            }));
    }

    // Title, legend and charts of one clock.
    function part(group) {
        const card = (chart) => el(
            "div", {class: "card"},
            el("div", {class: "title"}, chart.spec.title,
               chart.spec.note ? el("span", {class: "soft"}, ` \u2013 ${chart.spec.note}`) : null),
            chart.node);
        const big = group.charts.filter((c) => c.spec.big);
        const little = group.charts.filter((c) => !c.spec.big);
        return [
            group.title ? el("h3", {}, group.title) : null,
            group.series.length > 1 ? legend(group) : null,
            el("div", {class: "two"}, big.map(card)),
            little.length ? el("div", {class: "three"}, little.map(card)) : null
        ].filter(Boolean);
    }

    function section(runs, series) {
        const reset = el("button", {type: "button", class: "reset", disabled: true}, "Reset zoom");
        const groups = [];
        const zoomed = () => {
            reset.disabled = groups.every((group) => group.whole());
        };
        groups.push(...Model.clocks(runs)
                        .map((clock) => new Group(clock, series, zoomed))
                        .filter((group) => group.charts.length));
        if (!groups.length) return null;
        const all = (change) => groups.forEach((group) => {
            change(group);
            group.redraw();
        });
        reset.addEventListener("click", () => all((group) => group.stretch.all()));
        const smooth = el("input", {
            type: "range",
            min: "0",
            max: "0.98",
            step: "0.02",
            value: String(groups[0].smooth),
            "aria-label": "smoothing",
            oninput: (e) => all((group) => {
                group.smooth = Number(e.target.value);
            })
        });
        const tools = el(
            "div", {class: "tools"},
            Dom.choice(
                "over", [["step", "updates"], ["samples", "samples"], ["elapsed_s", "time"]],
                "step", (x) => all((group) => {
                            group.x = x;
                            group.refit();
                        })),
            Dom.choice("scale", [[false, "linear"], [true, "log"]], false, (log) => all((group) => {
                                                                               group.log = log;
                                                                           })),
            el("label", {class: "choice"}, "smoothing", smooth), reset);
        const node =
            el("section", {id: "curves"}, el("h2", {}, "Learning"),
               el("p", {},
                  "Loss and accuracy during training. Drag to zoom in, double-click to reset."),
               tools, ...groups.flatMap(part));
        return {node, groups};
    }

    return {section};
})();
