// chart.js -- one line chart: axes, bands, crosshair, names at the ends of the lines.
//
// A group of charts shares the x axis, its zoomed range and the crosshair. It has runs, series, x,
// stretch, log, smooth, hover (position on the x axis or null), pointed (series or null), redraw().
// The spec of a chart has title, show(value), lines(run, x) and more (2-curves.js).
const Chart = (() => {
    "use strict";

    const axes = {
        step: {label: "updates", show: Format.whole, tick: Format.count},
        samples: {label: "samples", show: Format.whole, tick: Format.count},
        elapsed_s: {label: "time", show: (x) => Format.seconds(x), tick: Format.seconds},
    };

    // An exponential mean without bias towards its first value.
    function smoothed(y, keep) {
        if (!keep) return y;
        let sum = 0;
        let weight = 0;
        return y.map((v) => {
            if (!Format.is(v)) return v;
            sum = keep * sum + (1 - keep) * v;
            weight = keep * weight + (1 - keep);
            return sum / weight;
        });
    }

    function extent(values) {
        let low = Infinity;
        let high = -Infinity;
        for (const v of values) {
            if (!Format.is(v)) continue;
            if (v < low) low = v;
            if (v > high) high = v;
        }
        return low <= high ? [low, high] : null;
    }

    // A shape for each series, so that dots differ without colours.
    function dot(g, index, x, y) {
        const r = 3.4;
        g.beginPath();
        if (index % 4 === 0)
            g.arc(x, y, r, 0, 7);
        else if (index % 4 === 1)
            g.rect(x - r + 0.4, y - r + 0.4, 2 * r - 0.8, 2 * r - 0.8);
        else {
            const up = index % 4 === 2 ? 1 : -1;
            g.moveTo(x, y - up * (r + 0.8));
            g.lineTo(x + r + 0.6, y + up * r);
            g.lineTo(x - r - 0.6, y + up * r);
            g.closePath();
        }
        g.fill();
        g.lineWidth = 1;
        g.save();
        g.strokeStyle = Dom.css("card");
        g.stroke();
        g.restore();
    }

    function cut(g, text, room) {
        if (g.measureText(text).width <= room) return text;
        let n = text.length;
        while (n > 1 && g.measureText(`${text.slice(0, n)}\u2026`).width > room) n--;
        return `${text.slice(0, n)}\u2026`;
    }

    function nearest(xs, x) {
        let low = 0;
        let high = xs.length - 1;
        if (high < 0) return -1;
        while (high - low > 1) {
            const mid = (low + high) >> 1;
            if (xs[mid] < x)
                low = mid;
            else
                high = mid;
        }
        return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
    }

    class Chart {
        constructor(group, spec) {
            this.group = group;
            this.spec = spec;
            const {node, redraw} = View.canvas(
                {class: "cross", "aria-label": `${spec.title} of all runs`},
                (width) => (spec.big ? Math.min(340, Math.max(220, width * 0.56)) : 170),
                (g, width, height) => this.draw(g, width, height));
            this.node = node;
            this.redraw = redraw;
            this.plot = {left: 0, right: 1, top: 0, bottom: 1};
            this.selected = null;
            this.listen();
        }

        listen() {
            const {group, node} = this;
            const {at} = View.zoomable(
                node, () => ({...this.plot, stretch: group.stretch}), () => group.redraw(),
                () => group.stretch.all());
            const clear = () => {
                group.hover = null;
                Dom.hideTip();
                group.redraw();
            };
            Dom.onPoint(node, (e) => {
                group.hover = at(e.offsetX);
                this.tell(e);
                group.redraw();
            });
            node.addEventListener("pointerleave", clear);
            View.draggable(node, {
                start: (e) => {
                    this.selected = e.pointerType === "mouse" ? [e.offsetX, e.offsetX] : null;
                },
                moved: (e) => {
                    if (this.selected) this.selected[1] = e.offsetX;
                },
                end: () => {
                    const [a, b] = this.selected || [0, 0];
                    this.selected = null;
                    if (Math.abs(a - b) > 6)
                        group.stretch.set(at(Math.min(a, b)), at(Math.max(a, b)));
                    group.redraw();
                },
                pinch: (factor, x) => {
                    group.stretch.zoom(factor, at(x));
                    group.redraw();
                },
            });
        }

        lines() {
            const {x, smooth} = this.group;
            return this.group.runs.filter((run) => run.series.on)
                .flatMap((run) => this.spec.lines(run, x))
                .filter(Boolean)
                .map((line) => ({
                         ...line,
                         shown: line.points || !this.spec.smooth ? line.y : smoothed(line.y, smooth)
                     }));
        }

        // The range of the visible values, so that a zoom also enlarges y.
        range(lines, log) {
            const {low, high} = this.group.stretch;
            const seen = lines.flatMap(
                (l) =>
                    l.shown.filter((v, i) => l.x[i] >= low && l.x[i] <= high && (!log || v > 0)));
            let [bottom, top] = extent(seen) || extent(lines.flatMap((l) => l.shown)) || [0, 1];
            if (log) return [Math.max(bottom, 1e-12) / 1.08, Math.max(top, 1e-12) * 1.08];
            const lack = (this.spec.least || 0) - (top - bottom);  // do not enlarge noise
            if (lack > 0) [bottom, top] = [bottom - lack / 2, top + lack / 2];
            if (this.spec.zero) bottom = Math.min(0, bottom);
            const pad = (top - bottom || Math.abs(top) || 1) * 0.05;
            return [this.spec.zero && bottom === 0 ? 0 : bottom - pad, top + pad];
        }

        draw(g, width, height) {
            const {group, spec} = this;
            const lines = this.lines();
            const log = group.log && spec.scales;
            const [bottom, top] = this.range(lines, log);
            const labels = spec.big && width > 480 && group.series.length > 1 &&
                group.series.filter((s) => s.on).length <= 10;
            const ticks =
                log ? Format.logTicks(bottom, top, 5) : Format.ticks(bottom, top, spec.big ? 6 : 4);
            const texts = Format.labels(ticks, spec.tick || spec.show);
            const wide = Math.max(...texts.map((text) => g.measureText(text).width));
            const plot = {
                left: Math.ceil(Math.max(34, wide + 12)),
                right: width - (labels ? 104 : 10),
                top: 8,
                bottom: height - 34
            };
            this.plot = plot;
            const {low, high} = group.stretch;
            const toX = (v) =>
                plot.left + ((v - low) / (high - low || 1)) * (plot.right - plot.left);
            const scale = log ? (v) => Math.log(v / bottom) / Math.log(top / bottom)
                              : (v) => (v - bottom) / (top - bottom);
            const toY = (v) => plot.bottom - scale(v) * (plot.bottom - plot.top);
            this.drawAxes(g, plot, toX, toY, ticks, texts);
            g.save();
            g.beginPath();
            g.rect(
                plot.left - 5, plot.top - 5, plot.right - plot.left + 10,
                plot.bottom - plot.top + 10);
            g.clip();
            for (const line of lines) this.drawBand(g, line, toX, toY, log);
            for (const line of lines) this.drawLine(g, line, toX, toY, log);
            this.drawCross(g, plot, lines, toX, toY);
            g.restore();
            if (labels) this.drawNames(g, plot, lines, toX, toY);
        }

        drawAxes(g, plot, toX, toY, yTicks, yTexts) {
            const axis = axes[this.group.x];
            const {low, high} = this.group.stretch;
            g.strokeStyle = Dom.css("grid");
            g.fillStyle = Dom.css("soft");
            g.lineWidth = 1;
            g.textAlign = "right";
            g.textBaseline = "middle";
            yTicks.forEach((v, i) => {
                const y = Math.round(toY(v)) + 0.5;
                g.beginPath();
                g.moveTo(plot.left, y);
                g.lineTo(plot.right, y);
                g.stroke();
                g.fillText(yTexts[i], plot.left - 7, y);
            });
            g.textAlign = "center";
            g.textBaseline = "top";
            const xTicks = Format.ticks(low, high, Math.max(2, (plot.right - plot.left) / 90));
            Format.labels(xTicks, axis.tick).forEach((text, i) => {
                const x = toX(xTicks[i]);
                const half = g.measureText(text).width / 2;
                if (x - half > plot.left - 20 && x + half < plot.right + 10)
                    g.fillText(text, x, plot.bottom + 5);
            });
            g.fillStyle = Dom.css("faint");
            g.fillText(axis.label, (plot.left + plot.right) / 2, plot.bottom + 19);
            g.strokeStyle = Dom.css("line");
            g.beginPath();
            g.moveTo(plot.left, plot.bottom + 0.5);
            g.lineTo(plot.right, plot.bottom + 0.5);
            g.stroke();
        }

        drawBand(g, line, toX, toY, log) {
            // With many runs, bands would hide the lines.
            if (!line.low || this.group.runs.filter((r) => r.series.on).length > 4) return;
            g.fillStyle = Dom.css(line.run.series.color);
            g.globalAlpha = 0.16;
            g.beginPath();
            const usable = (v) => Format.is(v) && (!log || v > 0);
            line.x.forEach((x, i) => {
                if (usable(line.high[i])) g.lineTo(toX(x), toY(line.high[i]));
            });
            for (let i = line.x.length - 1; i >= 0; i--) {
                if (usable(line.low[i])) g.lineTo(toX(line.x[i]), toY(line.low[i]));
            }
            g.fill();
            g.globalAlpha = 1;
        }

        drawLine(g, line, toX, toY, log) {
            const {color, dash} = line.run.series;
            const aside = this.group.pointed && this.group.pointed !== line.run.series;
            g.strokeStyle = g.fillStyle = Dom.css(color);
            g.globalAlpha = aside ? 0.18 : 1;
            const trace = (values) => {
                g.beginPath();
                let pen = false;
                values.forEach((v, i) => {
                    const ok = Format.is(v) && (!log || v > 0);
                    if (ok && pen)
                        g.lineTo(toX(line.x[i]), toY(v));
                    else if (ok)
                        g.moveTo(toX(line.x[i]), toY(v));
                    pen = ok;
                });
                g.stroke();
            };
            // The unsmoothed line stays visible if there is room.
            if (line.shown !== line.y && this.group.runs.length <= 2) {
                g.lineWidth = 1;
                g.globalAlpha *= 0.3;
                trace(line.y);
                g.globalAlpha = aside ? 0.18 : 1;
            }
            g.lineWidth = line.points ? 1.4 : 1.9;
            g.lineJoin = "round";
            const alone = this.spec.big && line.points &&
                this.spec.smooth;  // dots beside the line of training
            if (!alone) {
                g.setLineDash(dash);
                trace(line.shown);
                g.setLineDash([]);
            }
            if (line.points && line.x.length <= 60)
                line.y.forEach((v, i) => {
                    if (Format.is(v) && (!log || v > 0))
                        dot(g, line.run.series.index, toX(line.x[i]), toY(v));
                });
            g.globalAlpha = 1;
        }

        drawCross(g, plot, lines, toX, toY) {
            const {hover} = this.group;
            if (this.selected) {
                g.fillStyle = Dom.css("accent");
                g.globalAlpha = 0.16;
                g.fillRect(
                    Math.min(...this.selected), plot.top,
                    Math.abs(this.selected[0] - this.selected[1]), plot.bottom - plot.top);
                g.globalAlpha = 1;
            }
            if (hover === null) return;
            g.strokeStyle = Dom.css("faint");
            g.lineWidth = 1;
            g.beginPath();
            g.moveTo(toX(hover), plot.top);
            g.lineTo(toX(hover), plot.bottom);
            g.stroke();
            for (const line of lines) {
                const i = nearest(line.x, hover);
                if (i < 0 || line.points || !Format.is(line.shown[i])) continue;
                g.fillStyle = Dom.css(line.run.series.color);
                g.beginPath();
                g.arc(toX(line.x[i]), toY(line.shown[i]), 3.5, 0, 7);
                g.fill();
            }
        }

        // Names at the ends of the lines, moved apart, so that no legend is needed.
        drawNames(g, plot, lines, toX, toY) {
            const ends = new Map();
            for (const line of lines) {
                let i = line.x.length - 1;
                while (i >= 0 &&
                       !(Format.is(line.shown[i]) && line.x[i] <= this.group.stretch.high))
                    i--;
                if (i >= 0 && (!line.points || !ends.has(line.run.series)))
                    ends.set(line.run.series, toY(line.shown[i]));
            }
            const rows = [...ends].filter(([, y]) => Format.is(y)).sort((a, b) => a[1] - b[1]);
            rows.forEach((row, i) => {
                row[1] = Math.max(row[1], plot.top + 6, i ? rows[i - 1][1] + 14 : 0);
            });
            for (let i = rows.length - 1; i >= 0; i--) {
                rows[i][1] = Math.min(
                    rows[i][1], plot.bottom - 4,
                    i + 1 < rows.length ? rows[i + 1][1] - 14 : Infinity);
            }
            g.textAlign = "left";
            g.textBaseline = "middle";
            for (const [series, y] of rows) {
                g.fillStyle = Dom.css(series.color);
                g.globalAlpha = this.group.pointed && this.group.pointed !== series ? 0.3 : 1;
                g.fillText(cut(g, series.name, 96), plot.right + 7, y);
            }
            g.globalAlpha = 1;
        }

        tell(e) {
            const lines = this.lines();
            const rows = [];
            for (const line of lines) {
                const i = nearest(line.x, this.group.hover);
                if (i < 0 || !Format.is(line.y[i])) continue;
                const at =
                    line.points ? ` (evaluation at ${axes[this.group.x].show(line.x[i])})` : "";
                const mean = line.shown !== line.y
                    ? `${this.spec.show(line.shown[i])} (raw ${this.spec.show(line.y[i])})`
                    : this.spec.show(line.y[i]);
                if (rows.length < 14)
                    rows.push([line.run.name + at, mean, Model.swatch(line.run.series)]);
            }
            const {hover, x} = this.group;
            Dom.showTip(
                e.clientX, e.clientY,
                `${this.spec.title} at ${axes[x].show(Math.max(0, hover))} ${
                    x === "elapsed_s" ? "" : axes[x].label}`,
                rows);
        }
    }

    return Chart;
})();
