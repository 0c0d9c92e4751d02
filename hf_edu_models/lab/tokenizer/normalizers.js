// Normalizers of tokenizer.json: each makes a function NormalizedText -> NormalizedText.

import { isCombiningMark, isControl, isIdeograph, isNonspacingMark, isSpace } from "./unicode.js";
import { normalise } from "./unicode_forms.js";
import { toPattern } from "./patterns.js";

const lowercase = (text) => text.map((character) => character.toLowerCase());
const form = (name) => () => (text) => normalise(text, name);

function bertNormalizer({ clean_text: cleans, handle_chinese_chars: spaces, strip_accents: strips, lowercase: lowers }) {
  const steps = [];
  if (cleans) steps.push((text) => text.filter((character) => !isControl(character)).map((character) => (isSpace(character) ? " " : character)));
  if (spaces) steps.push((text) => text.transform(text.characters.flatMap((character) => (isIdeograph(character) ? [[" ", 0], [character, 1], [" ", 1]] : [[character, 0]]))));
  if (strips ?? lowers) steps.push((text) => normalise(text, "NFD").filter((character) => !isNonspacingMark(character)));
  if (lowers) steps.push(lowercase);
  return (text) => steps.reduce((result, step) => step(result), text);
}

function strip({ strip_left: left, strip_right: right }) {
  return (text) => {
    let from = 0;
    let to = text.length;
    while (left && from < to && isSpace(text.characters[from])) from++;
    while (right && to > from && isSpace(text.characters[to - 1])) to--;
    return from || to < text.length ? Object.assign(text.slice(from, to), { begin: text.begin }) : text;
  };
}

export const NORMALIZERS = {
  Sequence: ({ normalizers }) => {
    const steps = normalizers.map(makeNormalizer);
    return (text) => steps.reduce((result, step) => step(result), text);
  },
  NFC: form("NFC"),
  NFD: form("NFD"),
  NFKC: form("NFKC"),
  NFKD: form("NFKD"),
  Lowercase: () => lowercase,
  StripAccents: () => (text) => text.filter((character) => !isCombiningMark(character)),
  Strip: strip,
  Prepend: ({ prepend }) => (text) => text.prepend(prepend),
  Replace: ({ pattern, content }) => (text) => text.replace(toPattern(pattern), content),
  BertNormalizer: bertNormalizer,
};

export function makeNormalizer(part) {
  if (!part) return (text) => text;
  if (!NORMALIZERS[part.type]) throw new Error(`the lab has no normalizer ${part.type}`);
  return NORMALIZERS[part.type](part);
}
