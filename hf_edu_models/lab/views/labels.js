// Names of what a record holds, for readers: entries, the places along their axes, tokens.

const VISIBLE = { " ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍", "\u00a0": "␣" };
const ESCAPED = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cn}\p{Co}\ufffd]/gu;
const isJoiner = (character) => character === "\u200d" || character === "\u200c";

// A token as a reader sees it: no invisible character, and no space in front of a word.
export function visible(text) {
  const word = text.length > 1 && text.startsWith(" ") && text.trim() ? text.slice(1) : text;
  const shown = word.replace(/[ \n\t\r\u00a0]/g, (character) => VISIBLE[character]);
  return shown.replace(ESCAPED, (character) => (isJoiner(character) && shown.length > 1 ? character : `\\u${character.codePointAt(0).toString(16).padStart(4, "0")}`)) || "∅";
}

// The direction of a text is that of its first letter.
const RIGHT_TO_LEFT = /^\P{L}*[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;
export const directionOf = (text) => (RIGHT_TO_LEFT.test(text) ? "rtl" : "ltr");

// `decoder.layers.0.cross_attention.weights` to "decoder, layer 1, cross attention: weights".
export function titleOf(name) {
  const words = name.replace(/\b(layers|sentences|choices)\.(\d+)/g, (_, what, number) => `${what.slice(0, -1)} ${Number(number) + 1}`).replaceAll("_", " ").split(".");
  const what = words.pop();
  return words.length ? `${words.join(", ")}: ${what}` : what;
}

// The names of the places along one axis of an entry.
export function labelsOf(analysis, entry, axis) {
  const length = entry.shape[entry.axes.indexOf(axis)];
  const numbered = (word) => Array.from({ length }, (_, i) => (word ? `${word} ${i + 1}` : String(i)));
  if (axis === "heads") return numbered("head");
  if (axis === "labels") return numbered().map((i) => analysis.labels[i] ?? i);
  if (axis === "sentences" || axis === "layers" || axis === "choices") return numbered(axis.slice(0, -1));
  if (!["tokens", "queries", "keys"].includes(axis)) return numbered();
  const side = axis === "keys" ? entry.keySide : entry.side;
  const isCross = axis === "queries" && entry.side === "target" && entry.keySide === "source";
  const tokens = analysis.tokensOf(side, entry.group, isCross).map(({ text }) => text);
  return tokens.length === length ? tokens : numbered(axis.slice(0, -1));
}

// Values of an entry at fixed places of some axes, with the sizes of the others: {values, shape}.
export function slice(entry, fixed) {
  const kept = entry.axes.map((axis, i) => [axis, i]).filter(([axis]) => fixed[axis] === undefined);
  const strides = entry.shape.map((_, i) => entry.shape.slice(i + 1).reduce((product, size) => product * size, 1));
  const start = entry.axes.reduce((sum, axis, i) => sum + (fixed[axis] ?? 0) * strides[i], 0);
  const shape = kept.map(([, i]) => entry.shape[i]);
  const values = new Float32Array(shape.reduce((product, size) => product * size, 1));
  for (let place = 0; place < values.length; place++) {
    let [rest, offset] = [place, start];
    for (let axis = kept.length - 1; axis >= 0; axis--) {
      offset += (rest % shape[axis]) * strides[kept[axis][1]];
      rest = Math.floor(rest / shape[axis]);
    }
    values[place] = entry.data[offset];
  }
  return { values, shape };
}

export function describeChange(change, changeable) {
  const about = changeable.find(({ name }) => name === change.name);
  const index = change.index ?? [];
  const word = { heads: "head", queries: "step", tokens: "step", keys: "key", units: "unit" };
  const places = index.map((place, axis) => (place === null || place === undefined ? "" : `${word[about?.axes[axis]] ?? "place"} ${about?.axes[axis] === "units" ? place : place + 1}`)).filter(Boolean);
  const what = change.op === "off" ? "switched off" : change.op === "freeze" ? "frozen" : `set to ${change.value}`;
  const from = change.op === "freeze" ? (index.length ? ` from step ${index[0] + 1}` : "") : places.length ? `, ${places.join(", ")}` : "";
  return `${titleOf(change.name)}${change.op === "freeze" ? "" : from} ${what}${change.op === "freeze" ? from : ""}`;
}
