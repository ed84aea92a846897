// SPDX-License-Identifier: Apache-2.0
// Every sample of parquet_samples, read by DuckDB, hyparquet and Arrow (arrow-rs, by parquet-wasm), cell by cell; and
// queries with predicates, for which the bounds in the footer let readers skip row groups: they must find the same rows
// as queries that read everything. TAP.
//
// usage: node readers.mjs FOLDER     FOLDER is what parquet_samples wrote; modules come from SLUICE_PARQUET_MODULES
import fs from 'node:fs';
import path from 'node:path';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const folder = process.argv[2];
const modules = createRequire(pathToFileURL(path.join(process.env.SLUICE_PARQUET_MODULES, 'x.js')));
const load = name => import(pathToFileURL(modules.resolve(name)));
const { DuckDBInstance } = await load('@duckdb/node-api');
const hyparquet = await load('hyparquet');
const { compressors } = await load('hyparquet-compressors');
const parquetWasm = await load('parquet-wasm');
const arrow = await load('apache-arrow');

// ---- cells, as parquet_samples writes them ----
const view = new DataView(new ArrayBuffer(8));
const floatCell = v => Number.isNaN(v) ? 'nan' : (view.setFloat32(0, v), view.getUint32(0).toString(16).padStart(8, '0'));
const doubleCell = v => Number.isNaN(v) ? 'nan' : (view.setFloat64(0, v), view.getBigUint64(0).toString(16).padStart(16, '0'));
const hexCell = v => Buffer.from(v.buffer, v.byteOffset, v.byteLength).toString('hex');
const textCell = v => Buffer.from(v, 'utf8').toString('hex');
const boolCell = v => v ? 't' : 'f';
const numberCell = v => v.toString();

const path_of = name => path.join(folder, name + '.parquet');
const lines_of = (name, i) => fs.readFileSync(path.join(folder, `${name}.${i}.cells`), 'latin1').split('\n');

class Mismatch extends Error {}

// Compare a column's values, one by one, with what was written.
class Expected {
  constructor(name, i) {
    this.what = `${name}, column ${i}`;
    this.lines = lines_of(name, i);
    this.row = 0;
  }
  next(cell) {
    if (cell !== this.lines[this.row])
      throw new Mismatch(`${this.what}, row ${this.row}: ${cell} is read, ${this.lines[this.row]} was written`);
    this.row++;
  }
  end() {
    if (this.row !== this.lines.length - 1)
      throw new Mismatch(`${this.what}: ${this.row} rows are read, ${this.lines.length - 1} were written`);
    return this.row;
  }
}

// ---- DuckDB ----
const duck = await (await DuckDBInstance.create(':memory:')).connect();
await duck.run("SET TimeZone = 'UTC'");

function duckCell(type, unit) {
  const by = {
    BOOLEAN: boolCell, INTEGER: numberCell, BIGINT: numberCell, FLOAT: floatCell, DOUBLE: doubleCell, VARCHAR: textCell,
    BLOB: v => hexCell(v.bytes), DATE: v => numberCell(v.days), DECIMAL: v => numberCell(v.value),
    // DuckDB has microseconds for what is in UTC.
    TIMESTAMP: v => numberCell(v.micros),
    'TIMESTAMP WITH TIME ZONE': v => numberCell(unit.includes('ts_millis') ? v.micros / 1000n : v.micros),
  };
  const name = type.toString().replace(/\(.*/, '');
  if (!by[name])
    throw new Mismatch(`DuckDB gives the type ${type}`);
  return by[name];
}

async function readDuck(name) {
  const result = await duck.stream(`SELECT * FROM read_parquet('${path_of(name)}')`);
  const names = result.columnNames(), types = result.columnTypes();
  const expected = names.map((_, i) => new Expected(name, i));
  const cells = types.map((t, i) => duckCell(t, names[i]));
  for (;;) {
    const chunk = await result.fetchChunk();
    if (!chunk || chunk.rowCount === 0)
      break;
    for (let i = 0; i < names.length; i++) {
      const nanos = names[i].includes('ts_nanos');
      for (const v of chunk.getColumnValues(i)) {
        if (v !== null && nanos) { // to the microsecond, as far as DuckDB goes
          const want = BigInt(expected[i].lines[expected[i].row]);
          if (v.micros !== want / 1000n && v.micros !== (want - 999n) / 1000n)
            throw new Mismatch(`${name}.ts_nanos, row ${expected[i].row}: ${v.micros} for ${want}`);
          expected[i].row++;
        } else {
          expected[i].next(v === null ? 'NULL' : cells[i](v));
        }
      }
    }
  }
  return expected.reduce((n, e) => n + e.end(), 0);
}

// ---- hyparquet ----
const parsers = {
  timestampFromMilliseconds: v => v, timestampFromMicroseconds: v => v, timestampFromNanoseconds: v => v, dateFromDays: v => v,
};

function asyncBuffer(name) {
  const bytes = fs.readFileSync(path_of(name));
  const buffer = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
  return { byteLength: buffer.byteLength, slice: (from, to) => buffer.slice(from, to) };
}

function hyCell(element) {
  const logical = element.logical_type?.type, scale = 10 ** -(element.scale ?? 0);
  if (element.type === 'FLOAT')
    return floatCell;
  if (element.type === 'DOUBLE')
    return doubleCell;
  if (element.type === 'BOOLEAN')
    return boolCell;
  if (element.type === 'BYTE_ARRAY')
    return logical === 'STRING' ? textCell : hexCell;
  if (element.type === 'FIXED_LEN_BYTE_ARRAY')
    return hexCell;
  // A decimal is a number in JavaScript: what it can hold is compared.
  return logical === 'DECIMAL' ? (v, want) => v === Number(want) * scale ? want : `${v}` : numberCell;
}

async function readHyparquet(name) {
  const file = asyncBuffer(name), metadata = hyparquet.parquetMetadata(await file.slice(0));
  const elements = metadata.schema.slice(1);
  const cells = elements.map(hyCell), expected = elements.map((_, i) => new Expected(name, i));
  const at = new Map(elements.map((e, i) => [e.name, i]));
  await hyparquet.parquetRead({
    file, metadata, compressors, parsers, utf8: false,
    onChunk: ({ columnName, columnData, rowStart }) => {
      const i = at.get(columnName);
      expected[i].row = Number(rowStart);
      for (const v of columnData)
        expected[i].next(v === null || v === undefined ? 'NULL' : cells[i](v, expected[i].lines[expected[i].row]));
    },
  });
  return expected.reduce((n, e) => n + e.end(), 0);
}

// ---- Arrow ----
const { Type } = arrow;

// The values as they lie in Arrow's memory: its own accessors round timestamps.
function* arrowCells(data) {
  const type = data.typeId, n = data.length;
  for (let k = 0; k < n; k++) {
    if (!data.getValid(k)) {
      yield 'NULL';
      continue;
    }
    const v = data.values;
    if (type === Type.Bool) {
      const bit = k + data.offset;
      yield boolCell(v[bit >> 3] >> (bit & 7) & 1);
    } else if (type === Type.Float) {
      yield v instanceof Float32Array ? floatCell(v[k]) : doubleCell(v[k]);
    } else if (type === Type.Utf8 || type === Type.Binary) {
      yield hexCell(v.subarray(data.valueOffsets[k], data.valueOffsets[k + 1]));
    } else if (type === Type.FixedSizeBinary) {
      yield hexCell(v.subarray(k * data.type.byteWidth, (k + 1) * data.type.byteWidth));
    } else if (type === Type.Decimal) {
      const words = new BigInt64Array(v.buffer, v.byteOffset + k * data.type.bitWidth / 8, 1);
      yield numberCell(words[0]);
    } else {
      yield numberCell(v[k]);
    }
  }
}

async function readArrow(name) {
  const table = arrow.tableFromIPC(parquetWasm.readParquet(fs.readFileSync(path_of(name))).intoIPCStream());
  let cells = 0;
  const columns = table.schema.fields.length;
  for (let i = 0; i < columns; i++) {
    const expected = new Expected(name, i);
    for (const batch of table.batches)
      for (const cell of arrowCells(batch.getChildAt(i).data[0]))
        expected.next(cell);
    cells += expected.end();
  }
  return cells;
}

// ---- predicates ----

// Both sides of the comparison see the same rows; only one of them can prune.
async function samePredicates(name, predicates) {
  await duck.run(`CREATE OR REPLACE TABLE whole AS SELECT * FROM read_parquet('${path_of(name)}')`);
  let rows = 0;
  for (const p of predicates) {
    const count = async from => Number((await duck.runAndReadAll(`SELECT count(*) FROM ${from} WHERE ${p}`)).getRows()[0][0]);
    const pruned = await count(`read_parquet('${path_of(name)}')`), all = await count('whole');
    if (pruned !== all)
      throw new Mismatch(`${name} WHERE ${p}: ${pruned} rows with pruning, ${all} without`);
    rows += all;
  }
  return rows;
}

async function predicates() {
  const of = (column, ...values) => values.flatMap(v => ['=', '<', '<=', '>', '>=', '<>'].map(op => `"${column}" ${op} ${v}`));
  const nulls = c => [`"${c}" IS NULL`, `"${c}" IS NOT NULL`];
  let rows = await samePredicates('rising', [
    ...of('int64', 1000002, 1029999, 1030002, 1149999, 999999, 2000000), ...of('string', "'key-000001000010'", "'key-000001090010'", "''", "'zzz'"),
    ...of('double', 250000, 262500.5, 0), ...of('int32', 1000001, 1100000), ...of('ts_micros', "'1970-01-01 00:00:01.05+00'", "'2001-01-01 00:00:00+00'"),
    ...of('date', "'2000-01-01'", "'1901-01-01'"), ...of('decimal', '100.0009', '0.0001'), ...of('bool', 'true', 'false'),
    ...of('binary', "'a'::BLOB", "'\\xFF'::BLOB"), ...of('fixed', "'\\x00'::BLOB", "'\\x80\\x00'::BLOB", "'\\xFF'::BLOB")]);
  rows += await samePredicates('extremes', [
    ...of('int64', '9223372036854775807', '(-9223372036854775807 - 1)', 0), ...of('string', "''", "'ü'", "'a'", "chr(127)"),
    ...of('double', "'inf'::DOUBLE", "'-inf'::DOUBLE", '0.0', '-0.0'), ...nulls('string'), ...nulls('double')]);
  rows += await samePredicates('nan_and_zero', [
    ...of('double', "'nan'::DOUBLE", '0.0', '-0.0', 5, 100, -1), ...of('float', "'nan'::FLOAT", '0.0', '-0.0', 5, 100, -1)]);
  rows += await samePredicates('all_null', [...nulls('int64'), ...nulls('string'), ...of('double', 0)]);
  rows += await samePredicates('dictionary', [...nulls('bool'), ...of('bool', 'true', 'false'), ...of('int32', 0), ...of('string', "'m'")]);
  if (rows === 0)
    throw new Mismatch('no predicate found a row');
  return rows;
}

// hyparquet compares with the same bounds.
async function hyparquetPredicates() {
  const file = asyncBuffer('rising');
  const rows = await hyparquet.parquetReadObjects({ file, compressors });
  const tests = [['int64', 1029999n], ['int64', 1090005n], ['string', 'key-000001090010'], ['double', 262500.5], ['int32', 1100000]];
  let found = 0;
  for (const [column, value] of tests) {
    for (const [op, holds] of [['$gt', v => v > value], ['$lte', v => v <= value], ['$eq', v => v === value]]) {
      const got = await hyparquet.parquetReadObjects({ file, compressors, columns: [column], filter: { [column]: { [op]: value } } });
      const want = rows.filter(r => holds(r[column])).length;
      if (got.length !== want)
        throw new Mismatch(`rising, ${column} ${op} ${value}: ${got.length} rows with pruning, ${want} without`);
      found += want;
    }
  }
  return found;
}

// A row group that a predicate rules out is not even read: its bytes may be nonsense.
async function pruning() {
  const bytes = fs.readFileSync(path_of('rising')), metadata = hyparquet.parquetMetadata(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength));
  const chunk = metadata.row_groups[1].columns.find(c => c.meta_data.path_in_schema[0] === 'int64').meta_data;
  const at = Number(chunk.data_page_offset);
  bytes.fill(0xFF, at, at + Number(chunk.total_compressed_size));
  const damaged = path.join(folder, 'rising_damaged.parquet');
  fs.writeFileSync(damaged, bytes);
  const count = p => duck.runAndReadAll(`SELECT count(*), sum(int64) FROM read_parquet('${damaged}') WHERE ${p}`).then(r => Number(r.getRows()[0][0]));
  const far = await count('int64 > 1100000');
  if (far !== 16667)
    throw new Mismatch(`${far} rows after the damage, 16667 were written`);
  const through = await count('int64 > 0').then(() => true, () => false);
  if (through)
    throw new Mismatch('the damage was not there');
  return far;
}

// ---- types ----
async function duckTypes() {
  const rows = (await duck.runAndReadAll(`DESCRIBE SELECT * FROM read_parquet('${path_of('nullable')}')`)).getRows();
  const got = rows.map(r => `${r[0]} ${r[1]}`).join(', ');
  const want = 'bool BOOLEAN, int32 INTEGER, int64 BIGINT, float FLOAT, double DOUBLE, ts_millis TIMESTAMP WITH TIME ZONE, '
    + 'ts_micros TIMESTAMP WITH TIME ZONE, ts_nanos TIMESTAMP WITH TIME ZONE, date DATE, decimal DECIMAL(18,4), string VARCHAR, '
    + 'binary BLOB, fixed BLOB, ts_local TIMESTAMP';
  if (got !== want)
    throw new Mismatch(`${got}; wanted ${want}`);
  return rows.length;
}

async function arrowTypes() {
  const schema = arrow.tableFromIPC(parquetWasm.readParquet(fs.readFileSync(path_of('nullable'))).intoIPCStream()).schema;
  const got = schema.fields.map(f => `${f.name} ${f.type}`).join(', ');
  const want = 'bool Bool, int32 Int32, int64 Int64, float Float32, double Float64, ts_millis Timestamp<MILLISECOND, UTC>, '
    + 'ts_micros Timestamp<MICROSECOND, UTC>, ts_nanos Timestamp<NANOSECOND, UTC>, date Date32<DAY>, decimal Decimal[18e+4], '
    + 'string Utf8, binary Binary, fixed FixedSizeBinary[5], ts_local Timestamp<MICROSECOND>';
  if (got !== want)
    throw new Mismatch(`${got}; wanted ${want}`);
  return schema.fields.length;
}

// ---- all of it ----
const names = fs.readdirSync(folder).filter(n => n.endsWith('.parquet') && !n.includes('damaged')).map(n => n.replace('.parquet', '')).sort();
const each = read => async () => {
  let cells = 0;
  for (const name of names) {
    try {
      cells += await read(name);
    } catch (e) {
      throw e instanceof Mismatch ? e : new Mismatch(`${name}: ${e.message ?? e}`);
    }
  }
  return cells;
};
const tests = [
  ['DuckDB reads every cell of every sample', each(readDuck)], ['hyparquet reads every cell of every sample', each(readHyparquet)],
  ['Arrow reads every cell of every sample', each(readArrow)], ['DuckDB finds the same rows with pruning and without', predicates],
  ['hyparquet finds the same rows with pruning and without', hyparquetPredicates], ['DuckDB does not read a row group that the bounds rule out', pruning],
  ['DuckDB sees the types that were meant', duckTypes], ['Arrow sees the types that were meant', arrowTypes],
];
let failed = names.length === 0;
console.log(`1..${tests.length}`);
for (const [i, [name, run]] of tests.entries()) {
  try {
    const from = Date.now(), n = await run();
    console.log(`ok ${i + 1} - ${name}\n# ${n} in ${Date.now() - from} ms`);
  } catch (e) {
    failed = true;
    console.log(`not ok ${i + 1} - ${name}\n# ${e instanceof Mismatch ? e.message : e.stack}`);
  }
}
process.exit(failed ? 1 : 0);
