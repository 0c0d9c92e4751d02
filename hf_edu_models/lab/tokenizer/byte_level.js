// GPT-2's alphabet: each of the 256 bytes as one printable character (Radford et al. 2019, Section 2.2).

const isPrintable = (byte) => (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;

const others = Array.from({ length: 256 }, (_, byte) => byte).filter((byte) => !isPrintable(byte));
export const CHARACTERS = Array.from({ length: 256 }, (_, byte) =>
  String.fromCodePoint(isPrintable(byte) ? byte : 256 + others.indexOf(byte)));
const bytes = new Map(CHARACTERS.map((character, byte) => [character, byte]));

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

export const bytesOf = (text) => encoder.encode(text);
export const textOf = (values) => decoder.decode(Uint8Array.from(values));
export const toByteCharacters = (text) => Array.from(bytesOf(text), (byte) => CHARACTERS[byte]).join("");

// The text of one token; a token with a character outside of the alphabet stands for itself.
export function byteValues(token) {
  const values = [...token].map((character) => bytes.get(character));
  return values.includes(undefined) ? [...bytesOf(token)] : values;
}
