// Node's own HTTP server: --size BYTES, --no-delay BOOLEAN, --timer-ms for work that a timer looks for, --chunks N --gap-ms,
// --h2 for HTTP/2 without TLS.
const http = require('http'), http2 = require('http2');
const option = (name, otherwise) => {
  const at = process.argv.indexOf('--' + name);
  return at < 0 ? otherwise : process.argv[at + 1];
};
const body = 'x'.repeat(+option('size', 300)), chunks = +option('chunks', 0), timer = +option('timer-ms', 0);
const waiting = [];
if (timer) setInterval(() => { while (waiting.length) waiting.shift()(); }, timer);

function answer(request, response) {
  request.resume();
  const reply = () => {
    if (!chunks) {
      response.setHeader('Content-Length', body.length);
      return response.end(body);
    }
    let left = chunks;
    const next = () => {
      response.write(body);
      if (--left) setTimeout(next, +option('gap-ms', 20));
      else response.end();
    };
    next();
  };
  if (timer) waiting.push(reply); else reply();
}
const server = process.argv.includes('--h2') ? http2.createServer(answer) : http.createServer({ noDelay: option('no-delay', 'true') === 'true' }, answer);
server.listen(8080, '0.0.0.0');
