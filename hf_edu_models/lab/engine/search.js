// From the probabilities of the next token to whole sequences: greedy search, sampling and beam search.

const IMPOSSIBLE = -1e9; // the score of a beam that does not exist, as in models/blocks_search.py
const SHOWN = 10; // the most likely tokens that a step lists
const MANY = 64; // from so many on, sorting all values is faster than keeping the best

/** log sum_j exp(x_j) */
function logSumExp(values) {
  const highest = values.reduce((a, b) => Math.max(a, b), -Infinity);
  let sum = 0;
  for (const value of values) sum += Math.exp(value - highest);
  return highest + Math.log(sum);
}

/** The places of the `count` largest values, largest first; of equal ones the first. */
function largest(values, count) {
  if (count > MANY) {
    const order = Array.from(values.keys()).sort((a, b) => values[b] - values[a] || a - b);
    return order.slice(0, count);
  }
  const best = [];
  for (let i = 0; i < values.length; i++) {
    if (best.length === count && !(values[i] > values[best[count - 1]])) continue;
    let place = best.length === count ? count - 1 : best.length;
    while (place > 0 && values[best[place - 1]] < values[i]) {
      best[place] = best[place - 1];
      place--;
    }
    best[place] = i;
  }
  return best;
}

/**
 * The most likely next tokens with their probabilities, softmax(logits / temperature), best first. With `topK` all
 * other tokens are impossible; with `count` so many are returned.
 */
export function nextTokens(logits, { temperature = 1, topK = null, count = logits.length } = {}) {
  const scaled = Float64Array.from(logits, (logit) => logit / temperature);
  const kept = topK === null ? null : largest(scaled, topK);
  const shift = logSumExp(kept ? kept.map((token) => scaled[token]) : scaled);
  const shown = kept ? kept.slice(0, count) : largest(scaled, count);
  return shown.map((token) => ({ token, probability: Math.exp(scaled[token] - shift) }));
}

/** The row of the last query of every attention of a pass that read the text that is generated. */
function attentionOf(pass, side) {
  return pass.entries
    .filter((entry) => entry.kind === "weights" && entry.side === side)
    .map(({ name, layer, shape: [heads, queries, keys], data, keySide }) => {
      const row = new Float32Array(heads * keys);
      for (let h = 0; h < heads; h++) {
        const start = (h * queries + queries - 1) * keys;
        row.set(data.subarray(start, start + keys), h * keys);
      }
      return { name, layer, shape: [heads, keys], axes: ["heads", "keys"], keySide, data: row };
    });
}

/** A model that has read some tokens: the logits of the next one, its state, and what it attended to. */
class Reader {
  constructor(head, state, newPass, position) {
    Object.assign(this, { head, state, newPass, position });
  }

  static start(head, inputs, prompt, newPass) {
    const state = head.start(inputs, newPass());
    return new Reader(head, state, newPass, 0).read(prompt);
  }

  /** The reader after more tokens; this one stays as it is, so that several beams may continue it. */
  read(tokens) {
    const pass = this.newPass();
    const [logits, state] = this.head.advance(tokens, this.state, pass);
    const next = new Reader(this.head, state, this.newPass, this.position + tokens.length);
    const side = pass.entries.at(-1).side; // that of the logits
    return Object.assign(next, { logits: logits.data.slice(), attention: attentionOf(pass, side) });
  }

  /** What a step shows that chose `token`. */
  stepFor(token, logProbability, { temperature, topK }) {
    const top = nextTokens(this.logits, { temperature: temperature || 1, topK, count: SHOWN });
    return { position: this.position, token, logProbability, top, attention: this.attention };
  }
}

/** Log-probabilities of the next token; end tokens are impossible before `minNewTokens`. */
function logProbabilitiesOf(reader, step, { ends, minNewTokens }) {
  const shift = logSumExp(reader.logits);
  const values = Float64Array.from(reader.logits, (logit) => logit - shift);
  if (step < minNewTokens) for (const end of ends) values[end] = -Infinity;
  return values;
}

/** Random numbers in [0, 1) from a seed: mulberry32. */
function randomNumbers(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let bits = Math.imul(state ^ (state >>> 15), state | 1);
    bits ^= bits + Math.imul(bits ^ (bits >>> 7), bits | 61);
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A token drawn by its probability, which is that of `nextTokens`. */
function sample(logProbabilities, { temperature, topK }, random) {
  const kept = topK === null ? Array.from(logProbabilities.keys()) : largest(logProbabilities, topK);
  const scaled = kept.map((token) => logProbabilities[token] / temperature);
  const shift = logSumExp(scaled);
  let left = random();
  const drawn = scaled.findIndex((value) => {
    left -= Math.exp(value - shift);
    return left < 0;
  });
  return kept[Math.max(drawn, 0)];
}

/** Choose the most likely token at every step or, with a temperature above 0, a random one by its probability. */
export function search(head, inputs, settings, newPass) {
  const random = randomNumbers(settings.seed);
  const steps = [];
  let score = 0;
  let reader = Reader.start(head, inputs, settings.prompt, newPass);
  while (steps.length < settings.maxNewTokens) {
    const values = logProbabilitiesOf(reader, steps.length, settings);
    const token = settings.temperature > 0 ? sample(values, settings, random) : largest(values, 1)[0];
    steps.push(reader.stepFor(token, values[token], settings));
    score += values[token];
    if (settings.ends.includes(token) || steps.length === settings.maxNewTokens) break;
    reader = reader.read([token]);
  }
  return { tokens: steps.map(({ token }) => token), steps, tree: null, score };
}

/**
 * Keep the `numBeams` most likely unfinished sequences, and as many of the best finished ones, as in
 * models/blocks_search.py: score(y) = log p(y) / |y|^lengthPenalty for a finished sequence y.
 */
export function beamSearch(head, inputs, settings, newPass) {
  const { numBeams, maxNewTokens, ends, lengthPenalty, earlyStopping } = settings;
  // Enough candidates that `numBeams` of them continue, even if every beam ends with every end token.
  const numCandidates = Math.max(2, 1 + ends.length) * numBeams;
  const first = Reader.start(head, inputs, settings.prompt, newPass);
  // All beams start alike: only the first one counts.
  const startOf = (beam) => ({ reader: first, score: beam === 0 ? 0 : IMPOSSIBLE, node: null });
  let beams = Array.from({ length: numBeams }, (_, beam) => startOf(beam));
  let finished = [];
  let isOpen = true;
  const tree = [];

  const addNode = (beam, token, score, step, isFinished) => {
    const { reader, node } = beam;
    const logProbability = score - beam.score;
    const added = { id: tree.length, parent: node, step, token, score, isFinished, isBest: false };
    tree.push({ ...added, shown: reader.stepFor(token, logProbability, settings) });
    return added.id;
  };

  for (let step = 0; step < maxNewTokens; step++) {
    const isLast = step + 1 === maxNewTokens;
    const candidates = bestCandidates(beams, numCandidates, (beam) => logProbabilitiesOf(beam.reader, step, settings));
    const hasEnded = ({ token }) => isLast || ends.includes(token);
    const penalised = candidates.map((each) => each.score + (hasEnded(each) ? IMPOSSIBLE : 0));
    const chosen = largest(penalised, numBeams).map((i) => ({ ...candidates[i], score: penalised[i] }));

    // A candidate below the best `numBeams` only stands by.
    const ended = candidates.slice(0, numBeams).filter((each) => hasEnded(each) && each.score > IMPOSSIBLE / 2);
    const isFull = earlyStopping === true && finished.length === numBeams;
    if (ended.length > 0 && isOpen && !isFull) {
      const length = (step + 1) ** lengthPenalty;
      const added = ended.map(({ parent, token, score }) => ({
        node: addNode(beams[parent], token, score, step, true),
        score: score / length,
      }));
      finished = [...finished, ...added].sort((a, b) => b.score - a.score).slice(0, numBeams);
    }
    if (finished.length > 0) isOpen = isOpen && canImprove(chosen[0].score, step + 1, finished, settings);
    const isDone = earlyStopping === true && finished.length === numBeams;
    if (isLast || (finished.length > 0 && (isDone || !isOpen))) break;

    beams = chosen.map(({ parent, token, score }) => {
      const beam = beams[parent];
      if (score < IMPOSSIBLE / 2) return { ...beam, score };
      const node = addNode(beam, token, score, step, false);
      return { reader: beam.reader.read([token]), score, node };
    });
  }

  const path = [];
  for (let id = finished[0].node; id !== null; id = tree[id].parent) path.unshift(tree[id]);
  for (const node of path) node.isBest = true;
  const steps = path.map(({ shown }) => shown);
  const nodes = tree.map(({ shown, ...node }) => node);
  return { tokens: path.map(({ token }) => token), steps, tree: nodes, score: finished[0].score };
}

/** The most likely continuations of all beams, best first. */
function bestCandidates(beams, count, logProbabilitiesOfBeam) {
  const vocabulary = beams[0].reader.logits.length;
  const totals = new Float64Array(beams.length * vocabulary);
  beams.forEach((beam, i) => {
    logProbabilitiesOfBeam(beam).forEach((value, token) => {
      totals[i * vocabulary + token] = value + beam.score;
    });
  });
  return largest(totals, Math.min(count, totals.length)).map((place) => ({
    parent: Math.floor(place / vocabulary),
    token: place % vocabulary,
    score: totals[place],
  }));
}

/**
 * Whether the best running beam could beat the worst finished one, if it ended now or, with `earlyStopping` "never", at
 * the length that suits it best.
 */
function canImprove(bestScore, length, finished, { numBeams, earlyStopping, lengthPenalty, maxNewTokens }) {
  const suited = earlyStopping === "never" && lengthPenalty > 0 ? maxNewTokens : length;
  const worst = finished.length === numBeams ? finished.at(-1).score : IMPOSSIBLE;
  return bestScore / suited ** lengthPenalty > worst;
}
