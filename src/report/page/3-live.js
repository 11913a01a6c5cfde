// live.js -- the page during a run: loads the data, then listens for events.
const Live = (() => {
    "use strict";
    const {el} = Dom;

    async function load() {
        const answer = await fetch("data.json", {cache: "no-store"});
        if (!answer.ok) throw new Error(`data.json: the server answered ${answer.status}`);
        return answer.json();
    }

    // Bar, numbers and state of the connection.
    function panel() {
        const fill = el("i");
        const way =
            el("div", {
                class: "way",
                role: "progressbar",
                "aria-valuemin": "0",
                "aria-valuemax": "100",
                "aria-label": "progress of the run"
            },
               fill);
        const said = el("span", {class: "words"}, "waiting for the first mini-batch");
        const state = el("span", {class: "state"});
        const node = el("div", {class: "live"}, way, el("div", {class: "said"}, state, said));
        return {
            node,
            connection(
                on,
                text) { state.replaceChildren(el("i", {class: on ? "dot" : "dot off"}), text); },
            // The last text stays; no more events follow.
            over(status, trouble) {
                this.connection(status === "done", `the run is over: ${status}${trouble}`);
                if (this.latest) this.progress({...this.latest, left_s: null});
            },
            progress(p) {
                this.latest = p;
                const share = p.n_steps ? Math.min(1, p.step / p.n_steps) : 0;
                fill.style.width = `${100 * share}%`;
                way.setAttribute("aria-valuenow", String(Math.round(100 * share)));
                said.textContent = [
                    `update ${Format.whole(p.step)}${
                        p.n_steps ? ` of ${Format.whole(p.n_steps)}` : ""}`,
                    `loss ${Format.number(p.loss)}`,
                    Format.is(p.samples_per_s) ? `${Format.number(p.samples_per_s, 3)} samples/s`
                                               : null,
                    `${Format.seconds(p.elapsed_s)} so far`,
                    Format.is(p.left_s) ? `${Format.seconds(p.left_s)} left` : null
                ].filter(Boolean).join(" \u00b7 ");
            },
        };
    }

    // Merges pairs of points when there are too many, so a day of training stays fast to draw.
    const max_points = 4000;

    function halve(run) {
        const m = run.metrics;
        const n = m.step.length;
        const join = {
            step: "last",
            samples: "last",
            elapsed_s: "last",
            loss_low: "least",
            loss_high: "most"
        };
        const how =
            {last: (a, b) => b, least: Math.min, most: Math.max, mean: (a, b) => (a + b) / 2};
        for (const [key, column] of Object.entries(m)) {
            const one = how[join[key] || "mean"];
            const out = [];
            for (let i = 0; i < n; i += 2)
                out.push(i + 1 < n ? one(column[i], column[i + 1]) : column[i]);
            m[key] = out;
        }
    }

    function append(run, p) {
        const m = run.metrics;
        if (m.step.length && p.step <= m.step[m.step.length - 1]) return;
        for (const key of ["step", "samples", "elapsed_s", "loss", "lr", "samples_per_s"])
            m[key].push(p[key]);
        if (m.loss_low) m.loss_low.push(p.loss);
        if (m.loss_high) m.loss_high.push(p.loss);
        if (m.grad_norm) m.grad_norm.push(Format.is(p.grad_norm) ? p.grad_norm : null);
        run.n_steps = p.step;
        if (Format.is(p.eval_loss)) {
            run.eval.step.push(p.step);
            run.eval.elapsed_s.push(p.elapsed_s);
            run.eval.loss.push(p.eval_loss);
            run.eval.accuracy.push(Format.is(p.eval_accuracy) ? p.eval_accuracy : null);
        }
        if (m.step.length > max_points) halve(run);
    }

    // show(data): redraws the page and returns the function to call after adding points.
    async function start(show) {
        const box = panel();
        let data = null;
        let grown = () => {};
        let had = "";
        // Sections appear with their first data: the first evaluation may add one.
        const kinds = () =>
            data.runs.map((r) => [r.metrics.step.length > 0, r.eval.step.length > 0].join())
                .join(";");
        const draw = () => {
            grown = show(data, box.node);
            had = kinds();
        };
        let loading = false;
        const refresh = async () => {
            if (loading) return;
            loading = true;
            try {
                data = await load();
                draw();
            } finally {
                loading = false;
            }
        };
        const again = () => refresh().then(() => "", (error) => ` (${error.message})`);
        box.connection(false, "connecting");
        await refresh();
        const source = new EventSource("events");
        source.addEventListener("open", () => box.connection(true, "live"));
        source.addEventListener(
            "error", () => box.connection(false, "no connection; trying again"));
        source.addEventListener("progress", (e) => {
            const p = JSON.parse(e.data);
            box.progress(p);
            const run = data.runs[0];
            if (!run) {
                again();
                return;
            }
            append(run, p);
            if (kinds() === had)
                grown();
            else
                draw();
        });
        source.addEventListener("over", async (e) => {
            source.close();
            const trouble = await again();
            box.over(JSON.parse(e.data).status, trouble);
        });
    }

    return {start};
})();
