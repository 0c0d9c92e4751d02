// One forward pass: every intermediate goes through `keep`, which records it and makes the changes that were asked for.

import { countOf, tensor } from "./tensor.js";

/** The operations of each kind of entry; other kinds cannot be changed. */
const OPS = {
  embedding: ["off"],
  positions: ["off"],
  head: ["off"],
  context: ["off"],
  layer: ["off"],
  residual: ["off"],
  gate: ["set", "off"],
  weights: ["set", "off"],
  state: ["freeze", "set"],
};

export class Pass {
  /**
   * Changes are `{name, op, index, value}`; with `parts` blocks also record scores element by element, with `lastOnly`
   * the head of a model that generates reads the last token alone.
   * `side` is the text that is read now, `source` or `target`; `first` is the position of its first token.
   */
  constructor(changes = [], { parts = false, lastOnly = false } = {}) {
    this.entries = [];
    this.switches = []; // layers and residual connections: what can be switched off and has no values of its own
    this.changes = changes;
    this.parts = parts;
    this.lastOnly = lastOnly;
    this.prefix = "";
    this.group = null;
    this.side = "source";
    this.first = 0;
  }

  /** Run a function for one of several sentences or choices; its entries are named after it. */
  within(groups, number, run) {
    this.prefix = `${groups}.${number}.`;
    this.group = number;
    const result = run();
    this.prefix = "";
    this.group = null;
    return result;
  }

  /** Read the text of one side, from position `first`. */
  reading(side, first, run) {
    const before = [this.side, this.first];
    [this.side, this.first] = [side, first];
    const result = run();
    [this.side, this.first] = before;
    return result;
  }

  changesOf(name) {
    return this.changes.filter((change) => change.name === name || change.name === this.prefix + name);
  }

  /** Whether a layer or a residual connection is switched off. */
  isOff(name, kind) {
    this.switches.push({ name, kind, shape: [], axes: [] });
    return this.changesOf(name).some((change) => change.op === "off");
  }

  /** Record a tensor and return it, changed if a change names it. */
  keep(name, values, about) {
    const changed = change(this.changesOf(name), values, about, this.first);
    this.record(name, changed, about);
    return changed;
  }

  /** Record a tensor row by row, where each step depends on the one before. */
  steps(name, count, isReversed = false) {
    return new Steps(this, name, count, isReversed);
  }

  record(name, { shape, data }, about) {
    const { kind, axes, equation, source, paper, side = this.side, keySide = side, ops = OPS[kind] ?? [] } = about;
    const layer = name.match(/(?:^|\.)layers\.(\d+)(?:\.|$)/);
    this.entries.push({
      name: this.prefix + name,
      layer: layer ? Number(layer[1]) : null,
      kind,
      shape,
      axes,
      data,
      side,
      keySide,
      first: this.first,
      group: this.group,
      equation,
      source,
      paper,
      ops,
    });
  }

  /** What can be changed, from the entries of a pass. */
  changeable() {
    const lengths = ["tokens", "queries", "keys"];
    const entries = this.entries.filter((entry) => entry.ops.length && !entry.group);
    const changeable = [...entries, ...this.switches].map(({ name, kind, shape, axes, group, ops = OPS[kind] }) => {
      const path = group === null || group === undefined ? name : name.replace(/^\w+\.\d+\./, "");
      const sizes = shape.map((size, axis) => (lengths.includes(axes[axis]) ? null : size));
      return { name: path, kind, label: labelOf(path), shape: sizes, axes, ops };
    });
    return changeable.filter((each, number) => changeable.findIndex(({ name }) => name === each.name) === number);
  }
}

/** `decoder.layers.0.cross_attention.heads` to "decoder, layer 1, cross attention: heads". */
function labelOf(path) {
  const counted = path.replace(/layers\.(\d+)/g, (_, number) => `layer ${Number(number) + 1}`);
  const words = counted.replaceAll("_", " ").split(".");
  const what = words.pop();
  return words.length ? `${words.join(", ")}: ${what}` : what;
}

/** The steps of a loop over time, in the order of the tokens or, `isReversed`, against it. */
class Steps {
  constructor(pass, name, count, isReversed) {
    Object.assign(this, { pass, name, count, isReversed, tensors: new Map() });
  }

  /** Record the values of step t; `previous` are those of the step before, which a frozen state keeps. */
  keep(what, t, values, about, previous = null) {
    const name = `${this.name}.${what}`;
    const axis = about.axes[0] === "heads" ? 1 : 0; // a recurrent decoder has one head
    const front = Array(axis).fill(1);
    const changes = this.pass.changesOf(name);
    const row = tensor([...front, 1, ...values.shape], values.data);
    const isFrozen = previous && changes.some((each) => each.op === "freeze" && this.isAfter(t, each.index?.[0]));
    const changed = isFrozen ? previous : change(changes, row, about, this.pass.first + t);
    if (!this.tensors.has(name)) {
      const whole = tensor([...front, this.count, ...values.shape]);
      this.tensors.set(name, whole);
      this.pass.record(name, whole, about);
    }
    this.tensors.get(name).data.set(changed.data, t * countOf(values.shape));
    return tensor(values.shape, changed.data);
  }

  isAfter(t, start) {
    if (start === null || start === undefined) return true;
    const position = this.pass.first + t;
    return this.isReversed ? position <= start : position >= start;
  }
}

/**
 * Values after the changes `off` and `set`; `first` is the position of the first row along `tokens` or `queries`.
 * Weights of hidden keys stay zero: `isVisible(query, key)` tells them by their positions.
 */
function change(changes, values, { kind, axes, isVisible = () => true }, first) {
  const made = changes.filter(({ op }) => op !== "freeze");
  if (made.length === 0) return values;
  const changed = tensor(values.shape, values.data.slice());
  const forced = new Set();
  const timeAxis = axes.findIndex((axis) => axis === "tokens" || axis === "queries");
  for (const { op, index = [], value = 0 } of made) {
    const shifted = index.map((each, axis) => (each !== null && axis === timeAxis ? each - first : each));
    for (const offset of offsets(values.shape, shifted)) {
      const row = Math.floor(offset / values.shape.at(-1));
      if (kind === "weights" && !isVisible((row % values.shape.at(-2)) + first, offset % values.shape.at(-1))) continue;
      changed.data[offset] = op === "off" ? 0 : value;
      forced.add(offset);
    }
  }
  if (kind === "weights" || kind === "shares") keepSums(changed, forced);
  return changed;
}

/** The places of a tensor that an index selects; `null` or a missing number selects all of its axis. */
function* offsets(shape, index, axis = 0, start = 0) {
  if (axis === shape.length) {
    yield start;
    return;
  }
  for (let i = 0; i < shape[axis]; i++) {
    if ((index[axis] ?? i) === i) yield* offsets(shape, index, axis + 1, start * shape[axis] + i);
  }
}

/** Scale the other weights of each row so that it sums to one again; if there are none, the forced ones. */
function keepSums(weights, forced) {
  const width = weights.shape.at(-1);
  for (let start = 0; start < weights.data.length; start += width) {
    const row = Array.from({ length: width }, (_, i) => start + i);
    const sumOf = (places) => places.reduce((sum, place) => sum + weights.data[place], 0);
    const isForced = (place) => forced.has(place);
    const fixed = row.filter(isForced);
    const others = row.filter((place) => !isForced(place));
    if (fixed.length === 0) continue;
    const [fixedSum, otherSum] = [sumOf(fixed), sumOf(others)];
    const left = Math.max(0, 1 - fixedSum);
    for (const place of others) weights.data[place] *= otherSum > 0 ? left / otherSum : 0;
    const isAll = fixedSum > 0 && (otherSum === 0 || fixedSum > 1);
    for (const place of fixed) weights.data[place] /= isAll ? fixedSum : 1;
  }
}
