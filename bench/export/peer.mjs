// SPDX-License-Identifier: Apache-2.0
// DuckDB: the same file as partitions of Parquet. Prints the seconds of the COPY alone, and its version.
// usage: peer.mjs FILE csv|jsonl ledger|wide OUT THREADS LEVEL PARTITION_SIZE
import { DuckDBInstance } from '@duckdb/node-api';

const [file, format, profile, out, threads, level, size] = process.argv.slice(2);
const instance = await DuckDBInstance.create(':memory:', { threads });
const db = await instance.connect();
const types = {
  ledger_sequence: 'BIGINT', tx_hash: 'VARCHAR', account: 'VARCHAR', fee: 'BIGINT', op_count: 'INTEGER',
  successful: 'BOOLEAN', closed_at: 'TIMESTAMPTZ', ...(profile === 'wide' ? { memo: 'VARCHAR' } : {}),
};
const columns = `columns={${Object.entries(types).map(([k, v]) => `${k}: '${v}'`).join(', ')}}`;
const from = format === 'csv' ? `read_csv('${file}', header=true, delim=',', auto_detect=false, ${columns})`
  : `read_json('${file}', format='newline_delimited', ${columns})`;
await db.run('SET TimeZone = \'UTC\'');
const started = process.hrtime.bigint();
await db.run(`COPY (SELECT *, ledger_sequence // ${size} AS part FROM ${from}) TO '${out}'
  (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL ${level}, PARTITION_BY (part))`);
const seconds = Number(process.hrtime.bigint() - started) / 1e9;
const version = (await (await db.run('SELECT version()')).getRows())[0][0];
console.log(JSON.stringify({ seconds, version }));
