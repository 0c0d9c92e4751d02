// Files of safetensors: eight bytes with the length of a JSON header, the header, and the bytes of every tensor.

const OTHERS = { F64: Float64Array, I32: Int32Array, I16: Int16Array, U8: Uint8Array };

/** Tensors by name, in float32; `name` in I8 with `name.scales` in F32 becomes a matrix with a scale for each row. */
export function readSafetensors(buffer) {
  const headerLength = Number(new DataView(buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, headerLength)));
  const tensors = {};
  for (const [name, { dtype, shape, data_offsets: offsets }] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const [start, end] = offsets.map((offset) => offset + 8 + headerLength);
    const bytes = new Uint8Array(buffer.slice(start, end)); // a copy, whose start is aligned
    tensors[name] = { shape, data: dtype === "I8" ? new Int8Array(bytes.buffer) : decodeTensor(dtype, bytes) };
  }
  for (const name of Object.keys(tensors).filter((each) => each.endsWith(".scales"))) {
    const quantised = tensors[name.replace(/\.scales$/, "")];
    if (!(quantised?.data instanceof Int8Array)) continue;
    quantised.data = { int8: quantised.data, scales: tensors[name].data };
    delete tensors[name];
  }
  return tensors;
}

/** The numbers of one tensor, little endian as in the file. */
export function decodeTensor(dtype, bytes) {
  const { buffer, byteOffset, byteLength } = bytes;
  const isWhole = byteOffset === 0 && byteLength === buffer.byteLength;
  const aligned = isWhole ? buffer : buffer.slice(byteOffset, byteOffset + byteLength);
  if (dtype === "F32") return new Float32Array(aligned);
  if (dtype === "BF16") return fromBfloat16(new Uint16Array(aligned));
  if (dtype === "F16") return Float32Array.from(new Uint16Array(aligned), fromFloat16);
  if (dtype === "I64") return Float32Array.from(new BigInt64Array(aligned), Number);
  if (dtype in OTHERS) return Float32Array.from(new OTHERS[dtype](aligned));
  throw new Error(`a tensor has dtype ${dtype}, but F64, F32, F16, BF16 and integers can be read; save it so`);
}

/** The upper half of a float32. */
function fromBfloat16(halves) {
  const bits = new Uint32Array(halves.length);
  halves.forEach((half, i) => {
    bits[i] = half << 16;
  });
  return new Float32Array(bits.buffer);
}

/** One sign, five exponent and ten fraction bits. */
function fromFloat16(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}
