// texts.js -- sections of text: plan, configuration, environment, files.
const Texts = (() => {
    "use strict";
    const {el} = Dom;

    // The clipboard exists on secure pages only, and a file may not be one: select the text
    // instead.
    function copy(pre, button) {
        const done = () => {
            button.textContent = "Copied";
            setTimeout(() => {
                button.textContent = "Copy";
            }, 1500);
        };
        const select = () => {
            getSelection().selectAllChildren(pre);
            button.textContent = "Selected";
        };
        if (navigator.clipboard)
            navigator.clipboard.writeText(pre.textContent).then(done, select);
        else
            select();
    }

    function copyable(text) {
        const pre = el("pre", {tabindex: "0"}, text);
        const button = el("button", {type: "button", onclick: () => copy(pre, button)}, "Copy");
        return el("div", {class: "copied"}, pre, button);
    }

    // Nested objects become rows named "outer inner"; keys are readable as they are.
    function flat(value, name = "") {
        if (value === null || value === undefined) return [];
        if (typeof value !== "object") return [[name, String(value)]];
        if (Array.isArray(value))
            return [
                [name, value.map((v) => (typeof v === "object" ? JSON.stringify(v) : v)).join(", ")]
            ];
        return Object.entries(value).flatMap(([k, v]) => {
            if (k.endsWith("_bytes")) return flat(Format.bytes(v), k.replace(/_bytes$/, ""));
            return flat(v, `${name} ${k.replace(/_/g, " ")}`.trim());
        });
    }

    function list(rows) {
        return el("dl", {}, rows.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
    }

    function plan(run) {
        if (!run.plan) return null;
        return el(
            "section", {id: "plan"}, el("h2", {}, "The plan, and why"),
            el("p", {}, "The planner's choice for this model on this cluster, with its reasons."),
            copyable(run.plan));
    }

    function config(run) {
        if (!run.config) return null;
        return el(
            "section", {id: "config"}, el("h2", {}, "Configuration"),
            el("p", {},
               "Every key with its value. Saved as a file it is a config: " +
                   "forerun train FILE repeats the run."),
            copyable(run.config));
    }

    function emulated({cluster, file, devices, scale, late}) {
        return [
            ["emulated cluster", cluster && `${cluster} (${file})`],
            ["emulated devices", devices && devices.join(", ")],
            ["an emulated second took", scale && Format.seconds(scale)],
            ["instructions were late by", Format.is(late) ? Format.percent(late) : null]
        ];
    }

    function environment(run) {
        const x = run.summary;
        if (!x) return null;
        const rows = [
            ...flat(x.environment), ["backend", x.backend], ["transport", x.transport],
            ["processes", x.processes && String(x.processes)], ["optimizer", x.optimizer],
            ["precision", x.precision],
            ["messages between workers", x.n_workers > 1 ? x.messages : null],
            ["parameters", x.parameters && Format.whole(x.parameters)],
            ["seed", Format.is(x.seed) ? String(x.seed) : null],
            [
                "memory of the process, peak",
                x.peak_resident_bytes && Format.bytes(x.peak_resident_bytes)
            ],
            [
                "processor time taken by the host",
                Format.is(x.stolen) && x.stolen > 0 ? Format.percent(x.stolen) : null
            ],
            ["weights, SHA-256", x.weights_sha256], ...emulated(x.emulated || {}),
            ["forerun", x.forerun]
        ];
        return el(
            "section", {id: "environment"}, el("h2", {}, "Environment"),
            el("p", {}, "Machine and software of the run."),
            el("div", {class: "card"}, list(rows.filter(([, value]) => value))));
    }

    const files = [
        ["report.html", "this page, for one run"],
        ["summary.json", "settings and results of the run"],
        ["metrics.jsonl", "one line per mini-batch"], ["metrics.csv", "the same as a table"],
        ["trace.json", "the timeline, for ui.perfetto.dev"],
        ["events.out.tfevents.*", "curves, for TensorBoard"],
        ["config.yaml", "the configuration above"],
        [
            "checkpoint/step-N/",
            "weights and optimizer as safetensors, to resume, evaluate or use elsewhere"
        ]
    ];

    function folder(run) {
        return el(
            "section", {id: "files"}, el("h2", {}, "Files"),
            el("p", {}, "Files that a run writes to its folder, ", el("code", {}, run.folder), "."),
            el("div", {class: "card"}, list(files)));
    }

    return {plan, config, environment, folder};
})();
