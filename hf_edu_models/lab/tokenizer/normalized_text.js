// A text that remembers, for each of its characters, which characters of the original text it came from.
//
// Normalizers and pre-tokenizers change the text; offsets always count characters (code points) of the original.

export class NormalizedText {
  // characters: an array of code points; character i came from original[starts[i]] to original[ends[i]].
  constructor(characters, starts, ends, begin = 0) {
    Object.assign(this, { characters, starts, ends, begin });
  }

  static of(text) {
    const characters = [...text];
    return new NormalizedText(characters, characters.map((_, i) => i), characters.map((_, i) => i + 1));
  }

  get length() {
    return this.characters.length;
  }

  get text() {
    return this.characters.join("");
  }

  slice(from, to) {
    const begin = to > from ? this.starts[from] : this.begin;
    return new NormalizedText(this.characters.slice(from, to), this.starts.slice(from, to), this.ends.slice(from, to), begin);
  }

  // Offsets in the original text of characters from..to.
  offsets(from, to) {
    return to > from ? [this.starts[from], this.ends[to - 1]] : [from, to];
  }

  // The new characters as [character, change]: change 0 replaces a character, 1 is inserted behind the one before it,
  // and -n replaces one and removes the n that follow.
  transform(changes) {
    const starts = [];
    const ends = [];
    let position = 0;
    for (const [, change] of changes) {
      const source = change > 0 ? position - 1 : position;
      starts.push(source < 0 ? this.begin : this.starts[source]);
      ends.push(source < 0 ? this.begin : this.ends[source]);
      if (change <= 0) position += 1 - change;
    }
    return new NormalizedText(changes.map(([character]) => character), starts, ends, this.begin);
  }

  // Each character becomes those of a string; none removes it.
  map(replace) {
    const parts = this.characters.map((character) => [...replace(character)]);
    const spread = (values) => parts.flatMap((part, i) => part.map(() => values[i]));
    return new NormalizedText(parts.flat(), spread(this.starts), spread(this.ends), this.begin);
  }

  filter(isKept) {
    return this.map((character) => (isKept(character) ? character : ""));
  }

  prepend(string) {
    if (!this.length) return this;
    return this.replaceRange(0, 0, string, 0);
  }

  // Put a string in place of characters from..to; it counts as what character `source` was.
  replaceRange(from, to, string, source) {
    const inserted = [...string];
    const splice = (values, added) => [...values.slice(0, from), ...added, ...values.slice(to)];
    const start = source < 0 ? this.begin : this.starts[source];
    const end = source < 0 ? this.begin : this.ends[source];
    return new NormalizedText(
      splice(this.characters, inserted), splice(this.starts, inserted.map(() => start)), splice(this.ends, inserted.map(() => end)), this.begin,
    );
  }

  replace(pattern, string) {
    return this.matches(pattern).filter(({ isMatch }) => isMatch).reverse()
      .reduce((text, { from, to }) => text.replaceRange(from, to, string, to - 1), this);
  }

  // The whole text as consecutive parts {from, to, isMatch}.
  matches(pattern) {
    const { text } = this;
    const position = characterPositions(text);
    const parts = [];
    let done = 0;
    for (const match of text.matchAll(pattern)) {
      if (!match[0]) continue;
      const from = position[match.index];
      const to = position[match.index + match[0].length];
      if (done < from) parts.push({ from: done, to: from, isMatch: false });
      parts.push({ from, to, isMatch: true });
      done = to;
    }
    if (done < this.length) parts.push({ from: done, to: this.length, isMatch: false });
    return parts;
  }

  // behavior: what becomes of the matches, by the names that tokenizer.json uses.
  split(pattern, behavior, invert = false) {
    const parts = this.matches(pattern).map((part) => ({ ...part, isMatch: part.isMatch !== invert }));
    return JOINS[behavior](parts).map(({ from, to }) => this.slice(from, to));
  }
}

// Index in UTF-16 units to index in characters.
function characterPositions(text) {
  const positions = new Uint32Array(text.length + 1);
  let unit = 0;
  let count = 0;
  for (const character of text) {
    positions[unit] = count++;
    unit += character.length;
  }
  positions[text.length] = count;
  return positions;
}

function joinIf(parts, isJoined) {
  const joined = [];
  let previous = false;
  for (const part of parts) {
    if (joined.length && isJoined(part.isMatch, previous)) joined.at(-1).to = part.to;
    else joined.push({ ...part });
    previous = part.isMatch;
  }
  return joined;
}

function joinNext(parts) {
  const joined = [];
  let previous = false;
  for (const part of [...parts].reverse()) {
    if (joined.length && part.isMatch && !previous) joined.at(-1).from = part.from;
    else joined.push({ ...part });
    previous = part.isMatch;
  }
  return joined.reverse();
}

const JOINS = {
  Isolated: (parts) => parts,
  Removed: (parts) => parts.filter(({ isMatch }) => !isMatch),
  MergedWithPrevious: (parts) => joinIf(parts, (isMatch, previous) => isMatch && !previous),
  MergedWithNext: joinNext,
  Contiguous: (parts) => joinIf(parts, (isMatch, previous) => isMatch === previous),
};
