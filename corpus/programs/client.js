// Node's own HTTP client: keep-alive agent, or a connection for each request; --path, --requests, --connections, --think-ms,
// --poll-ms, --post BYTES, --flush-headers, --nagle, --h2 for HTTP/2 without TLS with --window BYTES. Prints one line of JSON about what it measured.
const http = require('http'), http2 = require('http2');
const option = (name, otherwise) => {
  const at = process.argv.indexOf('--' + name);
  return at < 0 ? otherwise : process.argv[at + 1] ?? true;
};
const flag = name => process.argv.includes('--' + name);
const [host, port] = String(option('address', '10.77.0.2:8080')).split(':');
const requests = +option('requests', 100), connections = +option('connections', 1), post = +option('post', 0);
const sleep = ms => new Promise(done => setTimeout(done, ms));
const times = [], firsts = [];
let failed = 0;

function one(agent) {
  return new Promise(done => {
    const start = process.hrtime.bigint();
    let first;
    const request = http.request({ host, port, agent, path: option('path', '/'), method: post ? 'POST' : 'GET',
      headers: post ? { 'Content-Length': post } : {} }, answer => {
      answer.on('data', () => { first ??= process.hrtime.bigint(); });
      answer.on('end', () => {
        const end = process.hrtime.bigint();
        times.push(Number(end - start) / 1e3);
        firsts.push(Number((first ?? end) - start) / 1e3);
        // The agent has its socket back only after this turn.
        setImmediate(done);
      });
      answer.on('error', () => { failed++; done(); });
    });
    request.on('error', () => { failed++; done(); });
    const end = () => request.end(post ? 'b'.repeat(post) : undefined);
    if (!flag('flush-headers')) return end();
    // The body comes from a stream, and so in a later turn than the header.
    request.flushHeaders();
    request.on('socket', () => setImmediate(() => setImmediate(end)));
  });
}

function stream(session) {
  return new Promise(done => {
    const start = process.hrtime.bigint();
    let first;
    const request = session.request({ ':path': option('path', '/') });
    request.on('data', () => { first ??= process.hrtime.bigint(); });
    request.on('end', () => {
      times.push(Number(process.hrtime.bigint() - start) / 1e3);
      firsts.push(Number(first - start) / 1e3);
      done();
    });
    request.on('error', () => { failed++; done(); });
    request.end();
  });
}

async function loop() {
  const agent = new http.Agent({ keepAlive: !flag('no-keep-alive'), maxSockets: 1, noDelay: !flag('nagle') });
  const session = flag('h2') && http2.connect(`http://${host}:${port}`, { settings: { initialWindowSize: +option('window', 65535) } });
  if (session) session.on('connect', () => session.setLocalWindowSize(+option('session-window', option('window', 65535))));
  const began = Date.now();
  for (let i = 0; i < requests; i++) {
    if (option('poll-ms')) await sleep(Math.max(0, began + i * +option('poll-ms') - Date.now()));
    else if (i && option('think-ms')) await sleep(+option('think-ms'));
    await (session ? stream(session) : one(agent));
  }
  agent.destroy();
  if (session) session.close();
}

const begin = process.hrtime.bigint();
Promise.all(Array.from({ length: connections }, loop)).then(() => {
  const seconds = Number(process.hrtime.bigint() - begin) / 1e9;
  const mean = values => values.reduce((a, b) => a + b, 0) / Math.max(1, values.length);
  times.sort((a, b) => a - b);
  console.log(JSON.stringify({ operations: times.length, failed, seconds, rate: times.length / seconds, mean_us: mean(times),
    p50_us: times[times.length >> 1] ?? 0, p99_us: times[Math.floor(times.length * 0.99)] ?? 0, first_us: mean(firsts) }));
});
