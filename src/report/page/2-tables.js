// tables.js -- the key figures: tiles for one run, a table for several, and that of a comparison.
const Tables = (() => {
    "use strict";
    const {el} = Dom;

    /* --- a table that sorts --- */

    // columns: [{label, unit, value(row), cell(row), left, class}]; rows of one body, or of groups.
    function sortable(columns, groups, described) {
        const head = el("tr");
        const bodies = groups.map(() => el("tbody"));
        let by = null;
        let up = true;
        const compareRows = (column) => (a, b) => {
            const [x, y] = [column.value(a), column.value(b)];
            const missing = (v) => v === null || v === undefined || Number.isNaN(v);
            if (missing(x) || missing(y)) return missing(x) - missing(y);  // at the end both ways
            return (typeof x === "number" ?
                        x - y :
                        String(x).localeCompare(String(y), "en", {numeric: true})) *
                (up ? 1 : -1);
        };
        const fill = () => groups.forEach(({name, rows}, i) => {
            const sorted = by ? [...rows].sort(compareRows(by)) : rows;
            bodies[i].replaceChildren(
                ...(name ? [el("tr", {class: "group"}, el("td", {colspan: columns.length}, name))] :
                           []),
                ...sorted.map(
                    (row) => el("tr", {}, columns.map((c) => {
                        const cell = c.cell(row);
                        return el(
                            "td", {
                                class: [c.left && "left", c.class, c.best && c.best(row) && "best"]
                                           .filter(Boolean)
                                           .join(" ") ||
                                    null
                            },
                            cell);
                    }))));
        });
        columns.forEach((c) => {
            const th = el("th", {
                scope: "col",
                class: [c.left && "left", c.class].filter(Boolean).join(" ") || null
            });
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
        return el(
            "span",
            {class: `badge ${
                 status === "done"         ? "good" :
                     status === "going on" ? "" :
                                             "bad"}`},
            status);
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
        const bestOf = (f) => {
            const values = runs.map((run) => f.value(run, runs[0])).filter(Format.is);
            if (!f.best || values.length < 2) return null;
            return f.best === "high" ? Math.max(...values) : Math.min(...values);
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
            } :
                       null,
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
            "section", {id: "figures"},
            el("h2", {}, one ? "What came out" : "The runs side by side"),
            el("p", {},
               one ?
                   "The run in a few numbers." :
                   `Speed-up is over ${
                       runs[0].name}; a dot marks the best of a column. Click a heading to sort.`),
            body);
    }

    /* --- comparison --- */

    const shows = {
        eval_accuracy: Format.percent,
        bubble: Format.percent,
        memory: Format.bytes,
        traffic: Format.bytes,
        speedup: (x) => `${Format.number(x, 3)}\u00d7`,
        s_per_batch: Format.seconds,
        predicted_s_per_batch: Format.seconds,
        wall_s: Format.seconds,
        prediction_error: (x) => Format.signed(x, Format.percent)
    };
    const shown = (key, x) => (shows[key] || ((v) => Format.number(v, 4)))(x);

    function spread(key, v) {
        if (!v || !Format.is(v.mean)) return Format.none;
        const cell = [shown(key, v.mean)];
        if (v.n > 1 && Format.is(v.sd))
            cell.push(el("span", {class: "unit"}, ` \u00b1 ${shown(key, v.sd)}`));
        const node = el("span", {}, cell);
        return v.n > 1 ? Dom.explain(
                             node, `${v.n} seeds`,
                             [
                                 ["mean", shown(key, v.mean)], ["spread (sd)", shown(key, v.sd)],
                                 ["least", shown(key, v.min)], ["most", shown(key, v.max)]
                             ]) :
                         node;
    }

    function comparison(compare, series) {
        const cases = compare.cases || [];
        if (!cases.length) return null;
        const columns =
            (compare.columns || []).filter((c) => cases.some((x) => x.values && x.values[c.key]));
        const theirs =
            (compare.columns ||
             []).filter((c) => cases.some((x) => x.published && Format.is(x.published[c.key])));
        const swatchOf = (c) => {
            const found =
                series.find((s) => s.name === c.name || s.name === `${c.group} ${c.name}`);
            return found && found.runs.length ? Model.swatch(found) : null;
        };
        const groups = [...new Set(cases.map((c) => c.group || ""))];
        const kinds = [...new Set(cases.map((c) => c.kind))];
        const heads = [
            {
                label: "Case",
                left: true,
                value: (c) => c.name,
                cell: (c) => el(
                    "span", {class: "named", title: c.method}, swatchOf(c), el("span", {}, c.name))
            },
            {
                label: "How",
                left: true,
                value: (c) => c.kind,
                cell: (c) => el("span", {class: `badge ${c.kind}`}, c.kind)
            },
            cases.some((c) => c.status && c.status !== "done") ? {
                label: "Status",
                left: true,
                value: (c) => c.status,
                cell: (c) => badge(c.status || Format.none)
            } :
                                                                 null,
            cases.some((c) => c.n_seeds > 1) ?
                {label: "Seeds", value: (c) => c.n_seeds, cell: (c) => Format.whole(c.n_seeds)} :
                null,
            ...columns.map((c) => ({
                               label: c.label || c.key,
                               value: (x) => x.values && x.values[c.key] && x.values[c.key].mean,
                               cell: (x) => spread(c.key, x.values && x.values[c.key])
                           })),
            ...theirs.map((c) => ({
                              label: `${c.label || c.key}, published`,
                              class: "theirs",
                              value: (x) => x.published && x.published[c.key],
                              cell: (x) =>
                                  (x.published && Format.is(x.published[c.key]) ?
                                       el("span", {title: x.published.source},
                                          shown(c.key, x.published[c.key])) :
                                       Format.none)
                          })),
        ].filter(Boolean);
        const sources =
            [...new Set(cases.map((c) => c.published && c.published.source).filter(Boolean))];
        const meaning = {
            measured: "measured: ran on this machine",
            emulated: "emulated: trained here, times are those of a described cluster",
            simulated: "simulated: times only, nothing was trained"
        };
        return el(
            "section", {id: "comparison"}, el("h2", {}, "Comparison"),
            el("p", {},
               [
                   `Mean${
                       cases.some((c) => c.n_seeds > 1) ? " and spread over seeds" :
                                                          ""} of each case`,
                   compare.baseline ? `; speed-up over ${compare.baseline}` : "", ". ",
                   kinds.map((k) => meaning[k]).filter(Boolean).join("; "), kinds.length ? "." : ""
               ].join("")),
            sortable(
                heads, groups.map((name) => ({
                                      name: groups.length > 1 ? name || "\u2013" : "",
                                      rows: cases.filter((c) => (c.group || "") === name)
                                  })),
                "comparison"),
            sources.length ? el("p", {class: "soft small", css: {"margin-top": "8px"}},
                                `Published figures: ${sources.join("; ")}.`) :
                             null);
    }

    return {section, comparison, badge};
})();
