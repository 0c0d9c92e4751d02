// The character classes that the tokenizers library uses.
//
// Its regular expressions know Unicode's properties as JavaScript does. Its BERT parts have an older table of marks and
// punctuation: characters that came to Unicode later are listed here, so that ids agree for them too.

const characters = (...ranges) => new RegExp(`[${ranges.join("")}]`, "u");

const NEWER_MARKS = characters(
  String.raw`\u07fd\u0897-\u089f\u08ca-\u08e1\u09fe\u0afa-\u0aff\u0b55\u0c04\u0c3c\u0d00\u0d3b-\u0d3c\u0d81\u0eba`,
  String.raw`\u0ece\u180f\u1885-\u1886\u1abf-\u1add\u1ae0-\u1aeb\u1df6-\u1dfb\ua82c\ua8c5\ua8ff\ua9bd`,
  String.raw`\u{10d24}-\u{10d27}\u{10d69}-\u{10d6d}\u{10eab}-\u{10eac}\u{10efa}-\u{10eff}\u{10f46}-\u{10f50}`,
  String.raw`\u{10f82}-\u{10f85}\u{11070}\u{11073}-\u{11074}\u{110c2}\u{111c9}\u{111cf}\u{1123e}\u{11241}\u{1133b}`,
  String.raw`\u{113bb}-\u{113c0}\u{113ce}\u{113d0}\u{113d2}\u{113e1}-\u{113e2}\u{11438}-\u{1143f}\u{11442}-\u{11444}`,
  String.raw`\u{11446}\u{1145e}\u{1182f}-\u{11837}\u{11839}-\u{1183a}\u{1193b}-\u{1193c}\u{1193e}\u{11943}`,
  String.raw`\u{119d4}-\u{119d7}\u{119da}-\u{119db}\u{119e0}\u{11a01}-\u{11a0a}\u{11a33}-\u{11a38}\u{11a3b}-\u{11a3e}`,
  String.raw`\u{11a47}\u{11a51}-\u{11a56}\u{11a59}-\u{11a5b}\u{11a8a}-\u{11a96}\u{11a98}-\u{11a99}\u{11b60}`,
  String.raw`\u{11b62}-\u{11b64}\u{11b66}\u{11c30}-\u{11c36}\u{11c38}-\u{11c3d}\u{11c3f}\u{11c92}-\u{11ca7}`,
  String.raw`\u{11caa}-\u{11cb0}\u{11cb2}-\u{11cb3}\u{11cb5}-\u{11cb6}\u{11d31}-\u{11d36}\u{11d3a}\u{11d3c}-\u{11d3d}`,
  String.raw`\u{11d3f}-\u{11d45}\u{11d47}\u{11d90}-\u{11d91}\u{11d95}\u{11d97}\u{11ef3}-\u{11ef4}\u{11f00}-\u{11f01}`,
  String.raw`\u{11f36}-\u{11f3a}\u{11f40}\u{11f42}\u{11f5a}\u{13440}\u{13447}-\u{13455}\u{1611e}-\u{16129}`,
  String.raw`\u{1612d}-\u{1612f}\u{16f4f}\u{16fe4}\u{1cf00}-\u{1cf2d}\u{1cf30}-\u{1cf46}\u{1e000}-\u{1e006}`,
  String.raw`\u{1e008}-\u{1e018}\u{1e01b}-\u{1e021}\u{1e023}-\u{1e024}\u{1e026}-\u{1e02a}\u{1e08f}\u{1e130}-\u{1e136}`,
  String.raw`\u{1e2ae}\u{1e2ec}-\u{1e2ef}\u{1e4ec}-\u{1e4ef}\u{1e5ee}-\u{1e5ef}\u{1e6e3}\u{1e6e6}\u{1e6ee}-\u{1e6ef}`,
  String.raw`\u{1e6f5}\u{1e944}-\u{1e94a}`,
);

const NEWER_ACCENTS = characters(
  String.raw`\u07fd\u0897-\u089f\u08ca-\u08d3\u09fe\u0afa-\u0aff\u0b55\u0c04\u0c3c\u0cf3\u0d00\u0d3b-\u0d3c\u0d81`,
  String.raw`\u0eba\u0ece\u1715\u180f\u1abf-\u1add\u1ae0-\u1aeb\u1cf7\u1df6-\u1dfa\ua82c\ua8ff\u{10d24}-\u{10d27}`,
  String.raw`\u{10d69}-\u{10d6d}\u{10eab}-\u{10eac}\u{10efa}-\u{10eff}\u{10f46}-\u{10f50}\u{10f82}-\u{10f85}\u{11070}`,
  String.raw`\u{11073}-\u{11074}\u{110c2}\u{11145}-\u{11146}\u{111c9}\u{111ce}-\u{111cf}\u{11241}\u{1133b}`,
  String.raw`\u{113b8}-\u{113c0}\u{113c2}\u{113c5}\u{113c7}-\u{113ca}\u{113cc}-\u{113d0}\u{113d2}\u{113e1}-\u{113e2}`,
  String.raw`\u{1145e}\u{1182c}-\u{1183a}\u{11930}-\u{11935}\u{11937}-\u{11938}\u{1193b}-\u{1193e}\u{11940}`,
  String.raw`\u{11942}-\u{11943}\u{119d1}-\u{119d7}\u{119da}-\u{119e0}\u{119e4}\u{11a01}-\u{11a0a}\u{11a33}-\u{11a39}`,
  String.raw`\u{11a3b}-\u{11a3e}\u{11a47}\u{11a51}-\u{11a5b}\u{11a8a}-\u{11a99}\u{11b60}-\u{11b67}\u{11d31}-\u{11d36}`,
  String.raw`\u{11d3a}\u{11d3c}-\u{11d3d}\u{11d3f}-\u{11d45}\u{11d47}\u{11d8a}-\u{11d8e}\u{11d90}-\u{11d91}`,
  String.raw`\u{11d93}-\u{11d97}\u{11ef3}-\u{11ef6}\u{11f00}-\u{11f01}\u{11f03}\u{11f34}-\u{11f3a}\u{11f3e}-\u{11f42}`,
  String.raw`\u{11f5a}\u{13440}\u{13447}-\u{13455}\u{1611e}-\u{1612f}\u{16f4f}\u{16f7f}-\u{16f87}\u{16fe4}`,
  String.raw`\u{16ff0}-\u{16ff1}\u{1cf00}-\u{1cf2d}\u{1cf30}-\u{1cf46}\u{1e08f}\u{1e130}-\u{1e136}\u{1e2ae}`,
  String.raw`\u{1e2ec}-\u{1e2ef}\u{1e4ec}-\u{1e4ef}\u{1e5ee}-\u{1e5ef}\u{1e6e3}\u{1e6e6}\u{1e6ee}-\u{1e6ef}\u{1e6f5}`,
);

const NEWER_PUNCTUATION = characters(
  String.raw`\u061d\u09fd\u0a76\u0c77\u0c84\u1b4e-\u1b4f\u1b7d-\u1b7f\u2e43-\u2e4f\u2e52-\u2e5d\u{10d6e}\u{10ead}`,
  String.raw`\u{10ed0}\u{10f55}-\u{10f59}\u{10f86}-\u{10f89}\u{113d4}-\u{113d5}\u{113d7}-\u{113d8}\u{1144b}-\u{1144f}`,
  String.raw`\u{1145a}-\u{1145b}\u{1145d}\u{11660}-\u{1166c}\u{116b9}\u{1183b}\u{11944}-\u{11946}\u{119e2}`,
  String.raw`\u{11a3f}-\u{11a46}\u{11a9a}-\u{11a9c}\u{11a9e}-\u{11aa2}\u{11b00}-\u{11b09}\u{11be1}\u{11c41}-\u{11c45}`,
  String.raw`\u{11c70}-\u{11c71}\u{11ef7}-\u{11ef8}\u{11f43}-\u{11f4f}\u{11fff}\u{12ff1}-\u{12ff2}\u{16d6d}-\u{16d6f}`,
  String.raw`\u{16e97}-\u{16e9a}\u{16fe2}\u{1e5ff}\u{1e95e}-\u{1e95f}`,
);

const NEWER_CONTROLS = /[\u0890-\u0891\u08e2\u{110cd}\u{13430}-\u{1343f}]/u;

export const isSpace = (character) => /\p{White_Space}/u.test(character);
export const isNumber = (character) => /\p{N}/u.test(character);

// Rust's \w, which also has the joiners of emoji.
const WORD = String.raw`\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}`;
export const WORDS = new RegExp(String.raw`[${WORD}]+|[^${WORD}\p{White_Space}]+`, "gu");
const WORD_CHARACTER = new RegExp(`[${WORD}]`, "u");
export const isWordCharacter = (character) => WORD_CHARACTER.test(character);

// BertNormalizer removes controls, formats and private use, but not the white space among them.
export const isControl = (character) =>
  /[\p{Cc}\p{Cf}\p{Co}\0\ufffd]/u.test(character) && !/[\t\n\r]/.test(character) && !NEWER_CONTROLS.test(character);
export const isNonspacingMark = (character) =>
  /[\p{Mn}\u1734\u{1171e}]/u.test(character) && !NEWER_MARKS.test(character);
export const isCombiningMark = (character) => /[\p{M}\u1cf2\u1cf3]/u.test(character) && !NEWER_ACCENTS.test(character);
export const isPunctuation = (character) =>
  /[!-\/:-@\[-`{-~\p{P}\u166d\u{111c9}]/u.test(character) && !NEWER_PUNCTUATION.test(character);

// The blocks of CJK ideographs that BertNormalizer puts spaces around.
const CJK = /[\u4e00-\u9fff\u3400-\u4dbf\u{20000}-\u{2a6df}\u{2a700}-\u{2b73f}\u{2b740}-\u{2b81f}\u{2b920}-\u{2ceaf}\uf900-\ufaff\u{2f800}-\u{2fa1f}]/u;
export const isIdeograph = (character) => CJK.test(character);

// What \w, \d and \s mean in the library's regular expressions (Oniguruma, UTF-8), inside of a class.
const CLASSES = {
  w: String.raw`\p{Alphabetic}\p{M}\p{Nd}\p{Pc}`,
  d: String.raw`\p{Nd}`,
  D: String.raw`\P{Nd}`,
  s: String.raw`\p{White_Space}`,
  S: String.raw`\P{White_Space}`,
};
const LATIN_NUMBERS = "²³¹¼½¾"; // \w and \W count them as letters, a class with \w in it does not

// A regular expression of a tokenizer.json as one of JavaScript; an error names a pattern that has no such form.
export function toRegExp(pattern) {
  let source = "";
  let isInClass = false;
  for (let i = 0; i < pattern.length; i++) {
    const character = pattern[i];
    if (character === "\\") {
      const next = pattern[++i];
      if (/w/i.test(next) && !isInClass) source += `[${next === "W" ? "^" : ""}${CLASSES.w}${LATIN_NUMBERS}]`;
      else if (next === "W") throw new Error(`the regular expression ${pattern} has \\W in a class, which the lab cannot run`);
      else if (CLASSES[next]) source += isInClass ? CLASSES[next] : `[${CLASSES[next]}]`;
      else source += /[\p{L}\p{N}^$\\.*+?()[\]{}|/]/u.test(next) ? `\\${next}` : next;
      continue;
    }
    if (character === "[" && !isInClass) isInClass = true;
    else if (character === "]" && isInClass) isInClass = false;
    source += character;
  }
  return new RegExp(source, "gu");
}
