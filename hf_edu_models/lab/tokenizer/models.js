// The four models of tokenizer.json. Each has `vocab` (Map of token to id) and `tokenize(characters)`: a word's tokens as
// {id, token, from, to}, where from..to count the word's characters.

import { bytesOf } from "./byte_level.js";

const toMap = (vocab) => new Map(Array.isArray(vocab) ? vocab.map(([token], id) => [token, id]) : Object.entries(vocab));
const byteTokens = (text) => Array.from(bytesOf(text), (byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`);

// A word is a token, or unknown.
class WordLevel {
  constructor({ vocab, unk_token: unk }) {
    Object.assign(this, { vocab: toMap(vocab), unk });
  }

  tokenize(characters) {
    const word = characters.join("");
    const token = this.vocab.has(word) ? word : this.unk;
    return [{ id: this.vocab.get(token), token, from: 0, to: characters.length }];
  }
}

// The longest subword that the vocabulary has, again and again (Devlin et al. 2019 use it; Wu et al. 2016).
class WordPiece {
  constructor({ vocab, unk_token: unk, continuing_subword_prefix: prefix, max_input_chars_per_word: limit }) {
    Object.assign(this, { vocab: toMap(vocab), unk, prefix: prefix ?? "##", limit: limit ?? 100 });
  }

  tokenize(characters) {
    const unknown = [{ id: this.vocab.get(this.unk), token: this.unk, from: 0, to: characters.length }];
    if (characters.length > this.limit) return unknown;
    const tokens = [];
    let from = 0;
    while (from < characters.length) {
      let to = characters.length;
      let token;
      for (; to > from; to--) {
        token = (from ? this.prefix : "") + characters.slice(from, to).join("");
        if (this.vocab.has(token)) break;
      }
      if (to === from) return unknown;
      tokens.push({ id: this.vocab.get(token), token, from, to });
      from = to;
    }
    return tokens;
  }
}

// Byte pair encoding: the pair that was merged first in training is merged first (Sennrich et al. 2016, Section 3.2).
class BPE {
  constructor({ vocab, merges, unk_token: unk, continuing_subword_prefix: prefix, end_of_word_suffix: suffix, fuse_unk: fuses, byte_fallback: usesBytes, ignore_merges: ignoresMerges }) {
    Object.assign(this, { vocab: toMap(vocab), unk, prefix: prefix ?? "", suffix: suffix ?? "", fuses, usesBytes, ignoresMerges });
    this.ranks = new Map(merges.map((pair, rank) => [(Array.isArray(pair) ? pair : pair.split(" ")).join("\0"), rank]));
    this.cache = new Map();
  }

  tokenize(characters) {
    const word = characters.join("");
    if (this.ignoresMerges && this.vocab.has(word)) return [{ id: this.vocab.get(word), token: word, from: 0, to: characters.length }];
    let tokens = this.cache.get(word);
    if (!tokens) this.cache.set(word, (tokens = this.merge(this.letters(characters))));
    return tokens.map(({ token, from, to }) => ({ id: this.vocab.get(token), token, from, to }));
  }

  letters(characters) {
    const parts = [];
    let isAfterUnknown = false;
    characters.forEach((character, i) => {
      const token = (i ? this.prefix : "") + character + (i === characters.length - 1 ? this.suffix : "");
      const bytes = this.usesBytes ? byteTokens(token) : [];
      const isKnown = this.vocab.has(token);
      if (isKnown) parts.push({ token, from: i, to: i + 1 });
      else if (bytes.length && bytes.every((byte) => this.vocab.has(byte))) parts.push(...bytes.map((byte) => ({ token: byte, from: i, to: i + 1 })));
      else if (this.unk != null && this.fuses && isAfterUnknown) parts.at(-1).to = i + 1;
      else if (this.unk != null) parts.push({ token: this.unk, from: i, to: i + 1 });
      isAfterUnknown = !isKnown && parts.at(-1)?.token === this.unk;
    });
    return parts;
  }

  // Neighbours form a linked list; a heap of pairs by rank, then by position, keeps long words fast.
  merge(parts) {
    parts.forEach((part, i) => Object.assign(part, { before: parts[i - 1], after: parts[i + 1], at: i }));
    const heap = new Heap((one, other) => one.rank - other.rank || one.left.at - other.left.at);
    const offer = (left) => {
      const right = left?.after;
      const rank = right && this.ranks.get(`${left.token}\0${right.token}`);
      if (rank !== undefined) heap.push({ rank, left, right, texts: [left.token, right.token] });
    };
    parts.forEach(offer);
    while (heap.size) {
      const { left, right, texts } = heap.pop();
      const isOutdated = left.isGone || right.isGone || left.token !== texts[0] || right.token !== texts[1];
      if (isOutdated) continue;
      left.token += right.token.slice(this.prefix.length);
      left.to = right.to;
      left.after = right.after;
      if (right.after) right.after.before = left;
      right.isGone = true;
      offer(left.before);
      offer(left);
    }
    return parts.filter(({ isGone }) => !isGone);
  }
}

class Heap {
  constructor(compare) {
    Object.assign(this, { compare, items: [] });
  }

  get size() {
    return this.items.length;
  }

  push(item) {
    const { items, compare } = this;
    let i = items.push(item) - 1;
    while (i && compare(items[i], items[(i - 1) >> 1]) < 0) {
      [items[i], items[(i - 1) >> 1]] = [items[(i - 1) >> 1], items[i]];
      i = (i - 1) >> 1;
    }
  }

  pop() {
    const { items, compare } = this;
    const first = items[0];
    const last = items.pop();
    if (items.length) items[0] = last;
    for (let i = 0; ; ) {
      const child = [2 * i + 1, 2 * i + 2].filter((j) => j < items.length).sort((a, b) => compare(items[a], items[b]))[0];
      if (child === undefined || compare(items[i], items[child]) <= 0) return first;
      [items[i], items[child]] = [items[child], items[i]];
      i = child;
    }
  }
}

// The most probable segmentation, by Viterbi (Kudo 2018, Section 3.2).
class Unigram {
  constructor({ vocab, unk_id: unkId, byte_fallback: usesBytes }) {
    this.vocab = toMap(vocab);
    this.scores = vocab.map(([, score]) => score);
    this.unkScore = this.scores.reduce((least, score) => Math.min(least, score), Infinity) - 10;
    this.longest = vocab.reduce((most, [token]) => Math.max(most, [...token].length), 0);
    Object.assign(this, { unkId, usesBytes, unk: vocab[unkId]?.[0] });
  }

  tokenize(characters) {
    const tokens = [];
    for (const { from, to } of this.segment(characters)) {
      const token = characters.slice(from, to).join("");
      const bytes = this.usesBytes ? byteTokens(token) : [];
      if (this.vocab.has(token)) tokens.push({ id: this.vocab.get(token), token, from, to });
      else if (bytes.length && bytes.every((byte) => this.vocab.has(byte))) tokens.push(...bytes.map((byte) => ({ id: this.vocab.get(byte), token: byte, from, to })));
      else tokens.push({ id: this.unkId, token, from, to });
    }
    return tokens;
  }

  segment(characters) {
    const best = Array.from({ length: characters.length + 1 }, () => ({ score: 0, from: -1 }));
    const reach = (from, to, score, isUnknown) => {
      if (best[to].from < 0 || score > best[to].score) best[to] = { score, from, isUnknown };
    };
    for (let from = 0; from < characters.length; from++) {
      let token = "";
      let hasSingle = false;
      for (let to = from + 1; to <= Math.min(from + this.longest, characters.length); to++) {
        token += characters[to - 1];
        const id = this.vocab.get(token);
        if (id === undefined) continue;
        reach(from, to, this.scores[id] + best[from].score, id === this.unkId);
        hasSingle ||= to === from + 1;
      }
      if (!hasSingle) reach(from, from + 1, this.unkScore + best[from].score, true);
    }
    // Backwards from the end; neighbouring unknown characters are one token.
    const parts = [];
    for (let to = characters.length; to > 0; to = best[to].from) {
      const { from, isUnknown } = best[to];
      if (isUnknown && parts.at(-1)?.isUnknown) parts.at(-1).from = from;
      else parts.push({ from, to, isUnknown });
    }
    return parts.reverse();
  }
}

export const MODELS = { WordLevel, WordPiece, BPE, Unigram };

export function makeModel(part) {
  // Old files do not name the type: only BPE has merges, only Unigram a list.
  const type = part.type ?? (part.merges ? "BPE" : Array.isArray(part.vocab) ? "Unigram" : "WordPiece");
  if (!MODELS[type]) throw new Error(`the lab has no tokenizer model ${type}`);
  return new MODELS[type](part);
}
