// Decoders of tokenizer.json: each makes a function that turns a list of tokens into a list of texts, to be joined.

import { byteValues, textOf } from "./byte_level.js";
import { toPattern } from "./patterns.js";

// Consecutive tokens <0xE2> <0x82> <0xAC> are the bytes of a text; each byte of an invalid one becomes U+FFFD.
function byteFallback(tokens) {
  const texts = [];
  let bytes = [];
  const flush = () => {
    if (!bytes.length) return;
    try {
      texts.push(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Uint8Array.from(bytes)));
    } catch {
      texts.push(...bytes.map(() => "\ufffd"));
    }
    bytes = [];
  };
  for (const token of tokens) {
    const byte = /^<0x([0-9A-Fa-f]{2})>$/.exec(token);
    if (byte) bytes.push(parseInt(byte[1], 16));
    else {
      flush();
      texts.push(token);
    }
  }
  flush();
  return texts;
}

function strip({ content, start, stop }) {
  return (tokens) => tokens.map((token) => {
    const characters = [...token];
    let from = 0;
    let to = characters.length;
    while (from < Math.min(start, to) && characters[from] === content) from++;
    while (characters.length - to < stop && to > from && characters[to - 1] === content) to--;
    return characters.slice(from, to).join("");
  });
}

function cleanUp(text) {
  const spaced = [[" .", "."], [" ?", "?"], [" !", "!"], [" ,", ","], [" ' ", "'"], [" n't", "n't"], [" 'm", "'m"], [" do not", " don't"], [" 's", "'s"], [" 've", "'ve"], [" 're", "'re"]];
  return spaced.reduce((result, [from, to]) => result.replaceAll(from, to), text);
}

function wordPiece({ prefix, cleanup: cleans }) {
  return (tokens) => tokens.map((token, i) => {
    const text = i === 0 ? token : token.startsWith(prefix) ? token.replace(prefix, "") : ` ${token}`;
    return cleans ? cleanUp(text) : text;
  });
}

function metaspace({ replacement, prepend_scheme: scheme, add_prefix_space: addsSpace }) {
  const prepends = scheme ? scheme !== "never" : addsSpace !== false;
  return (tokens) => tokens.map((token, i) => [...token].map((character) =>
    (character !== replacement ? character : i === 0 && prepends ? "" : " ")).join(""));
}

export const DECODERS = {
  Sequence: ({ decoders }) => {
    const steps = decoders.map(makeDecoder);
    return (tokens) => steps.reduce((result, step) => step(result), tokens);
  },
  Replace: ({ pattern, content }) => (tokens) => tokens.map((token) => token.replace(toPattern(pattern), () => content)),
  ByteFallback: () => byteFallback,
  Fuse: () => (tokens) => [tokens.join("")],
  Strip: strip,
  ByteLevel: () => (tokens) => [textOf(tokens.flatMap(byteValues))],
  WordPiece: wordPiece,
  Metaspace: metaspace,
  BPEDecoder: ({ suffix }) => (tokens) => tokens.map((token, i) => token.replaceAll(suffix, i === tokens.length - 1 ? "" : " ")),
};

export function makeDecoder(part) {
  if (!part) return (tokens) => [tokens.join(" ")];
  if (!DECODERS[part.type]) throw new Error(`the lab has no decoder ${part.type}`);
  return DECODERS[part.type](part);
}
