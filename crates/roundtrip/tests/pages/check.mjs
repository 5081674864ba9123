// Checks pages of results in a browser: node check.mjs AXE.js FOLDER NAME...
// FOLDER has NAME.html and NAME.json. What does not hold is told, one line each, and makes the exit code 1.
import fs from 'node:fs';
import path from 'node:path';
import { Browser } from './browser.mjs';

const [axe, folder, ...names] = process.argv.slice(2);
const wrong = [];
const expect = (holds, what) => { if (!holds) wrong.push(what); };

// Of a comparison: parts are times, and so is what has the unit in its name.
const isChangeOfTime = (json, at) => {
  const [, row, kind, number] = at.match(/^\/rows\/([0-9]+)\/(parts|quantities)\/([0-9]+)\/(before|after)$/) ?? [];
  return kind === 'parts' || kind === 'quantities' && json.rows[row].quantities[number].name.endsWith(' us');
};

// The places whose text is another number than the JSON has. Times are in the page's unit.
const numbers = (json, cells, unit) => {
  const per = { 'µs': 1, ms: 1e3, s: 1e6 }[unit];
  return cells.filter(({ at, text }) => {
    const value = at.split('/').slice(1).reduce((of, key) => of?.[key], json);
    const shown = text.replace(/[\s\u202f\u00a0]/g, '').match(/^[+-]?[0-9]+(\.([0-9]+))?/);
    if (typeof value !== 'number' || !shown) return true;
    const isTime = /_us(\/|$)|rtt_us|latency_us|request_us|response_us/.test(at) || isChangeOfTime(json, at);
    const digits = shown[2]?.length ?? 0;
    return Math.abs(+shown[0] - value / (isTime ? per : 1)) > 0.5000001 * 10 ** -digits;
  });
};

const scaled = (json, by) => {
  if (typeof json === 'number') return json * by + (json === 0 ? 1 : 0);
  if (Array.isArray(json)) return json.map(one => scaled(one, by));
  if (json && typeof json === 'object') return Object.fromEntries(Object.entries(json).map(([key, value]) => [key, scaled(value, by)]));
  return json;
};

const browser = new Browser();
try {
  for (const name of names) {
    const file = path.join(folder, `${name}.html`);
    const json = JSON.parse(fs.readFileSync(path.join(folder, `${name}.json`), 'utf8'));
    expect(fs.statSync(file).size < 5e6, `${name}: the page has 5 MB or more`);
    for (const [width, theme] of [[390, 'dark'], [390, 'light'], [768, 'light'], [1600, 'dark'], [1600, 'light']]) {
      const at = `${name}, ${width} px, ${theme}`;
      const tab = await browser.open(file, { width, theme });
      expect(await tab.run(() => document.documentElement.dataset.theme) === theme, `${at}: another theme than the system's`);
      const wide = await tab.run(() => document.documentElement.scrollWidth);
      expect(wide <= width, `${at}: the page is ${wide} px wide`);
      await tab.run(fs.readFileSync(axe, 'utf8'));
      await tab.run(() => { for (const one of document.querySelectorAll('details')) one.open = true; });
      await tab.settle();
      const found = await tab.run(() => axe.run().then(({ violations }) => violations.map(one => ({ id: one.id, impact: one.impact, of: one.nodes[0].html.slice(0, 200) }))));
      for (const one of found) expect(!['serious', 'critical'].includes(one.impact), `${at}: axe: ${one.impact}: ${one.id}: ${one.of}`);
      const open = await tab.run(() => document.documentElement.scrollWidth);
      expect(open <= width, `${at}: the page is ${open} px wide with all folds open`);
      if (width === 1600 && theme === 'light') {
        await charts(tab, at);
        await terms(tab, at);
        await bars(tab, at);
        const cells = await tab.run(() => [...document.querySelectorAll('[data-at]')].map(one => ({ at: one.dataset.at, text: one.textContent })));
        const unit = await tab.run(() => document.querySelector('footer').textContent.match(/ in (µs|ms|s),/)[1]);
        expect(cells.length > 2, `${at}: only ${cells.length} numbers to check`);
        for (const { at: place, text } of numbers(json, cells, unit)) wrong.push(`${at}: ${place} is shown as ${text}`);
        // The check itself can fail.
        const other = numbers(scaled(json, 1.7), cells, unit).length;
        expect(other > cells.length * 0.9, `${at}: the check of numbers let pass ${cells.length - other} of ${cells.length} that are wrong`);
      }
      expect(tab.problems.length === 0, `${at}: the console says: ${tab.problems.join('; ')}`);
      const elsewhere = tab.requests.filter(url => !url.startsWith('file://') && !url.startsWith('data:') && url !== 'about:blank');
      expect(elsewhere.length === 0, `${at}: asks for ${elsewhere.join(', ')}`);
      expect(await tab.run(() => window.acted === undefined), `${at}: a text acted`);
      if (process.env.ROUNDTRIP_PICTURES) await tab.picture(path.join(process.env.ROUNDTRIP_PICTURES, `${name}-${width}-${theme}.png`));
      await tab.close();
    }
  }
  await many(path.join(folder, `${names[0]}.html`));
} finally {
  await browser.close();
}
for (const one of wrong) console.log(one);
process.exit(wrong.length ? 1 : 0);

// Zoom by buttons, keys and the mouse; toggles; links.
async function charts(tab, at) {
  const count = await tab.run(() => window.roundtrip.all.length);
  const figures = await tab.run(() => document.querySelectorAll('figure.chart').length);
  expect(count === figures, `${at}: ${figures} charts, of which ${count} are drawn`);
  const range = index => tab.run(index => { const { min, max } = roundtrip.all[index].plot.scales.x; return [min, max]; }, index);
  const close = (a, b) => Math.abs(a - b) <= 1e-9 * Math.max(Math.abs(a), Math.abs(b), 1e-9);
  const same = (a, b) => close(a[0], b[0]) && close(a[1], b[1]);
  for (let index = 0; index < count; index++) {
    const of = `${at}, chart ${index}`;
    const drawn = await tab.run(index => {
      const { canvas } = roundtrip.all[index].plot.ctx;
      const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      let coloured = 0;
      for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 200 && Math.max(data[i], data[i + 1], data[i + 2]) - Math.min(data[i], data[i + 1], data[i + 2]) > 60) coloured++;
      return coloured;
    }, index);
    expect(drawn > 10, `${of}: nothing is drawn`);
    const whole = await range(index);
    const press = name => tab.run((index, name) => { roundtrip.all[index].figure.querySelector(`.buttons button[title="${name}"]`).click(); }, index, name);
    await press('zoom in');
    const near = await range(index);
    expect(near[1] - near[0] < whole[1] - whole[0], `${of}: 'zoom in' does nothing`);
    await press('move right');
    expect((await range(index))[0] > near[0], `${of}: 'move right' does nothing`);
    await press('show all');
    expect(same(await range(index), whole), `${of}: 'show all' does not show all`);
    await tab.run(index => { const { place } = roundtrip.all[index]; place.scrollIntoView({ block: 'center' }); place.focus(); }, index);
    await tab.key('+');
    expect((await range(index))[1] < whole[1], `${of}: the key + does nothing`);
    await tab.key('0');
    expect(same(await range(index), whole), `${of}: the key 0 does not show all`);
    const box = await tab.run(index => { const { left, top, width, height } = roundtrip.all[index].plot.over.getBoundingClientRect(); return { left, top, width, height }; }, index);
    await tab.drag(box.left + box.width * 0.3, box.top + box.height * 0.5, box.left + box.width * 0.7, box.top + box.height * 0.52);
    const dragged = await range(index);
    expect(dragged[0] > whole[0] && dragged[1] < whole[1], `${of}: dragging does not zoom: ${dragged} of ${whole}`);
    await press('show all');
    const toggled = await tab.run(index => {
      const chart = roundtrip.all[index], boxes = [...chart.figure.querySelectorAll('.tools label input:not([class])')];
      const shown = () => chart.plot.series.slice(1).filter(one => one.show).length;
      if (boxes.length === 0) return true;
      const before = shown();
      boxes[0].click();
      const without = shown();
      boxes[0].click();
      return without < before && shown() === before;
    }, index);
    expect(toggled, `${of}: a toggle does nothing`);
    const link = await tab.run(index => {
      const chart = roundtrip.all[index], links = chart.links.find(one => one);
      if (!links) return null;
      const nth = links.findIndex(one => one), { left, top } = chart.plot.over.getBoundingClientRect();
      return { id: links[nth], x: left + chart.plot.valToPos(chart.plot.data[0][nth], 'x'), y: top + chart.plot.valToPos(chart.plot.data[1][nth], 'y') };
    }, index);
    if (link) {
      await tab.click(link.x, link.y);
      const [hash, focused, seen] = await tab.run(id => {
        const row = document.getElementById(id), { top, bottom } = row.getBoundingClientRect();
        return [location.hash, document.activeElement === row, bottom > 0 && top < innerHeight];
      }, link.id);
      expect(hash === `#${link.id}` && focused && seen, `${of}: a point does not lead to its operation: ${hash}`);
    }
  }
}

// A bar is as long as its figure on its axis.
async function bars(tab, at) {
  const all = await tab.run(() => [...document.querySelectorAll('figure.bars')].map(figure => ({
    title: figure.querySelector('figcaption').textContent,
    ticks: [...figure.querySelectorAll('.ticks span')].map(one => [parseFloat(one.style.left), one.textContent]),
    bars: [...figure.querySelectorAll('.track')].map(one => [parseFloat(one.querySelector('i').style.width), one.nextElementSibling.textContent]),
  })));
  const number = text => parseFloat(text) * { k: 1e3, M: 1e6, G: 1e9 }[text.at(-1)] || parseFloat(text);
  for (const { title, ticks, bars } of all) {
    // Where a figure is on the axis follows from two of its ticks; on a logarithmic one by their powers.
    const warp = title.includes('logarithmic') ? Math.log : value => value;
    const places = ticks.map(([left, label]) => [left, warp(number(label))]).filter(([, value]) => isFinite(value));
    const [[left0, value0], [left1, value1]] = [places[0], places.at(-1)];
    expect(left1 > left0, `${at}: ${title}: an axis of one tick`);
    for (const [width, text] of bars) {
      const due = left0 + (warp(number(text)) - value0) / (value1 - value0) * (left1 - left0);
      // Figures are told to three digits behind the point; where that is little of them, their length says nothing.
      if (number(text) < 0.05 || number(text) === 0) continue;
      expect(Math.abs(Math.max(due, 0) - width) < 2, `${at}: ${title}: ${text} is ${width} % long, and ${due.toFixed(1)} % on its axis`);
    }
  }
}

// A term is explained at a click and by keys, and Escape closes it; the theme changes.
async function terms(tab, at) {
  const id = await tab.run(() => { const one = document.querySelector('button.term'); one?.scrollIntoView({ block: 'center' }); one?.focus(); return one?.getAttribute('popovertarget'); });
  if (id) {
    await tab.key('Enter');
    expect(await tab.run(id => document.getElementById(id).matches(':popover-open'), id), `${at}: a term does not explain itself`);
    await tab.key('Escape');
    expect(await tab.run(id => !document.getElementById(id).matches(':popover-open'), id), `${at}: Escape does not close a term`);
    const unexplained = await tab.run(() => [...document.querySelectorAll('.ring .stage .named')].map(one => one.textContent));
    expect(unexplained.length === 0, `${at}: stages without an explanation: ${unexplained.join(', ')}`);
  }
  const themes = await tab.run(() => {
    const seen = () => [document.documentElement.dataset.theme, getComputedStyle(document.body).backgroundColor];
    const before = seen();
    document.getElementById('theme').click();
    const after = seen();
    document.getElementById('theme').click();
    return [before, after, seen()];
  });
  expect(themes[0][0] !== themes[1][0] && themes[0][1] !== themes[1][1] && themes[0][1] === themes[2][1], `${at}: the theme does not change: ${themes}`);
}

// A million points can be drawn, zoomed and moved.
async function many(file) {
  const tab = await browser.open(file, { width: 1600, theme: 'light' });
  const [drawn, took] = await tab.run(() => {
    const figure = document.querySelector('figure.chart').cloneNode(true);
    figure.querySelector('.tools').textContent = '';
    figure.querySelector('.plot').textContent = '';
    document.querySelector('main').prepend(figure);
    const x = [], y = [];
    for (let i = 0; i < 1e6; i++) { x.push(i / 1e4); y.push(50 + 20 * Math.sin(i / 3e4) + (i * 7919 % 1000) / 50); }
    const axis = label => ({ label, is_logarithmic: false });
    const chart = new roundtrip.Chart(figure, { title: 'a million', x: axis('s'), y: axis('us'), lines: [{ name: 'all', look: 'points', x, y }] });
    const times = [];
    for (let i = 0; i < 6; i++) {
      const began = performance.now();
      chart.scaleBy(i ? 1 : 0.5, i ? 0.1 : 0);
      chart.plot.redraw();
      times.push(performance.now() - began);
    }
    const { canvas } = chart.plot.ctx;
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    let blue = 0;
    for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 200 && data[i + 2] > data[i] + 60) blue++;
    return [blue, times.sort((a, b) => a - b)[3]];
  });
  expect(drawn > 5000, `a million points: ${drawn} pixels are drawn`);
  console.error(`a million points: moved and drawn within ${took.toFixed(0)} ms (median)`);
  expect(tab.problems.length === 0, `a million points: ${tab.problems.join('; ')}`);
  await tab.close();
}
