// `whatif`: a sweep, a difference (--diff) and what more of everything is worth (--worth).

// What points differ in: [key, name, text of a value].
const kInputs = [
  ['system', 'system', (v) => v], ['gpus', 'GPUs', format.count],
  ['interNodeBytesPerSecond', 'network', (v) => v > 0 ? format.plain(v * 8 / 1e9) + ' Gbit/s' : 'none'],
  ['batch', 'batch', format.count], ['sequence', 'sequence', format.count],
  ['minusNodes', 'nodes less', format.count], ['tokens', 'tokens', format.short],
  ['usdPerGpuHour', 'USD/h', format.plain],
  ['gpuMeanBetweenSeconds', 'MTBF', format.duration],
];
// What is drawn: [key, name, unit's size, text of a value].
const kOutputs = [
  ['stepSeconds', 'step, s', 1, format.seconds],
  ['tokensPerSecond', 'tokens/s', 1, format.count],
  ['modelFlopsUtilisation', 'MFU, %', 0.01, (v) => format.percent(100 * v)],
  ['wallSeconds', 'time, d', 86400, format.duration],
  ['costUsd', 'cost, USD', 1, format.short],
  ['energyJoules', 'energy, MWh', 3.6e9, (v) => format.plain(v / 3.6e9) + ' MWh'],
  ['goodput', 'goodput, %', 0.01, (v) => (100 * v).toFixed(2) + ' %'],
];

// What failures do stands beside the rest.
function flatten(point) { return Object.assign({}, point, point.failures); }

function varyingInputs(points) {
  return kInputs.filter(([key]) => new Set(points.map((p) => p[key])).size > 1);
}
function describeInputs(point, inputs) {
  return inputs.map(([key, name, text]) =>
      key === 'system' ? text(point[key]) : name + ' ' + text(point[key])).join(', ');
}

// What nobody chooses: rows are compared under the same.
const kConditions = ['tokens', 'minusNodes', 'usdPerGpuHour', 'gpuMeanBetweenSeconds'];
function varyingConditions(limits) {
  return kInputs.filter(([key]) => kConditions.includes(key) && new Set(limits.map((l) => l[key])).size > 1);
}

// Points that differ in `x` alone make one series.
function seriesOf(points, x, output, inputs) {
  const others = inputs.filter(([key]) => key !== x[0]);
  const series = new Map();
  for (const point of points) {
    const name = describeInputs(point, others) || output[1];
    if (!series.has(name)) series.set(name, {name, points: []});
    const list = series.get(name).points;
    const before = list[list.length - 1];
    list.push({
      x: point[x[0]], y: point[output[0]] / output[2], winner: point.winner,
      note: !before || before.winner !== point.winner ? point.winner : '',
      text: describeInputs(point, inputs) + ': ' + output[1].split(',')[0] + ' ' +
          output[3](point[output[0]]) + ', plan ' + point.winner + ': ' + point.plan,
    });
  }
  return [...series.values()];
}

function addScaling(points, inputs) {
  const numeric = inputs.filter(([key]) => key !== 'system');
  if (numeric.length === 0) return;
  const distinct = ([key]) => new Set(points.map((p) => p[key])).size;
  const axes = numeric.slice().sort((a, b) => distinct(b) - distinct(a));
  const preferred = axes.findIndex(([key]) => key === 'gpus');
  const outputs = kOutputs.filter(([key]) => points.every((p) => Number.isFinite(p[key])));
  const section = addSection('Scaling', 'Every point is planned anew. A letter marks where the winning ' +
      'plan changes; the table of plans says what it stands for.');
  let x = axes[Math.max(0, preferred)], output = outputs[1];
  let redraw = () => {};
  addSelect(section, 'Show', outputs.map((o) => o[1].split(',')[0]), 1,
            (i) => { output = outputs[i]; redraw(); });
  addSelect(section, 'over', axes.map((a) => a[1]), axes.indexOf(x),
            (i) => { x = axes[i]; redraw(); });
  let readout = null, legend = null;
  const figure = addFigure(section, 'Scaling curves', (place, width) => {
    const series = seriesOf(points, x, output, inputs);
    const xs = [...new Set(points.map((p) => p[x[0]]))].sort((a, b) => a - b);
    const log = xs[0] > 0 && xs[xs.length - 1] / xs[0] >= 4;
    const ys = d3.merge(series.map((s) => s.points.map((p) => p.y)));
    drawLines(place, width, series, {
      label: output[1] + ' over ' + x[1],
      x: {name: x[1] + (log ? ', logarithmic' : ''), log, ticks: xs,
          format: (v) => x[2](v).replace(' Gbit/s', '')},
      y: {name: output[1], log: d3.min(ys) > 0 && d3.max(ys) / d3.min(ys) >= 20, fromZero: true},
      onPick: (point) => { readout.textContent = point.text; },
    });
  });
  const drawing = drawings[drawings.length - 1];
  readout = addReadout(figure, 'Click or tap a point for its numbers.');
  readout.id = 'scaling-readout';
  const showLegend = () => {
    if (legend) legend.remove();
    const series = seriesOf(points, x, output, inputs);
    if (series.length > 1)
      addLegend(figure, series.map((s, i) => [kSeries[i % kSeries.length], s.name]));
    legend = series.length > 1 ? figure.lastChild : null;
  };
  redraw = () => { drawing.draw(); showLegend(); };
  showLegend();
}

function addFront(points, inputs) {
  const priced = points.filter((p) => 'costUsd' in p && Number.isFinite(p.wallSeconds));
  if (priced.length < 2) return;
  const count = (textOf) => new Set(points.map(textOf)).size;
  const isOwnPrice = count((p) => p.system) === count((p) => p.system + ' ' + p.usdPerGpuHour);
  const conditions = inputs.filter(([key]) => kConditions.includes(key) && !(key === 'usdPerGpuHour' && isOwnPrice));
  const section = addSection('Days against cost', 'Nothing is both faster and cheaper than a point of ' +
      'the front' + (conditions.length > 0 ? ' under the same conditions.' : '.'));
  const asPoint = (p) => ({
    x: p.wallSeconds / 86400, y: p.costUsd,
    text: describeInputs(p, inputs) + ': ' + format.duration(p.wallSeconds) + ', ' +
        format.short(p.costUsd) + ' USD, plan ' + p.winner + (p.onFront ? ', on the front' : ''),
  });
  const fronts = new Map();
  for (const p of priced.filter((p) => p.onFront)) {
    const name = ['front', describeInputs(p, conditions)].filter((part) => part).join(', ');
    fronts.set(name, (fronts.get(name) || []).concat([asPoint(p)]));
  }
  const others = priced.filter((p) => !p.onFront).map(asPoint);
  const series = [...fronts].map(([name, points], i) => (
      {name, points: points.sort((a, b) => a.x - b.x), color: kSeries[i % kSeries.length]}))
      .concat([{name: 'others', points: others, color: 'var(--muted)', pointsOnly: true}])
      .filter((s) => s.points.length > 0);
  let readout = null;
  const figure = addFigure(section, 'Time and cost of every point', (place, width) => drawLines(
      place, width, series, {
        label: 'Cost over time', x: {name: 'time, d'}, y: {name: 'cost, USD'},
        onPick: (point) => { readout.textContent = point.text; },
      }));
  addLegend(figure, series.map((s) => [s.color, s.name]));
  readout = addReadout(figure, 'Click or tap a point for its numbers.');
}

function addPointTable(points, inputs) {
  const section = addSection('Points', 'Every point with its plan.');
  const shown = inputs.length > 0 ? inputs : kInputs.slice(1, 2);
  const columns = shown.map(([key, name, text]) => (
      {title: name, value: (p) => p[key], text: (p) => key in p ? text(p[key]) : ''}));
  for (const [key, name, , text] of kOutputs)
    if (points.some((p) => key in p))
      columns.push({title: name.split(',')[0], value: (p) => p[key],
                    text: (p) => Number.isFinite(p[key]) ? text(p[key]) : 'never'});
  columns.push({title: 'memory', value: (p) => p.memoryBytes,
                text: (p) => p.fits ? format.bytes(p.memoryBytes) + (p.memoryTight ? ', tight' : '') : ''});
  columns.push({title: 'plan', left: true, long: true, value: (p) =>
      p.fits ? p.winner + ': ' + p.plan + (p.onFront ? '; on the front' : '') : p.reason});
  addTable(section, 'points', columns, points);
}

function addFailures(points, inputs) {
  const failing = points.filter((p) => 'goodput' in p);
  if (failing.length === 0) return;
  const section = addSection('Failures', 'Checkpoints by Daly’s interval; without failures a ' +
      'training takes the time of the last column.');
  const time = (title, key) =>
      ({title, value: (p) => p[key], text: (p) => format.duration(p[key])});
  addTable(section, 'goodput', inputs.map(([key, name, text]) => (
      {title: name, value: (p) => p[key], text: (p) => text(p[key])})).concat([
    time('job’s MTBF', 'jobMeanBetweenSeconds'), time('save', 'saveSeconds'),
    time('save every (Daly)', 'dalyIntervalSeconds'), time('Young', 'youngIntervalSeconds'),
    {title: 'goodput', value: (p) => p.goodput, text: (p) => (100 * p.goodput).toFixed(2) + ' %'},
    {title: 'spare nodes', value: (p) => p.spareNodes},
    {title: 'of them bought', value: (p) => p.spareNodesBought},
    {title: 'available', value: (p) => p.availability,
     text: (p) => (100 * p.availability).toFixed(2) + ' %'},
    time('without failures', 'busySeconds'),
  ]), failing);
}

// What is known between the points: one node further, it is too slow or too dear.
function sayRefined(refined, inputs) {
  const shown = inputs.some(([key]) => key === 'gpus') ? inputs : kInputs.slice(1, 2).concat(inputs);
  const say = (p) => describeInputs(p, shown) + (p.fits ? ', ' + format.duration(p.wallSeconds) +
      ('costUsd' in p ? ', ' + format.short(p.costUsd) + ' USD' : '') +
      (p.spareNodes > 0 ? ', spare nodes ' + p.spareNodes : '') : ', no plan');
  return say(flatten(refined.point)) + (refined.beyond ? '; one node further it is not kept to: ' + say(flatten(refined.beyond)) : '') +
      (refined.planned > 0 ? '; numbers of devices planned for this: ' + refined.planned : '');
}

function addLimits(answer, points, inputs) {
  const lines = [];
  const say = (i) => i === null ? 'none of those asked about' : describeInputs(points[i], inputs) + ', ' +
      format.duration(points[i].wallSeconds) +
      ('costUsd' in points[i] ? ', ' + format.short(points[i].costUsd) + ' USD' : '');
  const under = (limit, limits) => {
    const conditions = varyingConditions(limits);
    return conditions.length > 0 ? ' (' + describeInputs(limit, conditions) + ')' : '';
  };
  for (const d of answer.deadlines || []) {
    const within = ' within ' + format.duration(d.seconds) + under(d, answer.deadlines) + ': ';
    lines.push('Fewest devices' + within +
               (d.refined ? sayRefined(d.refined, inputs) : say(d.fewestDevices)));
    if (d.cheapestRefined)
      lines.push('Cheapest' + within + sayRefined(d.cheapestRefined, inputs));
  }
  for (const b of answer.budgets || [])
    lines.push('Fastest for ' + format.short(b.usd) + ' USD' + under(b, answer.budgets) + ': ' +
               (b.refined ? sayRefined(b.refined, inputs) : say(b.fastest)));
  addLines('Deadlines and budgets', '', lines);
}

function addWinners(points) {
  const shapes = new Map(points.filter((p) => p.fits).map((p) => [p.winner, p.shape]));
  const section = addSection('Plans that win', 'Without replicas, which take the other devices in use.');
  addTable(section, 'plans', [{title: 'letter', value: (s) => s[0]},
                              {title: 'plan', value: (s) => s[1], left: true, long: true}], [...shapes]);
}

function showWhatif(data) {
  const points = data.answer.points.map(flatten), fitting = points.filter((p) => p.fits);
  const inputs = varyingInputs(points);
  const section = addSection('The question');
  addQuestion(section, data.question);
  addFacts(section, [['model', data.answer.model], ['stack', data.answer.stack],
                     ['points', format.count(points.length)],
                     ['with a plan', format.count(fitting.length)]]);
  addLimits(data.answer, points, inputs);
  addScaling(fitting, inputs);
  addFront(fitting, inputs);
  addPointTable(points, inputs);
  addFailures(points, inputs);
  addWinners(points);
}

function showDifference(data) {
  const d = data.answer;
  const section = addSection('The difference', d.before.name + ' against ' + d.after.name + ': ' +
      format.seconds(d.before.stepSeconds) + ' a step against ' + format.seconds(d.after.stepSeconds) + '.');
  addQuestion(section, data.question);
  const rows = d.parts.map((part) => ({
    name: part.name, before: part.beforeSeconds, after: part.afterSeconds,
    change: part.changeUnits * d.unitSeconds}));
  const all = rows.concat([{name: 'step', before: d.before.stepSeconds, after: d.after.stepSeconds,
                            change: d.changeUnits * d.unitSeconds}]);
  const most = d3.max(all, (row) => Math.max(row.before, row.after));
  const bars = d3.merge(all.map((row) => [
    {name: row.name + ', before', value: row.before, text: format.seconds(row.before), color: 'var(--muted)'},
    {name: row.name + ', after', value: row.after, color: 'var(--c1)',
     text: format.seconds(row.after) + ' (' + (row.change > 0 ? '+' : '') + format.seconds(row.change) + ')'},
  ])).filter((bar) => bar.value > 0);
  const figure = addFigure(section, 'Parts of the step, before and after',
      (place, width) => drawBars(place, width, bars, {label: 'Parts before and after', most}));
  const seconds = (title, key) => ({title, value: (r) => r[key], text: (r) => format.seconds(r[key])});
  addTable(figure, 'parts of the step; the changes add up to that of the step', [
    {title: 'part', value: (r) => r.name}, seconds('before', 'before'), seconds('after', 'after'),
    seconds('change', 'change')], all);
  addLines('What is different', '', d.changes);
  for (const side of [d.before, d.after]) addPlanText(side.plan, 'The plan of ' + side.name + ' as a file');
}

function showWorth(data) {
  const rows = data.answer;
  const section = addSection('What more is worth', 'Each line is a search of its own with more of one ' +
      'thing; a unit’s worth is its share of that.');
  const figure = addFigure(section, 'Gain in tokens per second', (place, width) => drawBars(
      place, width, rows.map((s) => ({name: s.change, value: s.gain,
                                      text: (100 * s.gain).toFixed(2) + ' %'})),
      {label: 'Gain in tokens per second'}));
  const columns = [
    {title: 'change', value: (s) => s.change, left: true},
    {title: 'that is', value: (s) => s.amount, text: (s) => format.plain(s.amount) + ' ' + s.unit},
    {title: 'step', value: (s) => s.stepSeconds, text: (s) => format.seconds(s.stepSeconds)},
    {title: 'tokens/s', value: (s) => s.gain, text: (s) => (100 * s.gain).toFixed(2) + ' %'},
    {title: 'per unit', value: (s) => s.gainPerUnit, text: (s) => (100 * s.gainPerUnit).toFixed(4) + ' %'},
    {title: 'plan', value: (s) => s.samePlan ? 'the same' : 'another', left: true},
  ];
  if (rows.some((s) => s.usdPerUnit !== null))
    columns.splice(5, 0, {title: 'USD a unit', value: (s) => s.usdPerUnit,
                          text: (s) => format.short(s.usdPerUnit)});
  addTable(figure, 'worth', columns, rows);
}
