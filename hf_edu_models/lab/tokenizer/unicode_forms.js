// NFC, NFD, NFKC and NFKD with alignment: which characters of the input each character of the output came from.
//
// JavaScript normalises strings but does not say what came from where, so the algorithm of Unicode (UAX #15) runs here,
// with JavaScript's normalisation of one or two characters as its table. Changes are those of NormalizedText.transform.

import { isCombiningMark } from "./unicode.js";

// A mark's combining class is not known to JavaScript, but it sorts marks by it.
const comesAfter = (first, second) => (first + second).normalize("NFD") !== first + second;
const [LOWEST, HIGHEST] = ["\u0334", "\u0345"];
const starters = new Map();

function isStarter(character) {
  if (character < "\u0300" || !isCombiningMark(character)) return true;
  let known = starters.get(character);
  if (known === undefined) {
    known = !comesAfter(HIGHEST, character) && !comesAfter(character, LOWEST);
    starters.set(character, known);
  }
  return known;
}

function compose(first, second) {
  const composed = (first + second).normalize("NFC");
  return [...composed].length === 1 ? composed : null;
}

export function decompose(characters, form) {
  const changes = [];
  let marks = [];
  const sortMarks = () => {
    for (let i = 1; i < marks.length; i++) {
      for (let j = i; j > 0 && comesAfter(marks[j - 1][0], marks[j][0]); j--) [marks[j - 1], marks[j]] = [marks[j], marks[j - 1]];
    }
    changes.push(...marks);
    marks = [];
  };
  for (const character of characters) {
    [...character.normalize(form)].forEach((part, i) => {
      if (isStarter(part)) {
        sortMarks();
        changes.push([part, i ? 1 : 0]);
      } else marks.push([part, i ? 1 : 0]);
    });
  }
  sortMarks();
  return changes;
}

export function recompose(decomposed) {
  const changes = [];
  let base = null; // the starter that marks may join
  let waiting = []; // marks behind it that did not
  const flush = () => {
    if (base) changes.push(base);
    changes.push(...waiting);
    waiting = [];
  };
  for (const [character, change] of decomposed) {
    const starts = isStarter(character);
    if (!base) {
      if (starts) base = [character, change];
      else changes.push([character, change]);
      continue;
    }
    // A mark of the same or a higher class in between blocks the base.
    const isBlocked = waiting.length && (starts || !comesAfter(character, waiting.at(-1)[0]));
    const composed = isBlocked ? null : compose(base[0], character);
    if (composed) base = [composed, base[1] + change - 1];
    else if (starts) {
      flush();
      base = [character, change];
    } else waiting.push([character, change]);
  }
  flush();
  return changes;
}

export function normalise(text, form) {
  const string = text.text;
  if (string.normalize(form) === string) return text;
  const decomposed = decompose(text.characters, form.includes("K") ? "NFKD" : "NFD");
  return text.transform(form.endsWith("C") ? recompose(decomposed) : decomposed);
}
