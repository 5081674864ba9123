// query.cjs PROCESSOR TRACE SQL...: runs SQL in Perfetto's trace processor; a JSON object for each row.
// PROCESSOR is the folder with trace_processor.wasm (scripts/test-perfetto.sh).
'use strict';
const fs = require('fs'), path = require('path'), vm = require('vm');
const [dir, traceFile, ...sqls] = process.argv.slice(2);

// --- protobuf, only what the RPC needs
const varint = n => { n = BigInt(n); const o = []; do { let b = Number(n & 127n); n >>= 7n; o.push(n ? b | 128 : b); } while (n); return Buffer.from(o); };
const int = (f, v) => Buffer.concat([varint(f << 3), varint(v)]);
const bytes = (f, b) => Buffer.concat([varint(f << 3 | 2), varint(b.length), b]);
function rdv(b, p) { let v = 0n, s = 0n, c; do { c = b[p.i++]; v |= BigInt(c & 127) << s; s += 7n; } while (c & 128); return v; }
function* fields(b) {
  for (const p = { i: 0 }; p.i < b.length;) {
    const k = Number(rdv(b, p)), f = k >> 3;
    switch (k & 7) {
      case 0: yield [f, rdv(b, p)]; break;
      case 1: yield [f, b.subarray(p.i, p.i += 8)]; break;
      case 2: { const n = Number(rdv(b, p)); yield [f, b.subarray(p.i, p.i += n)]; break; }
      case 5: yield [f, b.subarray(p.i, p.i += 4)]; break;
      default: throw Error('wire type ' + (k & 7));
    }
  }
}

// --- a worker-like scope for Perfetto's own engine bundle; the bundle is run as it is
async function boot() {
  const wasm = fs.readFileSync(path.join(dir, 'trace_processor.wasm'));
  const def = (k, v) => Object.defineProperty(globalThis, k, { value: v, writable: true, configurable: true });
  def('self', globalThis); def('WorkerGlobalScope', function () {}); def('location', { href: 'http://tp/' });
  def('XMLHttpRequest', class { open() {} send() { this.response = wasm; } });
  const { Module, Instance } = WebAssembly;
  WebAssembly.Module = function (b) { if (b.length < 100) throw Error('no memory64'); return new Module(b); };
  let ready; const isReady = new Promise(r => ready = r);
  WebAssembly.Instance = function (m, imp) {
    const ex = { ...new Instance(m, imp).exports }, init = ex.trace_processor_rpc_init;
    ex.trace_processor_rpc_init = (...a) => { const r = init(...a); setImmediate(ready); return r; };
    return { exports: ex };
  };
  vm.runInThisContext(fs.readFileSync(path.join(dir, 'engine_bundle.node.js'), 'utf8'));
  WebAssembly.Module = Module; WebAssembly.Instance = Instance;
  let out = [];
  const port = { postMessage: d => out.push(Buffer.from(d)) };
  globalThis.onmessage({ data: port });           // the engine takes its message port
  await isReady;
  let seq = 0;
  return (request, ...parts) => {                 // synchronous: the engine answers inside the call
    out = [];
    const msg = Buffer.concat([int(1, seq++), int(2, request), ...parts]);
    port.onmessage({ data: new Uint8Array(bytes(1, msg)) });
    const msgs = [];
    for (const [, m] of fields(Buffer.concat(out))) {
      const o = [...fields(m)];
      for (const [f, v] of o) if (f === 5) throw Error('fatal: ' + v);
      msgs.push(o);
    }
    return msgs;
  };
}
const find = (msgs, f) => msgs.flat().filter(x => x[0] === f).map(x => x[1]);

function query(rpc, sql) {
  const cols = [], cells = [];
  for (const r of find(rpc(3, bytes(103, bytes(1, Buffer.from(sql)))), 203))   // TPM_QUERY_STREAMING
    for (const [f, v] of fields(r)) {
      if (f === 1) cols.push(v.toString());
      if (f === 2 && v.length) throw Error(v.toString());
      if (f !== 3) continue;
      let types = Buffer.alloc(0), strs = []; const blobs = [], ints = [], dbl = [], n = [0, 0, 0, 0, 0, 0];
      for (const [g, w] of fields(v)) {
        if (g === 1) types = w;
        if (g === 2) for (const p = { i: 0 }; p.i < w.length;) ints.push(BigInt.asIntN(64, rdv(w, p)));
        if (g === 3) for (let i = 0; i < w.length; i += 8) dbl.push(w.readDoubleLE(i));
        if (g === 4) blobs.push(w.toString('hex'));
        if (g === 5) strs = w.toString().split('\0');
      }
      for (const t of types) { const src = [null, null, ints, dbl, strs, blobs][t]; cells.push(src ? src[n[t]++] : null); }
    }
  const rows = [];
  for (let i = 0; i < cells.length; i += cols.length) rows.push(cols.map((c, j) => [c, cells[i + j]]));
  return rows;
}
const show = v => typeof v === 'bigint' ? v.toString() : JSON.stringify(v);

(async () => {
  const rpc = await boot();
  const data = fs.readFileSync(traceFile);
  for (let i = 0; i < data.length; i += 16 << 20)                    // < 64 MiB a frame
    for (const r of find(rpc(1, bytes(101, data.subarray(i, i + (16 << 20)))), 201))
      for (const [f, v] of fields(r)) if (f === 2 && v.length) throw Error('parse: ' + v);
  for (const r of find(rpc(2), 212)) for (const [f, v] of fields(r)) if (Buffer.isBuffer(v) && v.length) throw Error('finalize: ' + v);
  for (const sql of sqls) for (const row of query(rpc, sql)) console.log('{' + row.map(([k, v]) => JSON.stringify(k) + ':' + show(v)).join(',') + '}');
})().catch(e => { console.error(String(e)); process.exit(1); });
