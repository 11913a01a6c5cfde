// view.js -- what all canvases share: sharp pixels, a stretch of the x axis that can be zoomed and
// moved by wheel, fingers, mouse and keys, and drawing at most once a frame.
const View = (() => {
    "use strict";
    const font = '12px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif';

    // A canvas that is drawn again when its width, the theme or its content changes.
    function canvas(attributes, height, draw) {
        const node = Dom.el("canvas", { role: "img", tabindex: "0", ...attributes });
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
        Dom.onTheme(redraw);
        return { node, redraw };
    }

    // The stretch [low, high] of [first, last] that is shown.
    class Stretch {
        constructor(first, last, least) {
            Object.assign(this, { first, last, least, low: first, high: last });
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
        all() {
            this.set(this.first, this.last);
        }
    }

    // The wheel belongs to the page until the picture has been clicked or ctrl is held: who scrolls
    // past must not get stuck. area() gives {left, right} of the plot and the stretch to act upon.
    function zoomable(node, area, changed, home) {
        const at = (x) => {
            const { left, right, stretch } = area();
            return stretch.low + ((x - left) / (right - left)) * (stretch.high - stretch.low);
        };
        node.addEventListener("wheel", (e) => {
            if (!(e.ctrlKey || document.activeElement === node)) return;
            e.preventDefault();
            const { stretch } = area();
            if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) stretch.move(e.deltaX / 800);
            else stretch.zoom(Math.exp(Math.max(-240, Math.min(240, e.deltaY)) / 400), at(e.offsetX));
            changed();
        }, { passive: false });
        const keys = {
            "+": () => area().stretch.zoom(0.6, middle()), "=": () => area().stretch.zoom(0.6, middle()),
            "-": () => area().stretch.zoom(1 / 0.6, middle()), "_": () => area().stretch.zoom(1 / 0.6, middle()),
            ArrowLeft: () => area().stretch.move(-0.2), ArrowRight: () => area().stretch.move(0.2),
            Home: () => area().stretch.move(-1e9), End: () => area().stretch.move(1e9),
            0: () => area().stretch.all(), Escape: home,
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
        return { at };
    }

    // One finger or the mouse drags: moved(dx from the start, event); two fingers pinch.
    function draggable(node, { start, moved, end, pinch }) {
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
            if (down.size === 1) start(e);
            else if (down.size === 2) distance = spread();
        });
        node.addEventListener("pointermove", (e) => {
            if (!down.has(e.pointerId)) return;
            down.set(e.pointerId, e);
            if (down.size === 2 && pinch) {
                const now = spread();
                const [a, b] = [...down.values()];
                pinch(distance / now, (a.offsetX + b.offsetX) / 2);
                distance = now;
            } else if (down.size === 1) moved(e);
        });
        const up = (e) => {
            if (down.delete(e.pointerId) && !down.size) end(e);
        };
        node.addEventListener("pointerup", up);
        node.addEventListener("pointercancel", up);
    }

    // Buttons for those without wheel or keys.
    function zoomButtons(stretch, changed, home, homeText) {
        const button = (text, label, act) => Dom.el("button", {
            type: "button", "aria-label": label, title: label,
            onclick: () => {
                act();
                changed();
            },
        }, text);
        const middle = () => (stretch().low + stretch().high) / 2;
        return [
            button("+", "zoom in", () => stretch().zoom(0.6, middle())),
            button("\u2212", "zoom out", () => stretch().zoom(1 / 0.6, middle())),
            button("\u2190", "earlier", () => stretch().move(-0.5)),
            button("\u2192", "later", () => stretch().move(0.5)),
            button("Fit", "show all", () => stretch().all()),
            homeText ? button(homeText, "as it was at first", home) : null,
        ];
    }

    return { canvas, Stretch, zoomable, draggable, zoomButtons };
})();
