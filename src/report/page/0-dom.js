// dom.js -- building blocks of the page: elements, tooltip, theme, controls.
//
// Each file of the page defines one constant of its name. Files share nothing else.
const Dom = (() => {
    "use strict";

    // el("p", {class: "soft", onclick: f}, "text", child, null) skips null and undefined.
    function el(tag, attributes, ...children) {
        const node = document.createElement(tag);
        for (const [name, value] of Object.entries(attributes || {})) {
            if (value === null || value === undefined || value === false) continue;
            if (name.startsWith("on"))
                node.addEventListener(name.slice(2), value);
            else if (name === "css")
                for (const [k, v] of Object.entries(value)) node.style.setProperty(k, v);
            else
                node.setAttribute(name, value === true ? "" : value);
        }
        node.append(
            ...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
        return node;
    }

    // A value of the style sheet, for canvases.
    function css(name) {
        return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    }

    /* --- tooltip: one for the page --- */

    const tip = () => document.getElementById("tip");

    // Shows head and rows [[name, value], ...] near the point (x, y) of the window.
    function showTip(x, y, head, rows) {
        const box = tip();
        const cells = rows.map(
            ([name, value, swatch]) => el(
                "tr", {}, el("td", {}, swatch ? [swatch, " "] : null, name), el("td", {}, value)));
        box.replaceChildren(el("b", {}, head), el("table", {}, el("tbody", {}, cells)));
        box.hidden = false;
        const {width, height} = box.getBoundingClientRect();
        const left = x + 16 + width < innerWidth ? x + 16 : x - 16 - width;
        box.style.left = `${Math.max(4, Math.min(left, innerWidth - width - 4))}px`;
        box.style.top = `${Math.max(4, Math.min(y + 14, innerHeight - height - 4))}px`;
    }

    addEventListener("scroll", () => hideTip(), {passive: true});

    function hideTip() { tip().hidden = true; }

    // A mouse hovers; a finger only presses.
    function onPoint(node, act) {
        node.addEventListener("pointermove", act);
        node.addEventListener("pointerdown", act);
    }

    // Gives the node and its descendants a tooltip.
    function explain(node, head, rows) {
        onPoint(node, (e) => showTip(e.clientX, e.clientY, head, rows));
        node.addEventListener("pointerleave", hideTip);
        return node;
    }

    /* --- theme: the system's until the reader chooses another --- */

    const dark = matchMedia("(prefers-color-scheme: dark)");
    let listeners = [];  // {node, act}: valid while the node is in the page
    let chosen = null;

    function setTheme(name) {
        chosen = name;
        document.documentElement.dataset.theme = name || (dark.matches ? "dark" : "light");
        try {
            if (name) localStorage.setItem("forerun-theme", name);
        } catch (e) { /* a file may have no storage: the choice is lost with the page */
        }
        listeners = listeners.filter(({node}) => node.isConnected);
        listeners.forEach(({act}) => act());
    }

    function onTheme(node, act) { listeners.push({node, act}); }

    function startTheme() {
        let kept = null;
        try {
            kept = localStorage.getItem("forerun-theme");
        } catch (e) { /* as above */
        }
        setTheme(kept === "dark" || kept === "light" ? kept : null);
        dark.addEventListener("change", () => setTheme(chosen));
    }

    function themeButton() {
        const say = () => document.documentElement.dataset.theme === "dark" ? "Light" : "Dark";
        const button = el("button", {id: "theme", type: "button"}, say());
        button.addEventListener("click", () => {
            setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
        });
        onTheme(button, () => {
            button.textContent = say();
        });
        return button;
    }

    /* --- controls --- */

    // Selects one of several choices: [[value, text], ...].
    function choice(label, choices, value, change) {
        const keys = el("span", {class: "keys"});
        for (const [key, text] of choices) {
            const button =
                el("button", {type: "button", "aria-pressed": String(key === value)}, text);
            button.addEventListener("click", () => {
                for (const other of keys.children)
                    other.setAttribute("aria-pressed", String(other === button));
                change(key);
            });
            keys.append(button);
        }
        return el("span", {class: "choice", role: "group", "aria-label": label}, label, keys);
    }

    // A surface is a variable of the style sheet; "~x": hatched in that colour, for waiting; "~":
    // hatched in grey.
    function paint(color) {
        if (!color.startsWith("~")) return {css: {background: `var(--${color})`}};
        return {
            class: "hatched",
            css: color === "~" ? {} : {"--hatch": `var(--${color.slice(1)})`}
        };
    }

    function chip(color) {
        const {class: pattern, css: style} = paint(color);
        return el("i", {class: `chip ${pattern || ""}`, css: style});
    }

    // keys: [[surface, text], ...]
    function legend(keys) {
        return el(
            "div", {class: "legend"},
            keys.map(([color, text]) => el("span", {class: "key"}, chip(color), text)));
    }

    return {
        onPoint,
        el,
        css,
        showTip,
        hideTip,
        explain,
        startTheme,
        themeButton,
        choice,
        paint,
        chip,
        legend,
        onTheme,
    };
})();
