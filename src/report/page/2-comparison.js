// comparison.js -- the table of `forerun compare`: cases by group, mean and spread over seeds.
//
// Measured, emulated, simulated and published figures are never mixed: each row names its kind, and
// published figures have their own columns.
const Comparison = (() => {
    "use strict";
    const {el} = Dom;

    const meaning = {
        measured: "ran on this machine",
        emulated: "trained here, at the pace of a described cluster",
        simulated: "virtual clock, nothing was trained",
        published: "published figures"
    };

    // Values are in the column's unit.
    function shown(column, x) {
        if (!Format.is(x)) return Format.none;
        return column.digits >= 0 ? x.toFixed(column.digits) : Format.number(x, 4);
    }

    const good = {
        eval_accuracy: 1,
        samples_per_s: 1,
        speedup: 1,
        eval_loss: -1,
        train_loss: -1,
        bubble: -1,
        memory: -1,
        traffic: -1,
        s_per_batch: -1
    };
    const meanOf = (c, key) => (c.values && c.values[key] ? c.values[key].mean : null);

    // The best of its group and kind, if there are others.
    function isBest(cases, c, key) {
        const mine = meanOf(c, key);
        const others = cases.filter((x) => x !== c && x.group === c.group && x.kind === c.kind)
                           .map((x) => meanOf(x, key))
                           .filter(Format.is);
        return good[key] && Format.is(mine) && others.length &&
            others.every((v) => good[key] * (mine - v) > 0);
    }

    function spread(column, v) {
        if (!v || !Format.is(v.mean)) return Format.none;
        if (!(v.n > 1)) return shown(column, v.mean);
        const say = (x) => `${shown(column, x)} ${column.unit || ""}`;
        const cell =
            el("span", {}, shown(column, v.mean),
               el("span", {class: "unit"}, ` \u00b1 ${shown(column, v.sd)}`));
        return Dom.explain(cell, `${column.label}, ${v.n} seeds`, [
            ["mean", say(v.mean)], ["standard deviation", say(v.sd)], ["least", say(v.min)],
            ["most", say(v.max)]
        ]);
    }

    // "Speed-up is over single.", or per group if groups have different baselines.
    function baselines(compare, cases) {
        const of = (c) => c.baseline || compare.baseline;
        const names = [...new Set(cases.map(of))];
        if (names.length < 2) return names[0] ? `Speed-up is over ${names[0]}.` : "";
        const groups = [...new Map(cases.map((c) => [c.group, of(c)]))];
        return `Speed-up is over ${
            groups.map(([group, name]) => `${name} in ${group}`).join(", ")}.`;
    }

    function columnsOf(compare, cases, series) {
        const any = (test) => cases.some(test);
        const ours = compare.columns.filter((c) => any((x) => x.values && x.values[c.key]));
        const theirs =
            compare.columns.filter((c) => any((x) => x.published && Format.is(x.published[c.key])));
        const look = (c) => {
            const found = series.find((one) => one.case === c);
            return found ? Model.swatch(found) : null;
        };
        return [
            {
                label: "Case",
                left: true,
                value: (c) => c.name,
                cell: (c) =>
                    el("span", {class: "named", title: c.method}, look(c), el("span", {}, c.name))
            },
            {
                label: "How",
                left: true,
                value: (c) => c.kind,
                cell: (c) => el("span", {class: `badge ${c.kind}`, title: meaning[c.kind]}, c.kind)
            },
            any((c) => !["done", "published"].includes(c.status)) && {
                label: "Status",
                left: true,
                value: (c) => c.status,
                cell: (c) => Tables.badge(c.status)
            },
            any((c) => c.n_seeds > 1) && {
                label: "Seeds",
                value: (c) => c.n_done,
                cell: (c) => c.n_done < c.n_seeds ? `${c.n_done} of ${c.n_seeds}` : `${c.n_seeds}`
            },
            ...ours.map((c) => ({
                            label: c.label,
                            unit: c.unit,
                            title: c.about,
                            value: (x) => meanOf(x, c.key),
                            best: (x) => isBest(cases, x, c.key),
                            cell: (x) => spread(c, x.values && x.values[c.key])
                        })),
            ...theirs.map((c) => ({
                              label: `${c.label}, published`,
                              unit: c.unit,
                              class: "theirs",
                              value: (x) => x.published && x.published[c.key],
                              cell: (x) => shown(c, x.published && x.published[c.key])
                          }))
        ].filter(Boolean);
    }

    function section(compare, series) {
        const cases = compare.cases || [];
        if (!cases.length) return null;
        const groups = [...new Set(cases.map((c) => c.group))];
        const kinds = [...new Set(cases.map((c) => c.kind))];
        const several = cases.some((c) => c.n_seeds > 1);
        const said = [
            several ? "Mean and standard deviation over seeds." : "", baselines(compare, cases),
            "A dot marks the best of its group and kind.",
            kinds.length > 1 || kinds[0] !== "measured"
                ? `Rows are ${kinds.map((k) => `${k} (${meaning[k]})`).join(", ")}.`
                : ""
        ];
        const sources = [...new Set(cases.map((c) => c.published && c.published.source))];
        return el(
            "section", {id: "comparison"}, el("h2", {}, "Comparison"),
            el("p", {}, said.filter(Boolean).join(" ")),
            Tables.sortable(
                columnsOf(compare, cases, series),
                groups.map((name) => ({
                               name: groups.length > 1 ? name || Format.none : "",
                               rows: cases.filter((c) => c.group === name)
                           })),
                "comparison"),
            compare.note && el("p", {class: "note"}, compare.note),
            sources.some(Boolean) &&
                el("p", {class: "note"}, `Published: ${sources.filter(Boolean).join("; ")}.`));
    }

    return {section};
})();
