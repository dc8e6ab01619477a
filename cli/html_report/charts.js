// Bars, lines and points with D3 (version 3). Colours are of Okabe and Ito, told apart by people who
// see few of them; style.css has them for light and dark.

const kSeries = ['--c1', '--c2', '--c3', '--c4', '--c5', '--c6', '--c7'].map(
    (name) => 'var(' + name + ')');
const kShapes = ['circle', 'square', 'triangle-up', 'diamond', 'cross', 'triangle-down'];

function addSvg(place, width, height, label) {
  return d3.select(place).append('svg').attr({
    width, height, viewBox: '0 0 ' + width + ' ' + height, role: 'img', 'aria-label': label,
  });
}

// Horizontal bars, the name above each: readable on a phone. rows: [{name, value, text, color}];
// options: {label, most: the length of the axis, limit: {value, text}}.
function drawBars(place, width, rows, options) {
  const pitch = 38, barHeight = 14, top = options.limit ? 22 : 4;
  const svg = addSvg(place, width, top + rows.length * pitch, options.label);
  const most = options.most || d3.max(rows, (row) => row.value) || 1;
  const x = d3.scale.linear().domain([0, most]).range([0, width - 2]);
  const group = svg.selectAll('g.bar').data(rows).enter().append('g').attr({
    class: 'bar', transform: (row, i) => 'translate(0,' + (top + i * pitch) + ')',
  });
  group.append('text').attr({class: 'name', x: 0, y: 12}).text((row) => row.name);
  group.append('text').attr({class: 'value', x: width - 2, y: 12, 'text-anchor': 'end'})
      .text((row) => row.text);
  group.append('rect').attr({class: 'track', x: 0, y: 17, width: width - 2, height: barHeight});
  group.append('rect').attr({
    class: 'mark', x: 0, y: 17, height: barHeight,
    width: (row) => row.value > 0 ? Math.max(1, x(Math.min(row.value, most))) : 0,
  }).style('fill', (row) => row.color || kSeries[0]);
  if (!options.limit) return;
  const at = x(options.limit.value);
  svg.append('line').attr({class: 'limit', x1: at, x2: at, y1: 16, y2: top + rows.length * pitch});
  svg.append('text').attr({class: 'value', x: Math.min(at, width - 2), y: 12, 'text-anchor': 'end'})
      .text(options.limit.text);
}

function domainOf(values, axis) {
  let [least, most] = d3.extent(values);
  if (axis.fromZero) least = Math.min(0, least);
  if (axis.log) return [least / 1.15, most * 1.15];
  const room = (most - least || Math.abs(most) || 1) * 0.06;
  return [axis.fromZero && least === 0 ? 0 : least - room, most + room];
}

function scaleOf(axis, values, range) {
  const scale = axis.log ? d3.scale.log() : d3.scale.linear();
  return scale.domain(axis.domain || domainOf(values, axis)).range(range);
}

function ticksOf(axis, scale, count) {
  if (axis.ticks && axis.ticks.length <= Math.max(count, 3)) return axis.ticks;
  if (!axis.log) return scale.ticks(count);
  const [least, most] = scale.domain();
  const ticks = scale.ticks().filter((tick) => {
    const digit = Math.round(tick / 10 ** Math.floor(Math.log10(tick) + 1e-9));
    return most / least > 300 ? digit === 1 : digit === 1 || digit === 2 || digit === 5;
  });
  const every = Math.ceil(ticks.length / count);
  return ticks.length > 1 ? ticks.filter((tick, i) => i % every === 0) : scale.ticks(count);
}

function drawAxes(svg, box, x, y, options) {
  const axis = (scale, side, spec, count) => d3.svg.axis().scale(scale).orient(side)
      .tickValues(ticksOf(spec, scale, count)).tickFormat(spec.format || format.short);
  svg.append('g').attr({class: 'axis x', transform: 'translate(0,' + box.bottom + ')'})
      .call(axis(x, 'bottom', options.x, Math.max(2, Math.floor((box.right - box.left) / 75)))
          .innerTickSize(4).outerTickSize(0));
  svg.append('g').attr({class: 'axis y', transform: 'translate(' + box.left + ',0)'})
      .call(axis(y, 'left', options.y, 5).innerTickSize(-(box.right - box.left)).outerTickSize(0));
  svg.append('text').attr({class: 'axis-name', x: box.right, y: box.bottom + 34,
                           'text-anchor': 'end'}).text(options.x.name);
  svg.append('text').attr({class: 'axis-name', x: 0, y: 11}).text(options.y.name);
}

function drawReferences(svg, box, y, references) {
  for (const reference of references || []) {
    const at = y(reference.value);
    svg.append('line').attr({class: 'limit', x1: box.left, x2: box.right, y1: at, y2: at});
    svg.append('text').attr({class: 'value', x: box.right, y: at - 4, 'text-anchor': 'end'})
        .text(reference.text);
  }
}

function drawOneSeries(svg, series, i, x, y, options, onPick) {
  const color = series.color || kSeries[i % kSeries.length];
  const group = svg.append('g').attr('class', 'series');
  if (!options.pointsOnly && !series.pointsOnly) {
    const line = d3.svg.line().x((point) => x(point.x)).y((point) => y(point.y))
        .interpolate(series.step ? 'step-after' : 'linear');
    group.append('path').datum(series.points)
        .attr({class: 'line mark' + (series.faint ? ' faint' : ''), d: line})
        .style('stroke', color);
  }
  if (series.noPoints) return;
  const symbol = d3.svg.symbol().type(kShapes[i % kShapes.length]).size(series.size || 56);
  const points = group.selectAll('path.point').data(series.points).enter().append('path').attr({
    class: 'point mark', d: symbol,
    transform: (point) => 'translate(' + x(point.x) + ',' + y(point.y) + ')',
  }).style('fill', color).on('click', onPick);
  points.append('title').text((point) => point.text);
  group.selectAll('text.note').data(series.points.filter((point) => point.note)).enter()
      .append('text').attr({class: 'note', 'text-anchor': 'middle', x: (point) => x(point.x),
                            y: (point) => y(point.y) + (i % 2 ? 18 : -8)}).text((point) => point.note);
}

// Lines or points over an x axis. series: [{name, points: [{x, y, text, note}], color, step, faint,
// noPoints, pointsOnly, size}]; an axis is {name, log, fromZero, domain, ticks, format}; references:
// [{value, text}] are lines across. A click picks the nearest point: onPick(point).
function drawLines(place, width, series, options) {
  const height = options.height || Math.max(220, Math.min(340, Math.round(width * 0.5)));
  const svg = addSvg(place, width, height, options.label);
  const box = {left: 52, right: width - 10, top: 22, bottom: height - 42};
  const all = d3.merge(series.map((s) => s.points));
  const heights = all.map((point) => point.y).concat((options.references || []).map((r) => r.value));
  const x = scaleOf(options.x, all.map((point) => point.x), [box.left, box.right]);
  const y = scaleOf(options.y, heights, [box.bottom, box.top]);
  drawAxes(svg, box, x, y, options);
  drawReferences(svg, box, y, options.references);
  const pick = (point) => { if (options.onPick) options.onPick(point); };
  series.forEach((s, i) => drawOneSeries(svg, s, i, x, y, options, pick));
  svg.on('click', function() {
    const [px, py] = d3.mouse(this);
    const nearest = all.filter((point) => point.text).reduce((best, point) => {
      const far = Math.hypot(x(point.x) - px, y(point.y) - py);
      return far < best.far ? {far, point} : best;
    }, {far: 60}).point;
    if (nearest) pick(nearest);
  });
}
