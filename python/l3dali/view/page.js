// The page of `l3 view`: a sheet of thumbnails, and one image by its tiles.
// Raw samples are coloured here, so that sliders need no requests. Names and metadata are inserted
// as text, never as HTML.
"use strict";

const PER_SHEET = 60;
const SIDE = 256;         // of a tile
const MAX_KEPT = 300;     // tiles
const MAX_ASKED = 4;      // requests at a time
const MAX_DRAWN = 400;    // tiles of one level
const ARRAYS = {
  uint8: Uint8Array, int8: Int8Array, uint16: Uint16Array, int16: Int16Array,
  uint32: Uint32Array, int32: Int32Array, float16: Float32Array, float32: Float32Array,
};

const $ = (id) => document.getElementById(id);
const get = async (path) => {
  const answer = await fetch(path);
  if (answer.ok) return answer;
  let reason = `${answer.status}`;
  try { reason = (await answer.json()).error; } catch { /* no JSON */ }
  throw Object.assign(new Error(reason), { status: answer.status });
};
const json = async (path) => (await get(path)).json();

// ---- Which part is shown: #sheet/START or #image/NUMBER ----

const place = () => {
  const [kind, number] = location.hash.slice(1).split("/");
  return { kind: kind === "image" ? "image" : "sheet", number: Math.max(0, parseInt(number, 10) || 0) };
};
const go = (kind, number) => { location.hash = `${kind}/${Math.max(0, number)}`; };
let total = 0;
let shown = 0;  // counts what was shown, so that late answers are dropped

async function show() {
  const { kind, number } = place();
  const mine = ++shown;
  $("sheet").hidden = kind === "image";
  $("image").hidden = kind !== "image";
  $("name").textContent = $("problem").textContent = "";
  try {
    await (kind === "image" ? showImage(number, mine) : showSheet(number, mine));
  } catch (error) {
    $("problem").textContent = error.message;
  }
}

// ---- The sheet ----

async function showSheet(start, mine) {
  const page = await json(`list?start=${start}&count=${PER_SHEET}`);
  if (mine !== shown) return;
  total = page.total;
  const last = start + page.names.length;
  $("place").textContent = page.names.length
    ? `${start + 1} to ${last} of ${total}${page.done ? "" : " and more"}`
    : !page.done ? "searching"
    : total ? `no images of ${total}` : "no .l3 files here; l3 encode makes them of images";
  $("problem").textContent = page.problems.join("; ");
  const cells = page.names.map((name, i) => cell(name, start + i));
  $("sheet").replaceChildren(...cells);
  $("sheet").scrollTop = 0;
  if (!page.done && page.names.length < PER_SHEET) setTimeout(() => mine === shown && show(), 500);
  await Promise.all(Array.from({ length: MAX_ASKED }, async () => {
    for (let next; mine === shown && (next = cells.shift());) await next.fill();
  }));
}

function cell(name, number) {
  const figure = document.createElement("figure");
  const box = figure.appendChild(document.createElement("div"));
  const caption = figure.appendChild(document.createElement("figcaption"));
  caption.textContent = figure.title = name;
  figure.onclick = () => go("image", number);
  figure.fill = async () => {
    try {
      const answer = await get(`thumbnail/${number}`);
      if (answer.status === 202) {
        const size = await answer.json();
        box.textContent = `${size.width} x ${size.height}`;
        return;
      }
      const image = new Image();
      image.src = URL.createObjectURL(await answer.blob());
      image.onload = () => URL.revokeObjectURL(image.src);
      box.replaceChildren(image);
    } catch (error) {
      figure.className = "bad";
      box.textContent = error.message;
    }
  };
  return figure;
}

// ---- One image ----

let image = null;  // the answer to info/N
let view = null;   // { x, y, scale }: the image's pixel in the corner, screen pixels for each of its
let bands = [];
let tiles = new Map();  // by "level/row/column": { samples, ... }, { error } or { asked }; latest last
let asked = 0;

async function showImage(number, mine) {
  $("place").textContent = `${number + 1}${total ? ` of ${total}` : ""}`;
  image = null;
  tiles = new Map();
  $("facts").replaceChildren();
  $("cursor").textContent = "the pointer on the image tells its values here";
  draw();
  try {
    const info = await json(`info/${number}`);
    if (mine !== shown) return;
    image = Object.assign(info, { number, mine });
  } catch (error) {
    if (mine === shown) $("problem").textContent = error.message;
    return;
  }
  $("name").textContent = image.name;
  if (image.file_bytes !== image.encoded_bytes) {
    $("problem").textContent = `the file has ${image.file_bytes} bytes of ${image.encoded_bytes}`;
  }
  tellFacts();
  const least = image.dtype.startsWith("i") && !image.range ? -(2 ** (bits() - 1)) : 0;
  for (const id of ["low", "high"]) {
    $(id).min = least;
    $(id).max = least + 2 ** bits() - 1;
  }
  $("map").value = !image.labels ? "gray" : image.palette ? "palette" : "classes";
  $("map").querySelector("[value=palette]").disabled = !image.palette;
  image.isLeveled = image.dtype === "uint8";
  $("slices").hidden = !image.slices;
  $("slice").max = image.slices - 1;
  $("slice").value = $("slice").nextElementSibling.textContent = Math.floor(image.slices / 2);
  setLevels(least, least + 2 ** bits() - 1);
  fit();
  chooseBands(image.bands);
}

const slice = () => (image.slices ? $("slice").value : 0);
const bits = () => (image.dtype.endsWith("8") ? 8 : 16);
// A sample as a number of up to 16 bits: floats and 32 bits by their range, numbers of labels by their low bits.
const levelOf = (sample) => {
  if (!image.range) return sample;
  if (image.labels) return sample & 0xffff;
  const [low, high] = image.range;
  return Math.min(65535, Math.max(0, Math.round(65535 * (sample - low) / (high - low || 1)))) || 0;
};

function tellFacts() {
  const { width, height, channels, dtype, used_bits, encoded_bytes: bytes, raw_bytes, kept } = image;
  const facts = {
    size: `${width} x ${height}${image.slices ? ` x ${image.slices} slices` : ""}`,
    channels: `${channels}${image.groups > 1 ? ` in ${image.groups} groups` : ""}`,
    samples: `${dtype}, ${used_bits} bits used${image.labels ? ", labels" : ""}`,
    values: image.value_count ? `${image.value_count} different` : null,
    tiles: `${image.tile_count} of ${image.tile_width} x ${image.tile_height}`,
    bytes: `${bytes}, ${(bytes / raw_bytes).toFixed(3)} of raw`,
    kept: Object.entries(kept).map(([name, size]) => `${name} (${size} bytes)`).join(", ") || null,
    metadata: image.metadata || null,
  };
  $("facts").replaceChildren(...Object.entries(facts).filter(([, value]) => value !== null)
    .flatMap(([name, value]) => [["dt", name], ["dd", value]].map(([kind, text]) =>
      Object.assign(document.createElement(kind), { textContent: text }))));
}

function chooseBands(chosen) {
  bands = chosen;
  $("bands").value = bands.join(",");
  $("map").disabled = bands.length > 1;
  tiles = new Map();
  recolor();
}

// ---- From samples to colours ----

let coloring = 0;  // counts changes of levels and maps
let table = null;  // of each sample, moved up to 0: colour of one band, or brightness for three

function setLevels(low, high) {
  $("low").value = low;
  $("high").value = high;
  recolor();
}

function recolor() {
  if (!image) return;
  coloring++;
  for (const id of ["low", "high"]) $(id).nextElementSibling.textContent = $(id).value;
  const least = Number($("low").min);
  const low = Number($("low").value);
  const high = Math.max(low + 1, Number($("high").value));
  const kind = bands.length > 1 ? "gray" : $("map").value;
  const count = 2 ** bits();
  table = { least, colors: new Uint8ClampedArray(4 * count) };
  for (let i = 0; i < count; i++) {
    const part = Math.min(1, Math.max(0, (i + least - low) / (high - low)));
    table.colors.set([...colorOf(kind, i + least, i, part), 255], 4 * i);
  }
  draw();
}

// classes: as label_colors() of pixels.py.
function colorOf(kind, value, index, part) {
  const stored = value < 0 ? value + 2 ** bits() : value;
  if (kind === "palette" && 4 * stored < image.palette.length) {
    return image.palette.slice(4 * stored, 4 * stored + 3);
  }
  if (kind === "heat") return [3 * part, 3 * part - 1, 3 * part - 2].map((c) => 255 * Math.min(1, Math.max(0, c)));
  if (kind === "gray") return [255 * part, 255 * part, 255 * part];
  if (stored === 0) return [0, 0, 0];
  const hue = (stored * 0.618034 * 6) % 6;
  return [0, 4, 2].map((shift) => 64 + 191 * Math.min(1, Math.max(0, Math.abs((hue + shift) % 6 - 3) - 1)));
}

function bitmapOf(tile) {
  if (tile.coloring === coloring) return tile.bitmap;
  const { samples, width, height } = tile;
  const pixels = new ImageData(width, height);
  const { least, colors } = table;
  for (let i = 0; i < width * height; i++) {
    if (bands.length === 1) {
      const at = 4 * (levelOf(samples[i]) - least);
      for (let c = 0; c < 3; c++) pixels.data[4 * i + c] = colors[at + c];
    } else {
      for (let c = 0; c < 3; c++) pixels.data[4 * i + c] = colors[4 * (levelOf(samples[3 * i + c]) - least)];
    }
    pixels.data[4 * i + 3] = 255;
  }
  tile.bitmap = tile.bitmap || new OffscreenCanvas(width, height);
  tile.bitmap.getContext("2d").putImageData(pixels, 0, 0);
  tile.coloring = coloring;
  return tile.bitmap;
}

// Levels that leave out the darkest and the brightest 1 % of what is on the screen.
function autoLevels() {
  const values = [];
  for (const { samples } of tiles.values()) {
    if (!samples) continue;
    const step = Math.max(1, Math.floor(samples.length / 4096));
    for (let i = 0; i < samples.length; i += step) values.push(levelOf(samples[i]));
  }
  if (!values.length) return;
  values.sort((a, b) => a - b);
  image.isLeveled = true;
  setLevels(values[Math.floor(0.01 * values.length)], values[Math.floor(0.99 * values.length)]);
}

// ---- Drawing ----

const canvas = $("canvas");
const levelSize = (side, level) => Math.ceil(side / 2 ** level);

function fit() {
  const box = canvas.getBoundingClientRect();
  const scale = Math.min(box.width / image.width, box.height / image.height, 8) || 1;
  view = { scale, x: (image.width - box.width / scale) / 2, y: (image.height - box.height / scale) / 2 };
  draw();
}

let isDrawing = false;
function draw() {
  if (isDrawing) return;
  isDrawing = true;
  requestAnimationFrame(() => { isDrawing = false; drawNow(); });
}

function drawNow() {
  const box = canvas.getBoundingClientRect();
  canvas.width = box.width;
  canvas.height = box.height;
  if (!image || !view) return;
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = view.scale < 1;
  const level = Math.min(image.top_level, Math.max(0, Math.floor(-Math.log2(view.scale) + 0.01)));
  const wanted = [];
  // Coarser tiles first, which show until finer ones come.
  for (let each = image.top_level; each >= level; each--) {
    for (const [row, column] of tilesInView(each, box)) {
      const key = `${each}/${row}/${column}`;
      const tile = tiles.get(key);
      if (tile?.samples || tile?.error) drawTile(context, each, row, column, tile);
      if (tile) { tiles.delete(key); tiles.set(key, tile); }
      else if (each === level) wanted.push([each, row, column]);
    }
  }
  for (const one of wanted) ask(...one);
}

function tilesInView(level, box) {
  const side = SIDE * 2 ** level;
  const range = (from, length, whole) => {
    const last = Math.ceil(whole / side) - 1;
    return [Math.max(0, Math.floor(from / side)), Math.min(last, Math.floor((from + length) / side))];
  };
  const [top, bottom] = range(view.y, box.height / view.scale, image.height);
  const [left, right] = range(view.x, box.width / view.scale, image.width);
  const found = [];
  for (let row = top; row <= bottom && found.length < MAX_DRAWN; row++) {
    for (let column = left; column <= right && found.length < MAX_DRAWN; column++) found.push([row, column]);
  }
  return found;
}

function drawTile(context, level, row, column, tile) {
  const step = 2 ** level * view.scale;
  const left = Math.round((column * SIDE * 2 ** level - view.x) * view.scale);
  const top = Math.round((row * SIDE * 2 ** level - view.y) * view.scale);
  const size = (first, whole) => Math.min(SIDE, levelSize(whole, level) - first * SIDE);
  const width = Math.ceil(size(column, image.width) * step);
  const height = Math.ceil(size(row, image.height) * step);
  if (tile.samples) {
    context.drawImage(bitmapOf(tile), left, top, width, height);
    return;
  }
  context.fillStyle = "#522";
  context.fillRect(left, top, width, height);
  context.strokeStyle = "#d33";
  context.strokeRect(left + 0.5, top + 0.5, width - 1, height - 1);
  context.fillStyle = "#fcc";
  context.fillText(tile.error, left + 6, top + 16, Math.max(10, width - 12));
}

async function ask(level, row, column) {
  if (asked >= MAX_ASKED) return;  // requested when the next answer is drawn
  const { number, mine } = image;
  const key = `${level}/${row}/${column}`;
  const map = tiles;
  asked++;
  map.set(key, { asked: true });
  try {
    const answer = await get(`tile/${number}/${key}?bands=${bands}&slice=${slice()}`);
    const samples = new ARRAYS[image.dtype](await answer.arrayBuffer());
    if (map !== tiles || mine !== shown) return;
    const side = (whole, first) => Math.min(SIDE, levelSize(whole, level) - first * SIDE);
    const [width, height] = [side(image.width, column), side(image.height, row)];
    if (samples.length !== width * height * bands.length) throw new Error("the file has changed");
    map.set(key, { samples, width, height });
    if (!image.isLeveled && $("map").value === "gray") autoLevels();
    for (const old of map.keys()) {
      if (map.size <= MAX_KEPT) break;
      map.delete(old);
    }
  } catch (error) {
    map.set(key, { error: error.message });
    if (map === tiles && mine === shown) $("problem").textContent = error.message;
  } finally {
    asked--;
    draw();
  }
}

// ---- Input ----

let cursor = null;     // the pixel under the pointer
let isReading = false;

async function tellCursor() {
  if (isReading || !cursor) return;
  isReading = true;
  const { x, y } = cursor;
  const where = `x ${x}, y ${y}`;
  try {
    const { values, bands: numbers } = await json(`pixel/${image.number}/${y}/${x}?bands=${bands}&slice=${slice()}`);
    const named = values.map((value, i) => (values.length > 4 ? `${numbers ? numbers[i] : i}: ${value}` : value));
    $("cursor").textContent = `${where}\n${named.join(", ")}`;
  } catch (error) {
    $("cursor").textContent = `${where}\n${error.message}`;
  }
  isReading = false;
  if (cursor && (cursor.x !== x || cursor.y !== y)) tellCursor();
}

function zoom(factor, atX, atY) {
  const least = Math.min(0.25 / 2 ** image.top_level, canvas.width / image.width / 2);
  const scale = Math.min(64, Math.max(least, view.scale * factor));
  view.x += atX / view.scale - atX / scale;
  view.y += atY / view.scale - atY / scale;
  view.scale = scale;
  draw();
}

canvas.onwheel = (event) => {
  event.preventDefault();
  if (image) zoom(2 ** (-event.deltaY / 300), event.offsetX, event.offsetY);
};
canvas.onpointerdown = (event) => canvas.setPointerCapture(event.pointerId);
canvas.onpointermove = (event) => {
  if (!image) return;
  if (event.buttons) {
    view.x -= event.movementX / view.scale;
    view.y -= event.movementY / view.scale;
    draw();
  }
  const x = Math.floor(view.x + event.offsetX / view.scale);
  const y = Math.floor(view.y + event.offsetY / view.scale);
  cursor = x >= 0 && y >= 0 && x < image.width && y < image.height ? { x, y } : null;
  tellCursor();
};
$("low").oninput = $("high").oninput = $("map").onchange = recolor;
$("slice").oninput = () => {
  $("slice").nextElementSibling.textContent = $("slice").value;
  tiles = new Map();
  draw();
};
$("auto").onclick = () => image && autoLevels();
$("full").onclick = () => image && setLevels(Number($("low").min), Number($("low").max));
$("fit").onclick = () => image && fit();
$("one").onclick = () => image && zoom(1 / view.scale, canvas.width / 2, canvas.height / 2);
$("bands").onchange = () => {
  const chosen = $("bands").value.split(",").map(Number);
  const isSound = [1, 3].includes(chosen.length) && new Set(chosen).size === chosen.length
    && chosen.every((band) => Number.isInteger(band) && band >= 0 && band < image.channels);
  $("problem").textContent = isSound ? "" : `bands: one or three numbers from 0 to ${image.channels - 1}`;
  if (isSound) chooseBands(chosen);
};
$("goto").onchange = () => go(place().kind, $("goto").value - 1);
$("up").onclick = () => go("sheet", Math.floor(place().number / PER_SHEET) * PER_SHEET);
const step = (sign) => {
  const { kind, number } = place();
  const next = number + sign * (kind === "image" ? 1 : PER_SHEET);
  if (next > -PER_SHEET && (!total || next < total)) go(kind, next);
};
$("back").onclick = () => step(-1);
$("forward").onclick = () => step(1);
document.onkeydown = (event) => {
  if (event.target.tagName === "INPUT" || event.target.tagName === "SELECT") return;
  if (event.key === "ArrowLeft") step(-1);
  if (event.key === "ArrowRight") step(1);
  if (event.key === "Escape") $("up").click();
};
window.onresize = draw;
window.onhashchange = show;
show();
