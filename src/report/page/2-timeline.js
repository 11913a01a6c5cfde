// timeline.js -- the timeline: one row per worker, one slice per instruction.
//
// Events of a worker are sorted by time, so a frame reads only visible events. Slices narrower than
// a pixel are drawn once per pixel, so sixty thousand slices cost no more than the columns of the
// picture.
const Timeline = (() => {
    "use strict";
    const {el} = Dom;
    const START = 0, LENGTH = 1, ACTION = 2, WAIT = 3, STAGE = 4, BATCH = 5, MICRO = 6, VERSION = 7,
          AHEAD = 8;

    // Look and name of each action. Transfers are drawn low, since they overlap with no other
    // slice.
    const looks = {
        F: {color: "forward", name: "forward"},
        R: {color: "forward", name: "recompute of activations"},
        B: {color: "backward", name: "backward"},
        I: {color: "backward", name: "backward, gradients of inputs"},
        W: {color: "weight", name: "backward, gradients of weights"},
        STEP: {color: "step", name: "update of the weights"},
        REDUCE: {color: "reduce", name: "reduction between workers", low: true},
        sum: {color: "reduce", name: "reduction between workers", low: true},
        SEND_F: {color: "transfer", name: "send of a forward", low: true},
        RECV_F: {color: "transfer", name: "receipt of a forward", low: true},
        SEND_B: {color: "transfer", name: "send of a backward", low: true},
        RECV_B: {color: "transfer", name: "receipt of a backward", low: true},
    };
    const keys = [
        ["F", "forward"], ["B", "backward"], ["I", "backward (inputs)"],
        ["W", "backward (weights)"], ["STEP", "update"], ["REDUCE", "reduction between workers"],
        ["SEND_F", "transfer"]
    ];

    class Picture {
        constructor(timeline) {
            this.timeline = timeline;
            this.look =
                timeline.actions.map((a) => looks[a] || {color: "transfer", name: a, low: true});
            this.rows = timeline.workers.length;
            let end = 1;
            for (const w of timeline.workers) {
                for (const e of w.events) end = Math.max(end, e[START] + e[LENGTH]);
            }
            this.stretch = new View.Stretch(0, end, Math.min(end, 20));
            const {node, redraw} = View.canvas(
                {class: "grab", "aria-label": this.describe()},
                (width) => this.rowHeight(width) * this.rows + 30, (g, w, h) => this.draw(g, w, h));
            this.node = node;
            this.redraw = redraw;
            this.plot = {left: 0, right: 1};
            this.keypad = View.panned(this);
        }

        describe() {
            const n = this.timeline.workers.reduce((sum, w) => sum + w.events.length, 0);
            return `Timeline of ${Format.plural(this.rows, "worker")}, ${
                Format.whole(n)} slices; keys: plus, minus, arrows, 0`;
        }

        rowHeight(width) {
            const roomy = this.rows <= 8 ? 34 : this.rows <= 16 ? 26 : this.rows <= 32 ? 18 : 12;
            return width < 500 ? Math.min(roomy, 26) : roomy;
        }

        // Initially show the fill of the pipeline and some mini-batches, as many passes as fit.
        home() {
            this.placed = true;
            const n = Math.max(12, Math.min(48, Math.round(this.node.clientWidth / 26)));
            const passes = (w) => w.events.filter((e) => !e[WAIT] && !this.look[e[ACTION]].low);
            const ends = this.timeline.workers.map(passes)
                             .filter((p) => p.length)
                             .map((p) => p[Math.min(p.length, n) - 1])
                             .map((e) => e[START] + e[LENGTH]);
            this.stretch.set(0, ends.length ? Math.max(...ends) : this.stretch.last);
        }

        point(t, event) {
            const found = this.find(t, event.offsetY);
            if (found) this.tell(event, found);
            return found;
        }

        shown() {
            const show = (t) => Format.seconds(t / 1e6, 4);
            const {low, high, last} = this.stretch;
            return `${show(low)} to ${show(high)} of ${show(last)}`;
        }

        // The first event of the worker that ends after t.
        firstAt(events, t) {
            let low = 0;
            let high = events.length;
            while (low < high) {
                const mid = (low + high) >> 1;
                if (events[mid][START] + events[mid][LENGTH] < t)
                    low = mid + 1;
                else
                    high = mid;
            }
            return low;
        }

        draw(g, width, height) {
            if (!this.placed) this.home();
            const {stretch, timeline} = this;
            const names = timeline.workers.map((w) => this.rowName(w.name, width));
            const wide = Math.max(...names.map((n) => g.measureText(n).width));
            this.plot = {left: Math.ceil(wide) + 12, right: width - 6};
            const tall = this.rowHeight(width);
            this.scale = (this.plot.right - this.plot.left) / (stretch.high - stretch.low);
            this.colors = this.look.map((l) => Dom.css(l.color));
            this.hatch = hatch(g);
            this.onBar = Dom.css("on-bar");
            this.drawAxis(g, height, tall);
            g.textBaseline = "middle";
            g.textAlign = "right";
            g.fillStyle = Dom.css("soft");
            g.save();
            if (tall < 14) g.font = g.font.replace(/^[0-9]+/, "10");
            names.forEach((name, i) => g.fillText(name, this.plot.left - 8, i * tall + tall / 2));
            g.restore();
            g.save();
            g.beginPath();
            g.rect(this.plot.left, 0, this.plot.right - this.plot.left, tall * this.rows);
            g.clip();
            g.textAlign = "center";
            timeline.workers.forEach((w, i) => this.drawRow(g, w.events, i * tall + 1, tall - 2));
            g.restore();
            this.said.textContent = this.shown();
        }

        rowName(name, width) {
            return width < 620 ? name.replace(/worker /, "w")
                                     .replace(/, stages? /, " s")
                                     .replace(/, replica /, " r")
                               : name;
        }

        drawAxis(g, height, tall) {
            const {low, high} = this.stretch;
            const bottom = tall * this.rows;
            g.strokeStyle = Dom.css("grid");
            g.fillStyle = Dom.css("soft");
            g.textAlign = "center";
            g.textBaseline = "top";
            for (const t of Format.ticks(low, high, (this.plot.right - this.plot.left) / 95)) {
                const x = this.toX(t);
                g.beginPath();
                g.moveTo(x, 0);
                g.lineTo(x, bottom + 4);
                g.stroke();
                const text = Format.seconds(t / 1e6, 6);
                const half = g.measureText(text).width / 2;
                if (x + half < this.plot.right + 6 && x - half > 0) g.fillText(text, x, bottom + 7);
            }
        }

        toX(t) { return this.plot.left + (t - this.stretch.low) * this.scale; }

        drawRow(g, events, y, tall) {
            let covered = -1;  // column that a slice narrower than a pixel has filled
            for (let i = this.firstAt(events, this.stretch.low); i < events.length; i++) {
                const e = events[i];
                if (e[START] > this.stretch.high) break;
                const x = this.toX(e[START]);
                const wide = e[LENGTH] * this.scale;
                if (wide < 0.5) {
                    const column = Math.round(x);
                    if (column === covered) continue;
                    covered = column;
                }
                this.drawSlice(g, e, x, Math.max(wide, 0.6), y, tall);
            }
        }

        drawSlice(g, e, x, wide, y, tall) {
            const look = this.look[e[ACTION]];
            if (e[WAIT]) {
                g.fillStyle = this.hatch;
                g.fillRect(x, y + tall * 0.2, wide, tall * 0.6);
                return;
            }
            g.fillStyle = this.colors[e[ACTION]];
            // Every other mini-batch is fainter, which shows their borders.
            g.globalAlpha = !look.low && e[BATCH] % 2 ? 0.7 : 1;
            if (look.low)
                g.fillRect(x, y + tall * 0.3, wide, tall * 0.4);
            else
                g.fillRect(x, y, wide > 3 ? wide - 0.8 : wide, tall);
            g.globalAlpha = 1;
            if (wide > 13 && tall >= 14 && !look.low && e[MICRO] >= 0) {
                const text = String(e[MICRO]);
                if (wide > 6 + 7 * text.length) {
                    g.fillStyle = this.onBar;
                    g.fillText(text, x + wide / 2, y + tall / 2 + 0.5);
                }
            }
        }

        find(t, y) {
            const worker = Math.floor(y / this.rowHeight(this.node.clientWidth));
            if (worker < 0 || worker >= this.rows) return null;
            const near = 2 / this.scale;  // slices without width have tooltips too
            const {events} = this.timeline.workers[worker];
            let best = null;
            for (let i = this.firstAt(events, t - near);
                 i < events.length && events[i][START] <= t + near; i++) {
                const e = events[i];
                if (e[START] <= t && t <= e[START] + e[LENGTH]) return {worker, e};
                best = {worker, e};
            }
            return best;
        }

        tell(event, {worker, e}) {
            const look = this.look[e[ACTION]];
            const rows = [
                ["worker", this.timeline.workers[worker].name], ["stage", String(e[STAGE])],
                ["mini-batch", String(e[BATCH])]
            ];
            if (e[MICRO] >= 0) rows.push(["micro-batch", String(e[MICRO])]);
            if (e[VERSION] >= 0)
                rows.push([
                    "weights",
                    `version ${e[VERSION]}${e[AHEAD] > 0 ? `, predicted ${e[AHEAD]} ahead` : ""}`
                ]);
            rows.push(
                ["took", Format.seconds(e[LENGTH] / 1e6)],
                ["start", Format.seconds(e[START] / 1e6, 5)]);
            Dom.showTip(
                event.clientX, event.clientY, `${e[WAIT] ? "waiting for " : ""}${look.name}`, rows);
        }
    }

    function hatch(g) {
        const tile = document.createElement("canvas");
        tile.width = tile.height = 6;
        const t = tile.getContext("2d");
        t.fillStyle = Dom.css("wait");
        t.fillRect(0, 0, 6, 6);
        t.strokeStyle = Dom.css("hatch");
        t.beginPath();
        t.moveTo(-1, 7);
        t.lineTo(7, -1);
        t.moveTo(-1, 1);
        t.lineTo(1, -1);
        t.moveTo(5, 7);
        t.lineTo(7, 5);
        t.stroke();
        return g.createPattern(tile, "repeat");
    }

    function section(run) {
        const {timeline} = run;
        if (!timeline || !timeline.workers.some((w) => w.events.length)) return null;
        const picture = new Picture(timeline);
        const used = new Set(
            timeline.workers.flatMap((w) => w.events.map((e) => timeline.actions[e[ACTION]])));
        if (used.has("sum")) used.add("REDUCE");
        const shown = timeline.workers.reduce((sum, w) => sum + w.events.length, 0);
        const part = shown < timeline.n_events
            ? ` The first ${Format.whole(shown)} of ${
                  Format.whole(timeline.n_events)} slices are here.`
            : "";
        const clock = run.kind === "emulated" ? " Times are those of the emulated cluster." : "";
        return el(
            "section", {id: "timeline"}, el("h2", {}, "Timeline"),
            el("p", {},
               "The instructions of each worker, from the first mini-batch on. Numbers are " +
                   "micro-batches, every other mini-batch is fainter, " +
                   `hatched is waiting.${clock}${part}`),
            el("div", {class: "tools"}, picture.keypad,
               el("span", {class: "soft small hint"},
                  "drag to move; click, then wheel or + \u2212 \u2190 \u2192 0")),
            Dom.legend([
                ...keys.filter(([a]) => used.has(a)).map(([a, text]) => [looks[a].color, text]),
                ["~", "waiting"]
            ]),
            el("div", {class: "card"}, picture.node));
    }

    return {section};
})();
