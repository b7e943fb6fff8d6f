// L3 in browsers and Node: include/l3/l3.h as WebAssembly (`make wasm`).
//
//   const l3 = await load(await (await fetch("l3.wasm")).arrayBuffer());
//   const { height, width, channels, samples } = l3.decode(bytes);

const TYPES = [, Uint8Array, Uint16Array, Int8Array, Int16Array, Uint32Array, Int32Array, Uint16Array, Float32Array, BigInt64Array];
const OUTPUT_BYTES = 56;   // sizeof(l3_output) where sizes have 32 bits
const OPTIONS_BYTES = 64;  // sizeof(l3_decode_options)

/** A file that is refused: `status` is the number, the message says why. */
export class L3Error extends Error {
  constructor(status, name, message) {
    super(`${name}: ${message}`);
    this.status = status;
  }
}

/** Compiles the module, given as bytes, and returns what it can do. */
export async function load(wasm) {
  const module = await WebAssembly.compile(wasm);
  let c = null;

  const text = (at) => {
    const bytes = new Uint8Array(c.memory.buffer, at);
    return new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0)));
  };
  const check = (status) => {
    if (status !== 0) throw new L3Error(status, text(c.l3_status_name(status)), text(c.l3_status_message(status)));
  };
  const take = (size) => {
    // Numbers of 32 bits are signed in JavaScript, and larger ones lose their upper bits.
    const at = size < 2 ** 32 ? c.malloc(Math.max(1, size)) >>> 0 : 0;
    if (at === 0) throw new L3Error(1000, text(c.l3_status_name(1000)), text(c.l3_status_message(1000)));
    return at;
  };

  /**
   * Decodes a file, a Uint8Array. Of the options, `window` is [top, left, height, width], `type` a
   * number of l3.h (1: 8 bits), `colors` too (4: red, green, blue, alpha); 0 is as stored.
   * `fillRange` is fill_range of l3.h (1: rescale to the range of the type).
   */
  function decode(file, { window = [0, 0, 0, 0], type = 0, colors = 0, fillRange = 0, maxPixels = 0 } = {}) {
    if (!(file instanceof Uint8Array)) throw new TypeError("a file is a Uint8Array");
    const isUint32 = (value) => Number.isInteger(value) && value >= 0 && value < 2 ** 32;
    if (!Array.isArray(window) || window.length !== 4 || ![...window, type, colors, fillRange].every(isUint32))
      throw new RangeError("window is four integers, type, colors and fillRange are one each, from 0 to 2^32 - 1");
    if (!Number.isSafeInteger(maxPixels) || maxPixels < 0) throw new RangeError("maxPixels is an integer from 0");
    // An instance for each image: its memory goes with it, and a call that runs out of it ends it.
    c = new WebAssembly.Instance(module).exports;
    c._initialize();
    try {
      const data = take(file.length);
      new Uint8Array(c.memory.buffer).set(file, data);
      const options = take(OPTIONS_BYTES + OUTPUT_BYTES);
      const output = options + OPTIONS_BYTES;
      new Uint8Array(c.memory.buffer, options, OPTIONS_BYTES).fill(0);
      const set = new DataView(c.memory.buffer, options);
      set.setUint32(0, OPTIONS_BYTES, true);
      set.setUint32(8, type, true);
      set.setUint32(12, colors, true);
      window.forEach((value, i) => set.setUint32(20 + 4 * i, value, true));
      set.setBigUint64(48, BigInt(maxPixels), true);
      set.setUint32(56, fillRange, true);
      set.setUint32(OPTIONS_BYTES, OUTPUT_BYTES, true);
      check(c.l3_decode_size(data, file.length, options, output));
      const [height, width, channels, kind] = new Uint32Array(c.memory.buffer, output + 4, 4);
      const bytes = Number(new DataView(c.memory.buffer).getBigUint64(output + 24, true));
      const pixels = take(bytes);
      check(c.l3_decode(data, file.length, options, pixels, bytes, 0));
      const samples = new TYPES[kind](c.memory.buffer, pixels, bytes / TYPES[kind].BYTES_PER_ELEMENT);
      return { height, width, channels, type: kind, samples };
    } catch (error) {
      if (!(error instanceof WebAssembly.RuntimeError)) throw error;
      throw new L3Error(1000, "kOutOfMemory", "memory ran out");
    }
  }
  return { decode };
}
