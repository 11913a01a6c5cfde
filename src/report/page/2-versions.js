// versions.js -- the weights that each pass used.
//
// The update of mini-batch m is applied to one version of a stage's weights. A pass of that
// mini-batch may use a version that is some updates older, and may predict it some updates ahead. A
// column is a mini-batch (with its micro-batches), a row is a stage: forwards above, backwards
// below.
const Versions = (() => {
    "use strict";
    const {el} = Dom;
    const ACTION = 2, WAIT = 3, STAGE = 4, BATCH = 5, MICRO = 6, VERSION = 7, AHEAD = 8;

    // The weights that both passes of a micro-batch used.
    function kindOf(pass, pair) {
        if (pass.ahead > 0) return "predicted";
        if (pass.behind <= 0) return "newest";
        const {F, B} = pair;
        return F && B && F.version === B.version && !F.ahead && !B.ahead ? "kept" : "stale";
    }

    // stage -> list of {batch, micro, F: {version, ahead, behind}, B: ...}
    function collect(timeline) {
        const stages = [];
        const cells = new Map();
        const {actions} = timeline;
        let own = null;  // version that mini-batch 0 is applied to: above 0 in a resumed run
        for (const w of timeline.workers) {
            for (const e of w.events) {
                const action = actions[e[ACTION]];
                if (e[WAIT] || e[VERSION] < 0) continue;
                if (action === "STEP" && own === null) own = e[VERSION] - 1 - e[BATCH];
                if (action !== "F" && action !== "B" && action !== "I") continue;
                const key = `${e[STAGE]} ${e[BATCH]} ${e[MICRO]}`;
                let cell = cells.get(key);
                if (!cell) {
                    cell = {
                        stage: e[STAGE],
                        batch: e[BATCH],
                        micro: Math.max(0, e[MICRO]),
                        F: null,
                        B: null
                    };
                    cells.set(key, cell);
                    (stages[e[STAGE]] ||= []).push(cell);
                }
                cell[action === "F" ? "F" : "B"] =
                    {version: e[VERSION], ahead: Math.max(0, e[AHEAD]), behind: 0, kind: ""};
            }
        }
        for (const cell of cells.values()) {
            cell.own = cell.batch + (own || 0);
            for (const pass of [cell.F, cell.B])
                if (pass) pass.behind = cell.own - pass.version;
            for (const pass of [cell.F, cell.B])
                if (pass) pass.kind = kindOf(pass, cell);
        }
        for (const list of stages)
            if (list) list.sort((a, b) => a.batch - b.batch || a.micro - b.micro);
        return stages;
    }

    // One sentence that describes the picture.
    function verdict(stages) {
        const cells = stages.flat().filter((c) => c && c.F && c.B);
        const count = (pass, kind) => cells.filter((c) => c[pass].kind === kind).length;
        const share = (n) => Format.percent(n / (cells.length || 1), 0);
        const most = (f) => cells.reduce((m, c) => Math.max(m, f(c)), 0);
        const updates = (n) => Format.plural(n, "update");
        const predicted = count("F", "predicted");
        const stale = count("F", "stale");
        const kept = count("F", "kept");
        if (predicted) {
            const back = count("B", "predicted");
            return `Predicted: ${share(predicted)} of the forwards ran on weights predicted up to ${
                       updates(most((c) => c.F.ahead))} ahead, ` +
                (back ? `and so did ${share(back)} of the backwards.`
                      : "the backwards on the newest ones.");
        }
        if (stale) {
            return `Stale: ${share(stale)} of the forwards ran on weights up to ${
                       updates(most((c) => c.F.behind))} old, and the backward of ` +
                "the same micro-batch on newer ones.";
        }
        if (kept) {
            return `Kept: ${share(kept)} of the micro-batches ran on weights up to ${
                       updates(most((c) => c.F.behind))} old, the same in both ` +
                "passes: gradients are right for those weights, but late.";
        }
        return "Newest: every pass ran on the same weights that its update was applied to, " +
            "as with one worker.";
    }

    class Picture {
        constructor(stages, described) {
            this.stages = stages.map((cells, stage) => ({stage, cells: cells || []}))
                              .filter((r) => r.cells.length);
            this.n_micro = 1;
            // A resumed run has a trace from its checkpoint on.
            this.first = Infinity;
            let n = 1;
            for (const {cells} of this.stages) {
                for (const c of cells) {
                    this.n_micro = Math.max(this.n_micro, c.micro + 1);
                    this.first = Math.min(this.first, c.batch);
                    n = Math.max(n, c.batch + 1);
                }
            }
            this.stretch = new View.Stretch(this.first, n, Math.min(n - this.first, 2));
            const {node, redraw} = View.canvas(
                {class: "grab", "aria-label": described},
                () => this.rowHeight() * this.stages.length + 36, (g, w, h) => this.draw(g, w, h));
            this.node = node;
            this.redraw = redraw;
            this.plot = {left: 60, right: 61};
            this.keypad = View.panned(this);
        }

        // As many mini-batches as leave room for numbers.
        home() {
            this.placed = true;
            const n = Math.round(this.node.clientWidth / (22 * this.n_micro));
            this.stretch.set(this.first, this.first + Math.min(16, Math.max(3, n)));
        }

        rowHeight() {
            const n = this.stages.length;
            return n <= 8 ? 38 : n <= 16 ? 28 : n <= 32 ? 18 : 12;
        }

        point(x, event) {
            const row = this.stages[Math.floor(event.offsetY / this.rowHeight())];
            const cell = row && row.cells.find((c) => {
                const [low, high] = this.span(c);
                return low <= x && x < high;
            });
            if (cell) this.tell(event, cell);
            return cell;
        }

        shown() {
            const {low, high, last} = this.stretch;
            return `mini-batches ${Math.floor(low)} to ${Math.ceil(high) - 1} of ${last}`;
        }

        // A small gap between mini-batches.
        span(cell) {
            const start = cell.batch + 0.03 + (0.94 * cell.micro) / this.n_micro;
            return [start, start + 0.94 / this.n_micro];
        }

        draw(g, width) {
            if (!this.placed) this.home();
            const tall = this.rowHeight();
            const {low, high} = this.stretch;
            const bottom = tall * this.stages.length;
            this.plot = {left: 62, right: width - 6};
            const scale = (this.plot.right - this.plot.left) / (high - low);
            const toX = (v) => this.plot.left + (v - low) * scale;
            const colors = Object.fromEntries(
                ["newest", "predicted", "kept", "stale"].map((k) => [k, Dom.css(k)]));
            const ink = Dom.css("on-bar");
            g.textBaseline = "middle";
            g.textAlign = "right";
            g.fillStyle = Dom.css("soft");
            this.stages.forEach(({stage}, i) => {
                g.fillText(`stage ${stage}`, this.plot.left - 8, i * tall + tall / 2);
            });
            this.drawAxis(g, toX, bottom);
            g.save();
            g.beginPath();
            g.rect(this.plot.left, 0, this.plot.right - this.plot.left, bottom);
            g.clip();
            g.textAlign = "center";
            this.stages.forEach(({cells}, i) => {
                const half = (tall - 4) / 2;
                for (const cell of cells) {
                    if (cell.batch + 1 < low || cell.batch > high) continue;
                    const [from, to] = this.span(cell);
                    const wide = (to - from) * scale;
                    const gap = wide > 5 ? 1 : 0;
                    [cell.F, cell.B].forEach((pass, k) => {
                        if (!pass) return;
                        const y = i * tall + 1 + k * (half + 1);
                        g.fillStyle = colors[pass.kind];
                        g.fillRect(toX(from), y, Math.max(0.6, wide - gap), half);
                        const text = label(pass);
                        if (text && wide > 17 && half > 10) {
                            g.fillStyle = ink;
                            g.fillText(text, toX(from) + (wide - gap) / 2, y + half / 2 + 0.5);
                        }
                    });
                }
            });
            g.restore();
            this.said.textContent = this.shown();
        }

        drawAxis(g, toX, bottom) {
            const {low, high} = this.stretch;
            g.textAlign = "center";
            g.textBaseline = "top";
            const step = Math.max(
                1, Math.ceil((high - low) / Math.max(2, (this.plot.right - this.plot.left) / 42)));
            for (let m = Math.ceil(low / step) * step; m < high; m += step) {
                const x = toX(m + 0.5);
                if (x > this.plot.left && x < this.plot.right) g.fillText(String(m), x, bottom + 5);
            }
            g.fillStyle = Dom.css("faint");
            g.fillText("mini-batch", (this.plot.left + this.plot.right) / 2, bottom + 20);
            g.textBaseline = "middle";
        }

        tell(e, cell) {
            const say = (pass) => {
                if (!pass) return Format.none;
                const behind = pass.behind > 0 ? `, ${pass.behind} behind` : "";
                return `version ${pass.version}${behind}${
                    pass.ahead ? `, predicted +${pass.ahead}` : ""}`;
            };
            Dom.showTip(
                e.clientX, e.clientY,
                `stage ${cell.stage}, mini-batch ${cell.batch}, micro-batch ${cell.micro}`, [
                    ["forward", say(cell.F)], ["backward", say(cell.B)],
                    ["its update was applied to", `version ${cell.own}`]
                ]);
        }
    }

    function label(pass) {
        if (pass.kind === "predicted") return `+${pass.ahead}`;
        return pass.behind > 0 ? `\u2212${pass.behind}` : "";
    }

    function section(run) {
        if (!run.timeline) return null;
        const stages = collect(run.timeline);
        if (!stages.some((cells) => cells && cells.length)) return null;
        const said = verdict(stages);
        const picture = new Picture(stages, `Weight versions. ${said}`);
        return el(
            "section", {id: "versions"}, el("h2", {}, "Which weights each pass used"),
            el("p", {},
               "Each stage\u2019s forwards (upper half) and backwards (lower half), " +
                   "micro-batch by micro-batch, against the weights " +
                   "that the mini-batch\u2019s own update was applied to. ",
               el("b", {class: "verdict"}, said)),
            el("div", {class: "tools"}, picture.keypad), Dom.legend([
                ["newest", "these weights"], ["predicted", "+s: predicted s updates ahead"],
                ["kept", "\u2212d: d updates old, same in both passes"],
                ["stale", "\u2212d: d updates old, passes differ"]
            ]),
            el("div", {class: "card"}, picture.node));
    }

    return {section};
})();
