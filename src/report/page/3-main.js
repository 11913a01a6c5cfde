// main.js -- assembles the page: first the sections of all runs, then the details of one run.
//
// Sections without data are omitted. Errors are shown on the page, so that it is never just empty.
(() => {
    "use strict";
    const {el} = Dom;
    let chosen = null;  // run whose details are shown

    function head(data, live) {
        const {runs} = data;
        const one = runs.length === 1 ? runs[0] : null;
        const models =
            [...new Set(runs.map((r) => r.summary && `${r.summary.model} on ${r.summary.data}`)
                            .filter(Boolean))];
        const line = one ?
            [
                el("span", {}, `${Model.describe(one)} `), Tables.badge(Model.status(one)), " ",
                one.kind === "emulated" ? el("span", {class: "badge emulated"}, "emulated") : null
            ] :
            [[
                data.compare && Format.plural(data.compare.cases.length, "case"),
                runs.length && Format.plural(runs.length, "run"),
                models.length <= 3 ? models.join(", ") : Format.plural(models.length, "model")
            ].filter(Boolean)
                 .join(" \u00b7 ")];
        return [
            el("div", {class: "top"},
               el("div", {}, el("h1", {}, data.title), el("p", {class: "lead"}, line)),
               Dom.themeButton()),
            live
        ];
    }

    // Prefer a pipeline to a single worker: it has more to show.
    function telling(runs) {
        return Math.max(
            0, runs.findIndex((run) => run.timeline && run.summary && run.summary.stages > 1));
    }

    // Details of one run, with a selector if there are several.
    function inside(runs) {
        const place = el("div");
        const fill = () => {
            const run = runs[chosen];
            Dom.hideTip();
            place.replaceChildren(...[Timeline.section(run), Bars.time(run), Bars.memory(run),
                                      Bars.prediction(run), Versions.section(run), Texts.plan(run),
                                      Texts.config(run), Texts.environment(run), Texts.folder(run)]
                                      .filter(Boolean));
        };
        if (chosen === null || chosen >= runs.length) chosen = telling(runs);
        fill();
        if (runs.length === 1) return [place];
        const select =
            el("select", {id: "run", "aria-label": "run with details"},
               runs.map(
                   (run, i) =>
                       el("option", {value: String(i), selected: i === chosen}, Model.label(run))));
        const said = el("span", {class: "soft small"}, Model.describe(runs[chosen]));
        select.addEventListener("change", () => {
            chosen = Number(select.value);
            said.textContent = Model.describe(runs[chosen]);
            fill();
            navigation();
        });
        return [
            el("div", {class: "part", id: "inside"}, el("h2", {}, "Inside one run"), select, said),
            place
        ];
    }

    const titles = {
        comparison: "Comparison",
        figures: "Figures",
        curves: "Learning",
        idle: "Idle",
        batches: "Forecast",
        inside: "One run",
        timeline: "Timeline",
        time: "Time",
        memory: "Memory",
        prediction: "Predictions",
        versions: "Weights",
        plan: "Plan",
        config: "Config",
        environment: "Environment",
        files: "Files"
    };

    let watch = null;  // observes which section is visible

    function navigation() {
        const old = document.querySelector("nav");
        const ids = Object.keys(titles).filter((id) => document.getElementById(id));
        const nav =
            el("nav", {"aria-label": "sections"},
               el("div", {class: "strip"}, ids.map((id) => el("a", {href: `#${id}`}, titles[id]))));
        if (old)
            old.replaceWith(nav);
        else
            document.getElementById("head").after(nav);
        if (watch) watch.disconnect();
        watch = new IntersectionObserver((seen) => {
            for (const {target, isIntersecting} of seen) {
                nav.querySelector(`a[href="#${target.id}"]`)
                    .classList.toggle("here", isIntersecting);
            }
        }, {rootMargin: "-15% 0px -80% 0px"});
        ids.forEach((id) => watch.observe(document.getElementById(id)));
    }

    // Returns the function to call after adding points to the curves.
    function show(data, live) {
        const runs = data.runs;
        const series = Model.seriesOf(data);
        const curves = Curves.section(runs, series);
        if (data.title) document.title = data.title;
        document.getElementById("head").replaceChildren(...head(data, live).filter(Boolean));
        // If each case has one run, the table of the comparison has the key figures. During a run,
        // the progress bar has them.
        const told = data.compare ? series.every((one) => one.case && one.runs.length === 1)
                                  : live && data.live;
        const sections = [
            data.compare && Comparison.section(data.compare, series),
            !told && runs.length && Tables.section(runs), curves && curves.node, Bars.idle(runs),
            Bars.batchTimes(runs), ...(runs.length ? inside(runs) : [])
        ].filter(Boolean);
        if (!sections.length) sections.push(el("section", {}, el("p", {}, "No run yet.")));
        document.getElementById("main").replaceChildren(...sections);
        document.getElementById("foot").replaceChildren(`Made by forerun ${data.forerun || ""}.${
            data.live ? "" : " This file holds all that it shows."}`);
        navigation();
        return () => {
            for (const group of curves ? curves.groups : []) {
                const all = group.whole();
                const {low, high} = group.stretch;
                group.refit();
                if (!all) group.stretch.set(low, high);
                group.redraw();
            }
        };
    }

    function fail(error) {
        document.getElementById("main").prepend(
            el("section", {class: "failed"}, el("h2", {}, "This page could not be drawn"),
               el("p", {}, String((error && error.message) || error))));
    }

    addEventListener("DOMContentLoaded", async () => {
        Dom.startTheme();
        try {
            const data = JSON.parse(document.getElementById("data").textContent);
            if (data)
                show(data, null);
            else
                await Live.start(show);
        } catch (error) {
            fail(error);
            throw error;
        }
    });
})();
