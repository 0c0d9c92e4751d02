// Files of safetensors: eight bytes with the length of a JSON header, the header, and the bytes of every tensor.

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
  const aligned = byteOffset % 8 === 0 ? buffer : buffer.slice(byteOffset, byteOffset + byteLength);
  const start = aligned === buffer ? byteOffset : 0;
  if (dtype === "F32") return new Float32Array(aligned, start, byteLength / 4);
  if (dtype === "F64") return Float32Array.from(new Float64Array(aligned, start, byteLength / 8));
  if (dtype === "BF16") return fromBfloat16(new Uint16Array(aligned, start, byteLength / 2));
  if (dtype === "F16") return Float32Array.from(new Uint16Array(aligned, start, byteLength / 2), fromFloat16);
  throw new Error(`a tensor has dtype ${dtype}, but F32, F64, F16 and BF16 can be read; save the model in one of them`);
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
