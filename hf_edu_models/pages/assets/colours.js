// Colour ramps of one hue for weights, of two for signed values, and heat maps drawn with them.

import { clamp, theme } from "./dom.js";

const RAMPS = {
  light: { weight: ["#ffffff", "#deebf7", "#9ecae1", "#4292c6", "#08519c", "#08306b"], sign: ["#8c3b00", "#f7f7f5", "#08519c"] },
  dark: { weight: ["#1a1e22", "#1f3a56", "#2a6299", "#4a98d8", "#9fd0f7", "#eaf5ff"], sign: ["#ffb574", "#23292e", "#84c4ff"] },
};

// Told apart with every colour vision (Okabe & Ito), then hues a golden angle apart.
const HEADS = {
  light: ["#0072b2", "#d55e00", "#00805d", "#b0578d", "#8a6d00", "#3a86c8", "#5b5b5b", "#7a3db8"],
  dark: ["#7fbdf5", "#ff9d5c", "#4fd3a9", "#f2a3d0", "#e8cf4d", "#b7d7ff", "#c9c9c9", "#c9a2ff"],
};

export function headColour(head) {
  const known = HEADS[theme()] ?? HEADS.light;
  return known[head] ?? `hsl(${Math.round(head * 137.5) % 360} 65% ${theme() === "dark" ? 70 : 38}%)`;
}

function table(stops) {
  const parse = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const colours = stops.map(parse);
  const out = new Uint32Array(256);
  for (let i = 0; i < 256; i++) {
    const stop = (i / 255) * (colours.length - 1);
    const low = Math.min(Math.floor(stop), colours.length - 2);
    const [r, g, b] = [0, 1, 2].map((c) => Math.round(colours[low][c] + (colours[low + 1][c] - colours[low][c]) * (stop - low)));
    out[i] = (255 << 24) | (b << 16) | (g << 8) | r;
  }
  return out;
}

const tables = {};
const palette = (kind) => (tables[theme() + kind] ??= table(RAMPS[theme()][kind]));

// One pixel for each value; the style sheet enlarges the canvas.
export function paint(canvas, values, rows, columns, low, high, kind) {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  const colours = palette(kind);
  const factor = 255 / (high - low || 1);
  for (let i = 0; i < values.length; i++) pixels[i] = colours[clamp(Math.round((values[i] - low) * factor), 0, 255)];
  context.putImageData(image, 0, 0);
}

export const largest = (values) => values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
