// look.js -- what the browser test asks of a page; put in front of each of its questions.
const all = (css) => [...document.querySelectorAll(css)];
const text = (css) => (document.querySelector(css) || {textContent: "(none)"}).textContent;

// Pixels of a canvas that have a colour: axes, grid and text are grey.
function colored(canvas) {
    const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let n = 0;
    for (let i = 0; i < data.length; i += 4) {
        const r = data[i], g = data[i + 1], b = data[i + 2];
        if (data[i + 3] > 100 && (Math.abs(r - g) > 40 || Math.abs(g - b) > 40)) n++;
    }
    return n;
}

// A number that changes when the picture does.
function print(canvas) {
    const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const pixels = new Int32Array(data.buffer);
    let h = canvas.width * 31 + canvas.height;
    for (let i = 0; i < pixels.length; i++) h = (Math.imul(h, 33) ^ pixels[i]) | 0;
    return h;
}

// Charts without a line, rows without a bar. Where all weights were the newest, the picture of
// them is grey: painted at all is what counts there.
function empty() {
    const painted = (c) => c.getContext("2d").getImageData(c.width / 2, 4, 1, 1).data[3] > 0;
    return [
        ...all("#curves canvas, #timeline canvas").filter((c) => colored(c) < 60),
        ...all("#versions canvas").filter((c) => c.width < 50 || !painted(c)),
        ...all(".bars").filter((b) => !b.querySelector(".bar i[style*=width]")),
        ...all("section").filter((s) => s.textContent.length < 30),
    ].map((node) => `${node.tagName} in ${(node.closest("section") || {}).id}`);
}

// What is cut off or sticks out, except where it is meant to be scrolled or shortened.
function overflowing() {
    const free = (node) => {
        for (let n = node; n && n !== document.body; n = n.parentElement) {
            if (getComputedStyle(n).overflowX !== "visible") return false;
        }
        return true;
    };
    const wide = document.documentElement.clientWidth;
    return all("body *").filter((node) => node.getClientRects().length && free(node))
        .filter((node) => node.getBoundingClientRect().right > wide + 1 ||
            (node.clientWidth && node.scrollWidth > node.clientWidth + 1))
        .map((node) => `${node.tagName}.${node.className} "${node.textContent.slice(0, 30)}"`);
}
