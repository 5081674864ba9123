// A browser by Chromium's DevTools protocol over a pipe: no library, no port.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';

export class Browser {
  constructor() {
    this.home = fs.mkdtempSync(path.join(os.tmpdir(), 'roundtrip-pages-'));
    const flags = [
      '--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run', '--disable-background-networking',
      '--disable-component-update', '--disable-extensions', '--hide-scrollbars', `--user-data-dir=${this.home}`, '--remote-debugging-pipe', 'about:blank',
    ];
    this.child = spawn('chromium', flags, { stdio: ['ignore', 'ignore', 'pipe', 'pipe', 'pipe'], env: { ...process.env, HOME: this.home } });
    this.said = '';
    this.child.stderr.on('data', data => { this.said = (this.said + data).slice(-4000); });
    this.waiting = new Map();
    this.listeners = [];
    this.next = 1;
    let rest = '';
    this.child.stdio[4].on('data', data => {
      rest += data;
      const messages = rest.split('\0');
      rest = messages.pop();
      for (const message of messages.map(JSON.parse)) {
        const { resolve, reject } = this.waiting.get(message.id) ?? {};
        this.waiting.delete(message.id);
        if (message.error) reject?.(new Error(JSON.stringify(message.error)));
        else if (resolve) resolve(message.result);
        else for (const listen of this.listeners) listen(message);
      }
    });
    this.ended = new Promise(resolve => this.child.on('exit', code => {
      for (const { reject } of this.waiting.values()) reject(new Error(`chromium ended with ${code}: ${this.said}`));
      resolve();
    }));
  }

  send(method, params = {}, sessionId = undefined) {
    const id = this.next++;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      this.child.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    });
  }

  async close() {
    await Promise.race([this.send('Browser.close').catch(() => {}), new Promise(resolve => setTimeout(resolve, 3000))]);
    this.child.kill('SIGKILL');
    await this.ended;
    fs.rmSync(this.home, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }

  // A page at a file, of this width, in a theme.
  async open(file, { width, theme }) {
    const { targetId } = await this.send('Target.createTarget', { url: 'about:blank' });
    const { sessionId } = await this.send('Target.attachToTarget', { targetId, flatten: true });
    const tab = new Tab(this, sessionId, targetId);
    await tab.begin(file, width, theme);
    return tab;
  }
}

class Tab {
  constructor(browser, session, target) {
    Object.assign(this, { browser, session, target, problems: [], requests: [] });
    browser.listeners.push(this.listen = message => {
      if (message.sessionId !== session) return;
      const { method, params } = message;
      if (method === 'Runtime.exceptionThrown') this.problems.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
      if (method === 'Runtime.consoleAPICalled') this.problems.push(params.args.map(one => one.value ?? one.description).join(' '));
      if (method === 'Log.entryAdded') this.problems.push(params.entry.text);
      if (method === 'Network.requestWillBeSent') this.requests.push(params.request.url);
      if (method === 'Page.loadEventFired') this.loaded?.();
    });
  }

  send(method, params) { return this.browser.send(method, params, this.session); }

  async begin(file, width, theme) {
    for (const domain of ['Page', 'Runtime', 'Log', 'Network']) await this.send(`${domain}.enable`);
    await this.send('Emulation.setDeviceMetricsOverride', { width, height: 900, deviceScaleFactor: 1, mobile: false });
    await this.send('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: theme }] });
    const loaded = new Promise(resolve => { this.loaded = resolve; });
    await this.send('Page.navigate', { url: `file://${file}` });
    await loaded;
    await this.settle();
  }

  // Until two frames are drawn.
  settle() { return this.run(() => new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(resolve, 30))))); }

  // The result of a function in the page.
  async run(of, ...args) {
    const expression = typeof of === 'string' ? of : `(${of})(...${JSON.stringify(args)})`;
    const { result, exceptionDetails } = await this.send('Runtime.evaluate', { expression, awaitPromise: true, returnByValue: true });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  async key(key, code = key) {
    const text = key === 'Enter' ? '\r' : key.length === 1 ? key : undefined;
    const windowsVirtualKeyCode = { Enter: 13, Escape: 27 }[key];
    await this.send('Input.dispatchKeyEvent', { type: 'keyDown', key, code, text, windowsVirtualKeyCode });
    await this.send('Input.dispatchKeyEvent', { type: 'keyUp', key, code, windowsVirtualKeyCode });
    await this.settle();
  }

  mouse(type, x, y, more = {}) { return this.send('Input.dispatchMouseEvent', { type, x, y, button: 'left', buttons: 1, clickCount: 1, ...more }); }

  async click(x, y) {
    await this.send('Input.dispatchMouseEvent', { type: 'mouseMoved', x, y });
    await this.mouse('mousePressed', x, y);
    await this.mouse('mouseReleased', x, y);
    await this.settle();
  }

  async drag(x0, y0, x1, y1) {
    await this.send('Input.dispatchMouseEvent', { type: 'mouseMoved', x: x0, y: y0 });
    await this.mouse('mousePressed', x0, y0);
    for (const part of [0.3, 0.6, 1]) await this.mouse('mouseMoved', x0 + (x1 - x0) * part, y0 + (y1 - y0) * part);
    await this.mouse('mouseReleased', x1, y1);
    await this.settle();
  }

  async picture(file) {
    const { data } = await this.send('Page.captureScreenshot', { captureBeyondViewport: true });
    fs.writeFileSync(file, Buffer.from(data, 'base64'));
  }

  async close() {
    this.browser.listeners.splice(this.browser.listeners.indexOf(this.listen), 1);
    await this.browser.send('Target.closeTarget', { targetId: this.target });
  }
}
