// tables.js -- the key figures: tiles for one run, a table that sorts for several.
const Tables = (() => {
    "use strict";
    const {el} = Dom;

    /* --- a table that sorts --- */

    const classes = (...names) => names.filter(Boolean).join(" ") || null;

    // columns: [{label, unit, title, value(row), cell(row), best(row), left, class}]; groups:
    // [{name, rows}], each sorted separately.
    function sortable(columns, groups, described) {
        const head = el("tr");
        const bodies = groups.map(() => el("tbody"));
        let by = null;
        let up = true;
        const compareRows = (column) => (a, b) => {
            const [x, y] = [column.value(a), column.value(b)];
            const missing = (v) => v === null || v === undefined || Number.isNaN(v);
            if (missing(x) || missing(y))
                return missing(x) - missing(y);  // last in both directions
            return (typeof x === "number"
                        ? x - y
                        : String(x).localeCompare(String(y), "en", {numeric: true})) *
                (up ? 1 : -1);
        };
        const fill = () => groups.forEach(({name, rows}, i) => {
            const sorted = by ? [...rows].sort(compareRows(by)) : rows;
            bodies[i].replaceChildren(
                ...(name ? [el("tr", {class: "group"}, el("td", {colspan: columns.length}, name))]
                         : []),
                ...sorted.map((row) => el("tr", {}, columns.map((c) => {
                                  const best = c.best && c.best(row) && "best";
                                  return el(
                                      "td", {class: classes(c.left && "left", c.class, best)},
                                      c.cell(row));
                              }))));
        });
        columns.forEach((c) => {
            const th =
                el("th", {scope: "col", title: c.title, class: classes(c.left && "left", c.class)});
            th.append(
                el("button", {
                    type: "button",
                    onclick: () => {
                        up = by === c ? !up : true;
                        by = c;
                        [...head.children].forEach((x) => x.removeAttribute("aria-sort"));
                        th.setAttribute("aria-sort", up ? "ascending" : "descending");
                        fill();
                    }
                },
                   c.label, c.unit ? el("span", {class: "unit"}, ` ${c.unit}`) : null));
            head.append(th);
        });
        fill();
        return el(
            "div", {class: "scroll", tabindex: "0", role: "region", "aria-label": described},
            el("table", {}, el("thead", {}, head), bodies));
    }

    function badge(status) {
        const tones = {done: "good", unfinished: "", begun: "", waiting: "", published: ""};
        return el("span", {class: `badge ${tones[status] ?? "bad"}`}, status);
    }

    /* --- runs --- */

    function tiles(run) {
        const shown = Model.figures.filter((f) => !f.several && Format.is(f.value(run)));
        if (!shown.length) return null;
        return el("div", {class: "tiles"}, shown.map((f) => {
            const [, figure, unit] = f.show(f.value(run)).match(/^(\S+) ?(.*)$/);
            return el(
                "div", {class: "tile"}, el("div", {class: "what"}, f.label),
                el("div", {class: "figure"}, figure, unit ? el("small", {}, unit) : null),
                f.note ? el("div", {class: "note"}, f.note(run)) : null);
        }));
    }

    function runTable(runs) {
        const shown =
            Model.figures.filter((f) => runs.some((run) => Format.is(f.value(run, runs[0]))));
        const mixed = new Set(runs.map((run) => run.kind)).size > 1;  // two clocks: no ranking
        const bestOf = (f) => {
            const values = runs.map((run) => f.value(run, runs[0])).filter(Format.is);
            const best = f.best === "high" ? Math.max(...values) : Math.min(...values);
            const alone = values.length > 1 && values.filter((v) => v === best).length === 1;
            return f.best && alone && !mixed ? best : null;
        };
        const emulated = runs.some((run) => run.kind === "emulated");
        const columns = [
            {
                label: "Run",
                left: true,
                value: (r) => r.name,
                cell: (r) =>
                    el("span", {class: "named", title: r.folder}, Model.swatch(r.series),
                       el("span", {}, r.name))
            },
            runs.every((r) => ((r.summary || {}).method || "").startsWith(r.name)) ? null : {
                label: "Method",
                left: true,
                value: (r) => (r.summary || {}).method,
                cell: (r) => (r.summary || {}).method || Format.none
            },
            {
                label: "Layout",
                left: true,
                value: (r) => Model.layout(r),
                cell: (r) => Model.layout(r) || Format.none
            },
            runs.every((r) => Model.status(r) === "done") ? null : {
                label: "Status",
                left: true,
                value: (r) => Model.status(r),
                cell: (r) => badge(Model.status(r))
            },
            emulated ? {
                label: "Clock",
                left: true,
                value: (r) => r.kind,
                cell: (r) => el("span", {class: `badge ${r.kind}`}, r.kind)
            }
                     : null,
            ...shown.map((f) => {
                const best = bestOf(f);
                return {
                    label: f.label,
                    value: (r) => f.value(r, runs[0]),
                    cell: (r) => f.show(f.value(r, runs[0])),
                    best: (r) => best !== null && f.value(r, runs[0]) === best
                };
            }),
        ].filter(Boolean);
        return sortable(columns, [{rows: runs}], "key figures of all runs");
    }

    function section(runs) {
        const one = runs.length === 1;
        const body = one ? tiles(runs[0]) : runTable(runs);
        if (!body) return null;
        return el(
            "section", {id: "figures"}, el("h2", {}, one ? "Results" : "The runs side by side"),
            el("p", {},
               one ? "The run in a few numbers."
                   : `Speed-up is over ${
                         runs[0]
                             .name}; a dot marks the best of a column. Click a heading to sort.`),
            body);
    }

    return {section, sortable, badge};
})();
