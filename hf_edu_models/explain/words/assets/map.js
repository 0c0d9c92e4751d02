"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const canvas = document.getElementById("map"), context = canvas.getContext("2d");
const view = { x: 0, y: 0, zoom: 1 };
let chosen = -1;
document.title = data.heading;
document.getElementById("title").textContent = data.heading;
document.getElementById("note").textContent = data.note;
for (const each of data.words) {
  const option = document.createElement("option");
  option.value = each.word;
  document.getElementById("words").append(option);
}

function scale() { return Math.min(canvas.clientWidth, canvas.clientHeight) * 0.86 * view.zoom; }
function place(each) {
  return [canvas.clientWidth / 2 + (each.x - view.x) * scale(), canvas.clientHeight / 2 + (each.y - view.y) * scale()];
}

// A label is drawn where no earlier one is: those of frequent words first, more of them the closer one looks.
function draw() {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.font = "13px system-ui, sans-serif";
  context.textBaseline = "middle";
  const ink = getComputedStyle(document.body).color, taken = [];
  const near = chosen < 0 ? new Set() : new Set(data.words[chosen].near.map(([word]) => word));
  const order = data.words.map((_, n) => n);
  if (chosen >= 0) order.sort((a, b) => rank(a) - rank(b));
  function rank(n) { return n === chosen ? -2 : near.has(data.words[n].word) ? -1 : n; }
  for (const n of order) {
    const each = data.words[n], [x, y] = place(each);
    if (x < -99 || y < -9 || x > width + 9 || y > height + 9) continue;
    const marked = n === chosen || near.has(each.word);
    context.globalAlpha = chosen >= 0 && !marked ? 0.45 : 1;
    context.fillStyle = each.colour;
    context.beginPath();
    context.arc(x, y, marked ? 4.5 : 3, 0, 7);
    context.fill();
    const size = context.measureText(each.word).width, box = [x + 6, y - 8, x + 8 + size, y + 8];
    if (taken.some((other) => box[0] < other[2] && box[2] > other[0] && box[1] < other[3] && box[3] > other[1])) continue;
    taken.push(box);
    context.fillStyle = ink;
    context.fillText(each.word, x + 7, y);
  }
  context.globalAlpha = 1;
}

function zoom(factor, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
  const before = scale();
  view.zoom = Math.min(60, Math.max(0.5, view.zoom * factor));
  const change = 1 / before - 1 / scale();
  view.x += (x - canvas.clientWidth / 2) * change;
  view.y += (y - canvas.clientHeight / 2) * change;
  draw();
}

function choose(n) {
  chosen = n;
  if (n >= 0) {
    const near = data.words[n].near.map(([word, cosine]) => `${word} ${cosine.toFixed(2)}`);
    document.getElementById("near").textContent = `${data.words[n].word}: ${near.join(", ")}`;
  }
  draw();
}

const pointers = new Map();
let moved = 0;
canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  pointers.set(event.pointerId, [event.offsetX, event.offsetY]);
  moved = 0;
});
canvas.addEventListener("pointermove", (event) => {
  const last = pointers.get(event.pointerId);
  if (!last) return;
  const [dx, dy] = [event.offsetX - last[0], event.offsetY - last[1]];
  moved += Math.abs(dx) + Math.abs(dy);
  if (pointers.size === 2) {
    const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
    const length = (point) => Math.hypot(point[0] - other[0], point[1] - other[1]);
    zoom(length([event.offsetX, event.offsetY]) / Math.max(length(last), 1), other[0], other[1]);
  } else {
    view.x -= dx / scale();
    view.y -= dy / scale();
    draw();
  }
  pointers.set(event.pointerId, [event.offsetX, event.offsetY]);
});
canvas.addEventListener("pointerup", (event) => {
  pointers.delete(event.pointerId);
  if (moved > 6) return;
  let best = -1, shortest = 900;
  data.words.forEach((each, n) => {
    const [x, y] = place(each), distance = (x - event.offsetX) ** 2 + (y - event.offsetY) ** 2;
    if (distance < shortest) [best, shortest] = [n, distance];
  });
  choose(best);
});
canvas.addEventListener("pointercancel", (event) => pointers.delete(event.pointerId));
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  zoom(Math.exp(-event.deltaY / 400), event.offsetX, event.offsetY);
}, { passive: false });
canvas.addEventListener("keydown", (event) => {
  const step = 40 / scale(), moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
  if (event.key === "+" || event.key === "=") zoom(1.3);
  else if (event.key === "-") zoom(1 / 1.3);
  else if (moves[event.key]) {
    view.x += moves[event.key][0];
    view.y += moves[event.key][1];
    draw();
  } else return;
  event.preventDefault();
});
document.getElementById("in").addEventListener("click", () => zoom(1.5));
document.getElementById("out").addEventListener("click", () => zoom(1 / 1.5));
document.getElementById("reset").addEventListener("click", () => {
  Object.assign(view, { x: 0, y: 0, zoom: 1 });
  choose(-1);
});
document.getElementById("find").addEventListener("input", (event) => {
  const found = data.words.findIndex((each) => each.word === event.target.value.trim());
  if (found < 0) return;
  Object.assign(view, { x: data.words[found].x, y: data.words[found].y, zoom: Math.max(view.zoom, 3) });
  choose(found);
});
window.addEventListener("resize", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
draw();
