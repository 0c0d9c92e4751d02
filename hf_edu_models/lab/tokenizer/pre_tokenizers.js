// Pre-tokenizers of tokenizer.json: each makes a function NormalizedText -> list of NormalizedTexts, the words.

import { toByteCharacters } from "./byte_level.js";
import { escape, toPattern } from "./patterns.js";
import { WORDS, isNumber, isPunctuation, toRegExp } from "./unicode.js";

const GPT2 = toRegExp(String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`);
const SPACE = toRegExp(String.raw`\s`);

function metaspace({ replacement, prepend_scheme: scheme, add_prefix_space: addsSpace, split = true }) {
  const prepends = scheme ?? (addsSpace === false ? "never" : "always");
  const mark = new RegExp(escape(replacement), "gu");
  return (text) => {
    let marked = text.map((character) => (character === " " ? replacement : character));
    const isWanted = prepends === "always" || (prepends === "first" && text.begin === 0);
    if (isWanted && !marked.text.startsWith(replacement)) marked = marked.prepend(replacement);
    return split ? marked.split(mark, "MergedWithNext") : [marked];
  };
}

function byteLevel({ add_prefix_space: addsSpace, use_regex: usesRegex = true }) {
  return (text) => {
    const spaced = addsSpace && !text.text.startsWith(" ") ? text.prepend(" ") : text;
    const words = usesRegex ? spaced.split(GPT2, "Isolated") : [spaced];
    return words.map((word) => word.map(toByteCharacters));
  };
}

// Split at single characters with a property; `matchAll` asks an object for its matches.
function splitAt(text, isMatch, behavior) {
  const pattern = {
    flags: "g",
    *[Symbol.matchAll](string) {
      let index = 0;
      for (const character of string) {
        if (isMatch(character)) yield Object.assign([character], { index });
        index += character.length;
      }
    },
  };
  return text.split(pattern, behavior);
}

export const PRE_TOKENIZERS = {
  Sequence: ({ pretokenizers }) => {
    const steps = pretokenizers.map(makePreTokenizer);
    return (text) => steps.reduce((words, step) => words.flatMap((word) => nonEmpty(step(word))), [text]);
  },
  Metaspace: metaspace,
  ByteLevel: byteLevel,
  BertPreTokenizer: () => (text) => text.split(SPACE, "Removed").flatMap((word) => splitAt(word, isPunctuation, "Isolated")),
  Split: ({ pattern, behavior, invert }) => {
    const compiled = toPattern(pattern);
    return (text) => text.split(compiled, behavior, invert);
  },
  Whitespace: () => (text) => text.split(WORDS, "Removed", true),
  WhitespaceSplit: () => (text) => text.split(SPACE, "Removed"),
  Punctuation: ({ behavior = "Isolated" }) => (text) => splitAt(text, isPunctuation, behavior),
  Digits: ({ individual_digits: individual }) => (text) => splitAt(text, isNumber, individual ? "Isolated" : "Contiguous"),
  CharDelimiterSplit: ({ delimiter }) => (text) => text.split(new RegExp(escape(delimiter), "gu"), "Removed"),
};

const nonEmpty = (words) => words.filter((word) => word.length);

export function makePreTokenizer(part) {
  if (!part) return (text) => [text];
  if (!PRE_TOKENIZERS[part.type]) throw new Error(`the lab has no pre-tokenizer ${part.type}`);
  const split = PRE_TOKENIZERS[part.type](part);
  return (text) => nonEmpty(split(text));
}
