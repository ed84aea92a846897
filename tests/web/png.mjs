// SPDX-License-Identifier: Apache-2.0
// A picture of 8 bits a channel written again as small as it gets without a loss: no alpha, the best filter for each line.
import { deflateSync, inflateSync } from "node:zlib";

const SIGNATURE = Buffer.from([137, 80, 78, 71, 13, 10, 26, 10]);
const TABLE = Array.from({ length: 256 }, (_, n) => {
  for (let i = 0; i < 8; i++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n >>> 0;
});

function crc(data) {
  let c = 0xffffffff;
  for (const byte of data) c = TABLE[(c ^ byte) & 255] ^ (c >>> 8);
  return (c ^ 0xffffffff) >>> 0;
}

function chunk(type, data) {
  const body = Buffer.concat([Buffer.from(type), data]);
  const head = Buffer.alloc(4), tail = Buffer.alloc(4);
  head.writeUInt32BE(data.length);
  tail.writeUInt32BE(crc(body));
  return Buffer.concat([head, body, tail]);
}

function chunks(png) {
  const found = [];
  for (let at = 8; at < png.length;) {
    const length = png.readUInt32BE(at);
    found.push({ type: png.toString("latin1", at + 4, at + 8), data: png.subarray(at + 8, at + 8 + length) });
    at += length + 12;
  }
  return found;
}

function paeth(a, b, c) {
  const p = a + b - c, pa = Math.abs(p - a), pb = Math.abs(p - b), pc = Math.abs(p - c);
  return pa <= pb && pa <= pc ? a : pb <= pc ? b : c;
}

const guess = [() => 0, (a) => a, (a, b) => b, (a, b) => (a + b) >> 1, paeth];

function lines(raw, width, height, n) {
  const stride = width * n, out = [];
  for (let y = 0; y < height; y++) {
    const filter = guess[raw[y * (stride + 1)]], line = Buffer.from(raw.subarray(y * (stride + 1) + 1, (y + 1) * (stride + 1)));
    const above = out[y - 1] || Buffer.alloc(stride);
    for (let x = 0; x < stride; x++) line[x] = (line[x] + filter(x < n ? 0 : line[x - n], above[x], x < n ? 0 : above[x - n])) & 255;
    out.push(line);
  }
  return out;
}

function filtered(line, above, n) {
  let best = null, least = Infinity;
  guess.forEach((fn, type) => {
    const out = Buffer.alloc(line.length + 1);
    let sum = 0;
    out[0] = type;
    for (let x = 0; x < line.length; x++) {
      out[x + 1] = (line[x] - fn(x < n ? 0 : line[x - n], above[x], x < n ? 0 : above[x - n])) & 255;
      sum += Math.min(out[x + 1], 256 - out[x + 1]);
    }
    if (sum < least) [best, least] = [out, sum];
  });
  return best;
}

export function smaller(png) {
  const all = chunks(png);
  const header = Buffer.from(all.find((c) => c.type === "IHDR").data);
  const [width, height, n] = [header.readUInt32BE(0), header.readUInt32BE(4), header[9] === 6 ? 4 : 3];
  const raw = inflateSync(Buffer.concat(all.filter((c) => c.type === "IDAT").map((c) => c.data)));
  const rgb = lines(raw, width, height, n).map((l) => (n === 3 ? l : Buffer.from(l.filter((_, i) => i % 4 !== 3))));
  header[9] = 2;
  const packed = deflateSync(Buffer.concat(rgb.map((l, y) => filtered(l, rgb[y - 1] || Buffer.alloc(l.length), 3))), { level: 9, memLevel: 9 });
  const made = Buffer.concat([SIGNATURE, chunk("IHDR", header), chunk("IDAT", packed), chunk("IEND", Buffer.alloc(0))]);
  return made.length < png.length ? made : png;
}
