// format.js -- readable numbers: few digits, a unit, never a bare 0.000012.
const Format = (() => {
    "use strict";
    const none = "\u2013";
    const is = (x) => typeof x === "number" && Number.isFinite(x);

    // n significant digits, with thousands separated.
    function number(x, n = 4) {
        if (!is(x)) return none;
        if (x !== 0 && (Math.abs(x) < 1e-4 || Math.abs(x) >= 1e15))
            return x.toExponential(Math.max(0, n - 2));
        return x.toLocaleString("en-US", {maximumSignificantDigits: n});
    }

    const whole = (x) => (is(x) ? Math.round(x).toLocaleString("en-US") : none);

    // Uses the largest unit in which the value is at least 1.
    function scaled(x, steps, n) {
        if (!is(x)) return none;
        const size = Math.abs(x);
        const [least, unit] = steps.find(([s]) => size >= s) || steps[steps.length - 1];
        return `${number(x / least, n)} ${unit}`;
    }

    const short = [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
    const count = (x, n = 3) => scaled(x, short, n).trim();
    const bytes = (x) =>
        scaled(x, [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]], 3);

    function seconds(x, n = 3) {
        if (is(x) && Math.abs(x) >= 100) {
            const s = Math.round(x);
            const two = (v) => String(v).padStart(2, "0");
            const minutes = `${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`;
            return s >= 3600 ? `${Math.floor(s / 3600)}:${minutes} h`
                             : `${Math.floor(s / 60)}:${two(s % 60)} min`;
        }
        if (x === 0) return "0 s";
        return scaled(x, [[1, "s"], [1e-3, "ms"], [1e-6, "\u00b5s"], [1e-9, "ns"]], n);
    }

    const percent = (x, n = 1) => (is(x) ? `${(100 * x).toFixed(n)} %` : none);
    const signed = (x, f) =>
        (is(x) ? (x > 0       ? "+"
                      : x < 0 ? "\u2212"
                              : "") +
                 f(Math.abs(x))
               : none);
    const plural = (n, word, words = `${word}s`) => `${whole(n)} ${n === 1 ? word : words}`;

    /* --- axes --- */

    // About n round numbers in [low, high].
    function ticks(low, high, n) {
        if (!(high > low)) return [low];
        const raw = (high - low) / Math.max(1, n);
        const power = 10 ** Math.floor(Math.log10(raw));
        const step = [1, 2, 5, 10].find((m) => m * power >= raw) * power;
        const out = [];
        // Multiplied, not summed: the sum of thirty times 0.1 is not 3.
        for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++)
            out.push(k * step || 0);  // never -0
        return out;
    }

    function logTicks(low, high, n) {
        const decades = Math.log10(high / low);
        const marks = decades > n ? [1] : decades > n / 3 ? [1, 3] : [1, 2, 3, 5, 7];
        const out = [];
        for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); p++) {
            for (const m of marks) {
                const v = m * 10 ** p;
                if (v >= low * 0.9999 && v <= high * 1.0001) out.push(v);
            }
        }
        return out.length > 1 ? out : ticks(low, high, n);
    }

    // Texts of the ticks: show(value, significant digits, distance of two ticks), with the fewest
    // digits that are exact.
    function labels(values, show) {
        const step = values.length > 1 ? Math.abs(values[1] - values[0]) : Math.abs(values[0]);
        const exact = (n) =>
            values.every((v) => Math.abs(v - Number(v.toPrecision(n))) < 1e-3 * step);
        let n = 1;
        while (n < 12 && !exact(n)) n++;
        return values.map((v) => show(v, n, step));
    }

    return {
        none, is, number, whole, count, bytes, seconds, percent, signed, plural, ticks, logTicks,
        labels,
    };
})();
