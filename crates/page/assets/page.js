// The page's own script: its theme, and its charts by uPlot. All data is in the page.
(() => {
'use strict';
const root = document.documentElement;
const css = name => getComputedStyle(root).getPropertyValue(name).trim();
const all = [];

// Theme: the system's, until the reader chooses.
const system = matchMedia('(prefers-color-scheme: dark)');
let chosen = null;
const apply = () => {
  root.dataset.theme = chosen ?? (system.matches ? 'dark' : 'light');
  for (const chart of all) chart.paint();
};
root.dataset.theme = system.matches ? 'dark' : 'light';
system.addEventListener('change', apply);
const button = document.getElementById('theme');
button.hidden = false;
button.onclick = () => { chosen = root.dataset.theme === 'dark' ? 'light' : 'dark'; apply(); };
// Paper is light.
let before = null;
addEventListener('beforeprint', () => { before = chosen; chosen = 'light'; apply(); });
addEventListener('afterprint', () => { chosen = before; apply(); });

// A term explains itself when it is pointed at, too.
for (const term of document.querySelectorAll('button.term')) {
  const meaning = document.getElementById(term.getAttribute('popovertarget'));
  if (meaning && !term.title) term.title = meaning.textContent;
}

const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3], [4, 2], [12, 4], [1, 2], [6, 2, 2, 2]];
const COLOURS = 8;
const shade = (line, number) => `--s${(line.colour ?? number) % COLOURS}`;
// Dark to light, told apart by those who see no red or no green.
const HEAT = [[0, 34, 78], [53, 69, 108], [102, 105, 112], [148, 142, 119], [200, 184, 102], [254, 232, 56]];
const heatColour = share => {
  const at = Math.min(0.9999, Math.max(0, share)) * (HEAT.length - 1);
  const [a, b] = [HEAT[Math.floor(at)], HEAT[Math.floor(at) + 1]];
  const mix = a.map((v, i) => Math.round(v + (b[i] - v) * (at % 1)));
  return `rgb(${mix})`;
};

const text = value => {
  if (value == null || !isFinite(value)) return '-';
  const size = Math.abs(value);
  if (size !== 0 && size < 0.001) return value.toExponential(2);
  const digits = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 1 ? 2 : 4;
  const [whole, rest] = value.toFixed(digits).split('.');
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, '\u202f');
  return rest && /[1-9]/.test(rest) ? `${grouped}.${rest.replace(/0+$/, '')}` : grouped;
};
const tick = value => {
  if (value == null) return '';
  const size = Math.abs(value);
  const short = (by, sign) => `${+(value / by).toPrecision(3)}${sign}`;
  return size >= 1e9 ? short(1e9, 'G') : size >= 1e6 ? short(1e6, 'M') : size >= 1e4 ? short(1e3, 'k') : `${+value.toPrecision(5)}`;
};

// One array of places for all lines; a line without a value there has null.
const aligned = lines => {
  const same = lines.length > 0 && lines.every(line => line.x.length === lines[0].x.length && line.x.every((x, i) => x === lines[0].x[i]));
  const xs = same ? lines[0].x : [...new Set(lines.flatMap(line => line.x))].sort((a, b) => a - b);
  const columns = [xs], links = [];
  for (const line of lines) {
    let place = null;
    if (!same) {
      place = new Map();
      line.x.forEach((x, i) => place.set(x, i));
    }
    const spread = values => same ? values : xs.map(x => { const i = place.get(x); return i === undefined ? null : values[i]; });
    columns.push(spread(line.y));
    links.push(line.links ? spread(line.links) : null);
    if (line.look === 'band') { columns.push(spread(line.upper)); links.push(null); }
  }
  return { columns, links };
};

class Chart {
  constructor(figure, data) {
    this.figure = figure;
    this.data = data;
    this.place = figure.querySelector('.plot');
    this.reading = figure.querySelector('.reading');
    this.log = { x: data.x.is_logarithmic, y: data.y.is_logarithmic };
    this.hidden = new Set();
    const { columns, links } = aligned(data.lines);
    if (data.heat) {
      const ends = data.heat.x;
      if (columns[0].length === 0) columns[0] = [ends[0], ends[ends.length - 1]];
    }
    // uPlot needs at least one series.
    if (columns.length === 1) { columns.push(columns[0].map(() => null)); links.push(null); }
    this.columns = columns;
    this.links = links;
    this.range = null;
    this.tools();
    this.build();
    this.keys();
    new ResizeObserver(() => this.fit()).observe(this.place);
  }

  // The whole of an axis.
  extent(axis) {
    let low = Infinity, high = -Infinity;
    const take = v => { if (v != null && isFinite(v) && !(this.log[axis] && v <= 0)) { if (v < low) low = v; if (v > high) high = v; } };
    if (axis === 'x') { for (const x of this.columns[0]) take(x); } else {
      let column = 1;
      for (const line of this.data.lines) {
        for (const values of line.look === 'band' ? [line.y, line.upper] : [line.y]) {
          if (!this.hidden.has(line.name)) for (const y of values) take(y);
          column++;
        }
      }
    }
    if (this.data.heat) for (const end of this.data.heat[axis]) take(end);
    if (!(low <= high)) return this.log[axis] ? [1, 10] : [0, 1];
    if (this.log[axis]) {
      // Room for the points at the ends.
      const room = low === high ? 2 : axis === 'x' ? (high / low) ** 0.015 : 1.25;
      return [low / room, high * room];
    }
    if (axis === 'x') {
      const room = low === high ? 0.5 : this.data.heat ? 0 : (high - low) * 0.015;
      return [low - room, high + room];
    }
    const from = Math.min(0, low);
    return [from, high === from ? from + 1 : high + (high - from) * 0.06];
  }

  size() {
    return { width: Math.max(240, Math.floor(this.place.clientWidth)), height: innerWidth < 640 ? 280 : 340 };
  }

  build() {
    const keep = this.range;
    this.plot?.destroy();
    const series = [{}], bands = [];
    this.data.lines.forEach((line, number) => {
      const colour = () => css(shade(line, number));
      const show = !this.hidden.has(line.name);
      if (line.look === 'band') {
        const edge = { show, stroke: 'transparent', points: { show: false }, spanGaps: true };
        series.push({ ...edge }, { ...edge });
        bands.push({ series: [series.length - 1, series.length - 2], fill: () => colour() + '38' });
      } else if (line.look !== 'line') {
        series.push({ show, stroke: colour, paths: () => null, points: { show: false }, look: line.look, colour });
      } else {
        series.push({ show, stroke: colour, width: 2, dash: DASHES[number % DASHES.length], spanGaps: true,
          points: { show: line.x.length <= 60, size: 6, fill: colour, stroke: colour } });
      }
    });
    if (series.length === 1) series.push({ show: false });
    // A logarithmic axis has labels within a decade, too.
    const splits = (u, index, min, max) => {
      const places = [];
      for (let power = Math.floor(Math.log10(min)); 10 ** power <= max; power++) {
        for (const times of [1, 2, 5]) {
          const place = +(times * 10 ** power).toPrecision(3);
          if (place >= min && place <= max) places.push(place);
        }
      }
      if (places.length > 9) return places.filter(place => Number.isInteger(+Math.log10(place).toFixed(9)));
      if (places.length >= 3) return places;
      const rough = (max - min) / 7, unit = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 5, 10].map(times => times * unit).find(step => step >= rough);
      const even = [];
      for (let place = Math.ceil(min / step) * step; place <= max; place += step) even.push(+place.toPrecision(6));
      return even;
    };
    const axis = (label, scale) => ({
      scale, label, labelSize: 24, labelFont: '13px system-ui,sans-serif', font: '12px system-ui,sans-serif',
      stroke: () => css('--soft'), grid: { stroke: () => css('--line'), width: 0.5 }, ticks: { stroke: () => css('--line') },
      values: (_, splits) => splits.map(tick), ...(scale === 'y' ? { size: 62 } : {}),
      ...(this.log[scale] ? { splits, filter: (_, places) => places } : {}),
    });
    const scale = name => ({
      time: false, distr: this.log[name] ? 3 : 1, auto: false,
      range: (_, low, high) => low == null || high == null || low >= high ? this.extent(name) : [low, high],
    });
    this.plot = new uPlot({
      ...this.size(), series, bands, legend: { show: false },
      scales: { x: scale('x'), y: scale('y') },
      axes: [axis(this.data.x.label, 'x'), axis(this.data.y.label, 'y')],
      cursor: { drag: { x: true, y: true, uni: 24, setScale: true }, points: { size: 8 }, focus: { prox: 24 } },
      hooks: {
        drawAxes: [u => this.heat(u)],
        drawSeries: [(u, number) => this.dots(u, number)],
        setCursor: [u => this.read(u)],
        setScale: [(u, key) => { if (key === 'x') this.range = { x: [u.scales.x.min, u.scales.x.max], y: [u.scales.y.min, u.scales.y.max] }; }],
      },
    }, this.columns, this.place);
    this.place.chart = this;
    this.show(keep ?? { x: this.extent('x'), y: this.extent('y') });
    this.plot.over.addEventListener('dblclick', () => this.whole());
    this.plot.over.addEventListener('click', () => this.follow());
  }

  show({ x, y }) {
    this.plot.batch(() => {
      this.plot.setScale('x', { min: x[0], max: x[1] });
      this.plot.setScale('y', { min: y[0], max: y[1] });
    });
    this.range = { x, y };
  }

  whole() { this.show({ x: this.extent('x'), y: this.extent('y') }); }

  // To part of the width around the middle; in powers on a logarithmic axis.
  scaleBy(factor, shift) {
    const { min, max } = this.plot.scales.x;
    const [to, from] = this.log.x ? [Math.log, Math.exp] : [v => v, v => v];
    const [whole0, whole1] = this.extent('x').map(to);
    let [a, b] = [to(min), to(max)];
    const half = (b - a) / 2 * factor, middle = (a + b) / 2 + (b - a) * shift;
    [a, b] = [middle - half, middle + half];
    const width = Math.min(b - a, whole1 - whole0);
    a = Math.max(whole0, Math.min(a, whole1 - width));
    const { min: y0, max: y1 } = this.plot.scales.y;
    this.show({ x: [from(a), from(a + width)], y: [y0, y1] });
  }

  keys() {
    const moves = {
      ArrowLeft: () => this.scaleBy(1, -0.2), ArrowRight: () => this.scaleBy(1, 0.2),
      '+': () => this.scaleBy(0.5, 0), '=': () => this.scaleBy(0.5, 0), '-': () => this.scaleBy(2, 0), 0: () => this.whole(),
    };
    this.place.addEventListener('keydown', event => {
      if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in moves)) return;
      event.preventDefault();
      moves[event.key]();
    });
  }

  tools() {
    const bar = this.figure.querySelector('.tools');
    const seen = new Set();
    this.data.lines.forEach((line, number) => {
      if (seen.has(line.name)) return;
      seen.add(line.name);
      const label = document.createElement('label');
      const box = Object.assign(document.createElement('input'), { type: 'checkbox', checked: true });
      const swatch = document.createElement('span');
      swatch.className = `swatch ${line.look}`;
      swatch.style[line.look === 'line' ? 'borderTopColor' : line.look === 'hollow' ? 'borderColor' : 'background'] = `var(${shade(line, number)})`;
      if (line.look === 'line' && DASHES[number % DASHES.length].length) swatch.style.borderTopStyle = number % 2 ? 'dashed' : 'dotted';
      box.onchange = () => {
        box.checked ? this.hidden.delete(line.name) : this.hidden.add(line.name);
        this.range = null;
        this.build();
      };
      label.append(box, swatch, line.name);
      bar.append(label);
    });
    if (this.data.heat) {
      const most = Math.max(...this.data.heat.cells.map(cell => cell[2]));
      this.most = most;
      const label = document.createElement('span');
      const scale = Object.assign(document.createElement('span'), { className: 'scale' });
      scale.style.background = `linear-gradient(to right,${HEAT.map(c => `rgb(${c})`)})`;
      label.append('1 ', scale, ` ${text(most)} ${this.data.heat.of}`);
      bar.append(label);
    }
    const positive = axis => {
      const values = axis === 'x' ? [this.columns[0]] : this.columns.slice(1);
      return !this.data.heat && values.every(column => column.every(v => v == null || v > 0));
    };
    const names = { x: '→', y: '↑' };
    for (const axis of ['x', 'y']) {
      if (!positive(axis)) continue;
      const label = document.createElement('label');
      const box = Object.assign(document.createElement('input'), { type: 'checkbox', checked: this.log[axis] });
      box.className = `log-${axis}`;
      box.onchange = () => { this.log[axis] = box.checked; this.range = null; this.build(); };
      label.append(box, `logarithmic ${names[axis]}`);
      bar.append(label);
    }
    const buttons = Object.assign(document.createElement('span'), { className: 'buttons' });
    for (const [sign, name, act] of [
      ['−', 'zoom out', () => this.scaleBy(2, 0)], ['+', 'zoom in', () => this.scaleBy(0.5, 0)],
      ['◀', 'move left', () => this.scaleBy(1, -0.2)], ['▶', 'move right', () => this.scaleBy(1, 0.2)], ['all', 'show all', () => this.whole()],
    ]) {
      const one = Object.assign(document.createElement('button'), { type: 'button', textContent: sign, onclick: act, title: name });
      one.setAttribute('aria-label', `${name}: ${this.data.title}`);
      buttons.append(one);
    }
    bar.append(buttons);
  }

  // Points, each pixel once: a million of them take a fraction of a second.
  dots(u, number) {
    const series = u.series[number];
    if (!series.look || !series.show) return;
    const [xs, ys] = [u.data[0], u.data[number]];
    const { left, top, width, height } = u.bbox;
    const size = Math.max(2, Math.round((xs.length > 5000 ? 2 : 6) * devicePixelRatio));
    const taken = xs.length > 5000 ? new Uint8Array((width + 1) * (height + 1)) : null;
    const { ctx } = u;
    ctx.save();
    ctx.beginPath(); ctx.rect(left, top, width, height); ctx.clip();
    ctx.fillStyle = ctx.strokeStyle = series.colour();
    ctx.lineWidth = 2 * devicePixelRatio;
    const { min, max } = u.scales.x;
    const [x0, x1] = [u.valToPos(min, 'x', true), u.valToPos(max, 'x', true)];
    const [y0, y1] = [u.valToPos(u.scales.y.min, 'y', true), u.valToPos(u.scales.y.max, 'y', true)];
    const warp = { x: this.log.x ? Math.log : v => v, y: this.log.y ? Math.log : v => v };
    const [a, c] = [warp.x(min), warp.y(u.scales.y.min)];
    const kx = (x1 - x0) / (warp.x(max) - a), ky = (y1 - y0) / (warp.y(u.scales.y.max) - c);
    for (let i = 0; i < xs.length; i++) {
      const x = xs[i], y = ys[i];
      if (y == null || x < min || x > max) continue;
      const px = Math.round(x0 + (warp.x(x) - a) * kx), py = Math.round(y0 + (warp.y(y) - c) * ky);
      if (taken) {
        if (py < top || py > top + height) continue;
        const cell = (py - Math.floor(top)) * Math.floor(width + 1) + px - Math.floor(left);
        if (taken[cell]) continue;
        taken[cell] = 1;
        ctx.fillRect(px, py, size, size);
      } else {
        ctx.beginPath();
        ctx.arc(px, py, series.look === 'hollow' ? size * 0.7 : size / 2, 0, 2 * Math.PI);
        series.look === 'hollow' ? ctx.stroke() : ctx.fill();
      }
    }
    ctx.restore();
  }

  heat(u) {
    const { heat } = this.data;
    if (!heat) return;
    const { ctx } = u, { left, top, width, height } = u.bbox;
    ctx.save();
    ctx.beginPath(); ctx.rect(left, top, width, height); ctx.clip();
    for (const [column, row, count] of heat.cells) {
      const [a, b] = [u.valToPos(heat.x[column], 'x', true), u.valToPos(heat.x[column + 1], 'x', true)];
      const [c, d] = [u.valToPos(heat.y[row], 'y', true), u.valToPos(heat.y[row + 1], 'y', true)];
      ctx.fillStyle = heatColour(this.most > 1 ? Math.log(count) / Math.log(this.most) : 1);
      ctx.fillRect(Math.floor(a), Math.floor(d), Math.max(1, Math.ceil(b) - Math.floor(a)), Math.max(1, Math.ceil(c) - Math.floor(d)));
    }
    ctx.restore();
  }

  read(u) {
    const { left, top, idx } = u.cursor;
    if (left == null || left < 0) { this.reading.textContent = ''; return; }
    const said = [];
    if (this.data.heat) {
      const [x, y] = [u.posToVal(left, 'x'), u.posToVal(top, 'y')];
      const { heat } = this.data;
      const find = (ends, v) => ends.findIndex((end, i) => i + 1 < ends.length && v >= end && v < ends[i + 1]);
      const [column, row] = [find(heat.x, x), find(heat.y, y)];
      const cell = heat.cells.find(one => one[0] === column && one[1] === row);
      said.push(`${this.data.x.label}: ${text(x)}`);
      if (row >= 0) said.push(`${this.data.y.label} ${text(heat.y[row])} to ${text(heat.y[row + 1])}: ${text(cell ? cell[2] : 0)} ${heat.of}`);
    } else if (idx != null) {
      said.push(`${this.data.x.label}: ${text(u.data[0][idx])}`);
      let column = 1;
      for (const line of this.data.lines) {
        const y = u.data[column][idx];
        const upper = line.look === 'band' ? u.data[++column][idx] : null;
        column++;
        if (y != null && !this.hidden.has(line.name)) said.push(`${line.name}: ${text(y)}${upper == null ? '' : ` to ${text(upper)}`}`);
      }
    }
    this.reading.textContent = said.join(' · ');
    this.link = null;
    if (idx != null) for (const links of this.links) if (links && links[idx]) this.link = links[idx];
    u.over.style.cursor = this.link ? 'pointer' : '';
  }

  // To the row of the operation.
  follow() {
    if (!this.link) return;
    const row = document.getElementById(this.link);
    if (!row) return;
    for (let up = row.parentElement; up; up = up.parentElement) if (up.tagName === 'DETAILS') up.open = true;
    location.hash = this.link;
    row.focus();
  }

  fit() {
    const { width, height } = this.size();
    if (this.plot.width !== width || this.plot.height !== height) {
      const range = this.range;
      this.plot.setSize({ width, height });
      if (range) this.show(range);
    }
  }

  paint() { this.build(); }
}

for (const figure of document.querySelectorAll('figure.chart')) {
  all.push(new Chart(figure, JSON.parse(figure.querySelector('script').textContent)));
}
addEventListener('hashchange', () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let up = target?.parentElement; up; up = up.parentElement) if (up.tagName === 'DETAILS') up.open = true;
});
// What was measured is read by the page's tests.
window.roundtrip = { all, Chart };
})();
