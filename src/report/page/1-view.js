// view.js -- common parts of all canvases: sharp pixels, zooming and moving along the x axis by
// wheel, fingers, mouse and keys, and drawing at most once per frame.
const View = (() => {
    "use strict";
    const font = "12px system-ui, -apple-system, Roboto, 'Segoe UI', 'Liberation Sans', sans-serif";

    // A canvas that is redrawn when its width, the theme or its content changes.
    function canvas(attributes, height, draw) {
        const node = Dom.el("canvas", {role: "img", tabindex: "0", ...attributes});
        let asked = false;
        const redraw = () => {
            if (asked) return;
            asked = true;
            requestAnimationFrame(() => {
                asked = false;
                const width = node.clientWidth;
                if (!width) return;
                const tall = height(width);
                const sharp = window.devicePixelRatio || 1;
                node.style.height = `${tall}px`;
                node.width = Math.round(width * sharp);
                node.height = Math.round(tall * sharp);
                const g = node.getContext("2d");
                g.setTransform(sharp, 0, 0, sharp, 0, 0);
                g.font = font;
                draw(g, width, tall);
            });
        };
        let seen = 0;
        new ResizeObserver(() => {
            if (node.clientWidth !== seen) {
                seen = node.clientWidth;
                redraw();
            }
        }).observe(node);
        Dom.onTheme(node, redraw);
        return {node, redraw};
    }

    // The visible range [low, high] of [first, last].
    class Stretch {
        constructor(first, last, least) {
            Object.assign(this, {first, last, least, low: first, high: last});
        }
        set(low, high) {
            const width = Math.min(Math.max(high - low, this.least), this.last - this.first);
            const start = Math.min(Math.max(low, this.first), this.last - width);
            this.low = start;
            this.high = start + width;
        }
        zoom(factor, at) {
            this.set(at - (at - this.low) * factor, at + (this.high - at) * factor);
        }
        move(share) {
            const by = share * (this.high - this.low);
            this.set(this.low + by, this.high + by);
        }
        all() { this.set(this.first, this.last); }
    }

    // The wheel scrolls the page until the picture is clicked or ctrl is held, so that pictures do
    // not interrupt scrolling. area() gives {left, right} of the plot and its range.
    function zoomable(node, area, changed, home) {
        const at = (x) => {
            const {left, right, stretch} = area();
            return stretch.low + ((x - left) / (right - left)) * (stretch.high - stretch.low);
        };
        node.addEventListener("wheel", (e) => {
            if (!(e.ctrlKey || document.activeElement === node)) return;
            e.preventDefault();
            const {stretch} = area();
            if (Math.abs(e.deltaX) > Math.abs(e.deltaY))
                stretch.move(e.deltaX / 800);
            else
                stretch.zoom(
                    Math.exp(Math.max(-240, Math.min(240, e.deltaY)) / 400), at(e.offsetX));
            changed();
        }, {passive: false});
        const keys = {
            "+": () => area().stretch.zoom(0.6, middle()),
            "=": () => area().stretch.zoom(0.6, middle()),
            "-": () => area().stretch.zoom(1 / 0.6, middle()),
            "_": () => area().stretch.zoom(1 / 0.6, middle()),
            ArrowLeft: () => area().stretch.move(-0.2),
            ArrowRight: () => area().stretch.move(0.2),
            Home: () => area().stretch.move(-1e9),
            End: () => area().stretch.move(1e9),
            0: () => area().stretch.all(),
            Escape: home,
        };
        const middle = () => (area().stretch.low + area().stretch.high) / 2;
        node.addEventListener("keydown", (e) => {
            if (e.ctrlKey || e.metaKey || e.altKey || !keys[e.key]) return;
            e.preventDefault();
            keys[e.key]();
            changed();
        });
        node.addEventListener("dblclick", () => {
            home();
            changed();
        });
        return {at};
    }

    // One finger or the mouse drags: moved(dx from the start, event). Two fingers pinch.
    function draggable(node, {start, moved, end, pinch}) {
        const down = new Map();
        let distance = 0;
        const spread = () => {
            const [a, b] = [...down.values()];
            return Math.abs(a.offsetX - b.offsetX) + 1;
        };
        node.addEventListener("pointerdown", (e) => {
            if (e.button) return;
            down.set(e.pointerId, e);
            node.setPointerCapture(e.pointerId);
            if (down.size === 1)
                start(e);
            else if (down.size === 2)
                distance = spread();
        });
        node.addEventListener("pointermove", (e) => {
            if (!down.has(e.pointerId)) return;
            down.set(e.pointerId, e);
            if (down.size === 2 && pinch) {
                const now = spread();
                const [a, b] = [...down.values()];
                pinch(distance / now, (a.offsetX + b.offsetX) / 2);
                distance = now;
            } else if (down.size === 1)
                moved(e);
        });
        const up = (e) => {
            if (down.delete(e.pointerId) && !down.size) end(e);
        };
        node.addEventListener("pointerup", up);
        node.addEventListener("pointercancel", up);
    }

    // Lets the reader drag a picture along its x axis. The picture has node, redraw, plot, stretch,
    // home(), shown() (the range in words) and point(x, event) (shows a tooltip, or returns false).
    // Returns buttons that replace wheel and keys.
    function panned(p) {
        const {at} =
            zoomable(p.node, () => ({...p.plot, stretch: p.stretch}), p.redraw, () => p.home());
        let held = 0;
        draggable(p.node, {
            start: (e) => {
                held = at(e.offsetX);
            },
            moved: (e) => {
                const by = held - at(e.offsetX);
                p.stretch.set(p.stretch.low + by, p.stretch.high + by);
                p.redraw();
            },
            end: () => {},
            pinch: (factor, x) => {
                p.stretch.zoom(factor, at(x));
                p.redraw();
            },
        });
        Dom.onPoint(p.node, (e) => {
            if (e.offsetX < p.plot.left || !p.point(at(e.offsetX), e)) Dom.hideTip();
        });
        p.node.addEventListener("pointerleave", Dom.hideTip);
        p.said = Dom.el("output", {class: "soft small"});
        const middle = () => (p.stretch.low + p.stretch.high) / 2;
        const buttons = [
            ["+", "zoom in", () => p.stretch.zoom(0.6, middle())],
            ["\u2212", "zoom out", () => p.stretch.zoom(1 / 0.6, middle())],
            ["\u2190", "earlier", () => p.stretch.move(-0.5)],
            ["\u2192", "later", () => p.stretch.move(0.5)],
            ["Fit", "show all", () => p.stretch.all()], ["Start", "reset the view", () => p.home()]
        ];
        return Dom.el(
            "span", {class: "keypad"},
            buttons.map(
                ([text, label, act]) => Dom.el(
                    "button", {
                        type: "button",
                        "aria-label": label,
                        title: label,
                        onclick: () => {
                            act();
                            p.redraw();
                        },
                    },
                    text)),
            p.said);
    }

    return {canvas, Stretch, zoomable, draggable, panned};
})();
