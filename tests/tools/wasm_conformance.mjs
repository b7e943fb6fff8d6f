// Decodes the files of tests/conformance.json by the WebAssembly decoder: the same samples, the same
// Status. Usage: node wasm_conformance.mjs L3.WASM FOLDER
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { load } from "../../examples/wasm/l3.mjs";

const STATUSES = ["kOk", "kTruncated", "kBadMagic", "kUnsupportedVersion", "kUnsupportedFeature", "kCorruptHeader",
  "kCorruptTile", "kChecksumMismatch", "kOutputTooSmall", "kInvalidArgument"];
const TYPES = [, "uint8", "uint16", "int8", "int16", "uint32", "int32", "float16", "float32"];

const [wasm, folder] = process.argv.slice(2);
const l3 = await load(readFileSync(wasm));
const { files } = JSON.parse(readFileSync(`${folder}/conformance.json`));

function treatmentOf(file) {
  try {
    const { height, width, channels, type, samples } = l3.decode(readFileSync(file), { maxPixels: 2 ** 31 });
    return ["kOk", `${[height, width, channels]}`, TYPES[type], createHash("sha256").update(samples).digest("hex")];
  } catch (error) {
    return [STATUSES[error.status] ?? `${error}`];
  }
}

let right = 0;
for (const { file, status, shape, dtype, sha256 } of files) {
  const expected = status === "kOk" ? [status, `${shape}`, dtype, sha256] : [status];
  const found = treatmentOf(`${folder}/${file}`);
  if (`${found}` === `${expected}`) right++;
  else console.log(`${file}: ${found}; expected ${expected}`);
}
console.log(`${right} of ${files.length} files`);
