// What every stage does when: a canvas, because there are tens of thousands of tasks.
//
// Of a task its computing is drawn first and its communication behind it, whatever their order was;
// what is left of its time, and everything between tasks, is idle.

const kDark = '#14171b';  // to be read on orange and green, which are the same in dark mode
const kDirections = {F: 'forward', B: 'backward', W: 'gradients of weights', S: 'once per step'};

function readColors() {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue('--' + name).trim();
  return {F: color('forward'), B: color('backward'), W: color('backward'), S: color('optimizer'),
          communication: color('communication'), idle: color('idle'), text: color('text'),
          ground: color('ground'), mark: color('on-mark'), muted: color('muted')};
}

function taskOf(stage, i) {
  const tasks = stage.tasks;
  return {
    direction: tasks.direction[i], chunk: tasks.chunk[i], microbatch: tasks.microbatch[i],
    begin: tasks.begin[i] * 1e-9, end: tasks.end[i] * 1e-9, compute: tasks.compute[i] * 1e-9,
    communication: tasks.communication[i] * 1e-9,
  };
}

function taskName(task) {
  if (task.direction === 'S') return kDirections.S;
  return kDirections[task.direction] + ' of microbatch ' + task.microbatch + ', chunk ' + task.chunk;
}

function describeTask(stage, task) {
  const waits = task.end - task.begin - task.compute - task.communication;
  return 'Stage ' + stage.stage + ', ' + taskName(task) + ': ' + format.seconds(task.begin) + ' to ' +
      format.seconds(task.end) + ', ' + format.seconds(task.end - task.begin) + ' long; computing ' +
      format.seconds(task.compute) + ', communication ' + format.seconds(task.communication) +
      (waits > 1e-9 ? ', waiting ' + format.seconds(waits) : '');
}

function describeBetween(stage, between) {
  const part = (name) => name + ' ' + format.seconds(between[name] * 1e-9);
  return 'Stage ' + stage.stage + ', ' + format.count(between.numTasks) + ' tasks that are drawn as ' +
      'one sum, ' + format.seconds(between.begin * 1e-9) + ' to ' + format.seconds(between.end * 1e-9) +
      ': ' + ['forward', 'backward', 'communication', 'optimizer', 'idle'].map(part).join(', ');
}

class TimelineView {
  constructor(timeline, id, onPick) {
    this.timeline = timeline;
    this.id = id;
    this.onPick = onPick;
    this.domain = [0, timeline.stepSeconds];
    const stages = timeline.stages.length;
    this.pitch = stages > 40 ? 12 : stages > 16 ? 18 : 26;
    this.left = 64;
    this.pointers = new Map();
  }

  // Into an empty place.
  attach(place, width) {
    this.width = width;
    this.height = this.timeline.stages.length * this.pitch;
    const ratio = Math.max(2, window.devicePixelRatio || 1);
    const canvas = element(place, 'canvas', {
      id: this.id, width: Math.round(width * ratio), height: Math.round(this.height * ratio),
      tabindex: '0', role: 'img', style: 'width:' + width + 'px;height:' + this.height + 'px',
      'aria-label': 'Timeline of ' + this.timeline.stages.length +
          ' stages; arrow keys move, plus and minus zoom; the tables below have its numbers',
    });
    this.canvas = canvas;
    this.context = canvas.getContext('2d');
    this.context.scale(ratio, ratio);
    this.axis = addSvg(place, width, 40, 'Time since the begin of the step');
    this.listen();
    this.draw();
  }

  scale() { return d3.scale.linear().domain(this.domain).range([this.left, this.width - 1]); }

  draw() {
    const context = this.context, x = this.scale(), colors = readColors();
    context.clearRect(0, 0, this.width, this.height);
    let marks = 0;
    this.timeline.stages.forEach((stage, row) => {
      const top = row * this.pitch + 1, height = this.pitch - 3;
      context.fillStyle = colors.idle;
      context.fillRect(this.left, top, this.width - this.left, height);
      context.save();
      context.beginPath();
      context.rect(this.left, top, this.width - this.left, height);
      context.clip();
      marks += this.drawStage(stage, x, top, height, colors);
      context.restore();
      context.fillStyle = colors.text;
      context.font = Math.min(12, this.pitch - 2) + 'px sans-serif';
      context.textBaseline = 'middle';
      context.fillText('stage ' + stage.stage, 0, top + height / 2 + 1);
    });
    this.canvas.dataset.marks = String(marks);
    this.canvas.dataset.domain = this.domain.join(' ');
    this.drawAxis(x);
  }

  // Returns how many tasks are in sight.
  drawStage(stage, x, top, height, colors) {
    const tasks = stage.tasks, context = this.context;
    const perNano = (x.range()[1] - x.range()[0]) / (this.domain[1] - this.domain[0]) * 1e-9;
    const origin = x(0), from = this.domain[0] * 1e9, to = this.domain[1] * 1e9;
    let marks = 0;
    for (let i = d3.bisectRight(tasks.end, from); i < tasks.begin.length; ++i) {
      if (tasks.begin[i] > to) break;
      const at = origin + tasks.begin[i] * perNano, computing = tasks.compute[i] * perNano;
      context.fillStyle = colors[tasks.direction[i]];
      context.fillRect(at, top, computing, height);
      context.fillStyle = colors.communication;
      context.fillRect(at + computing, top, tasks.communication[i] * perNano, height);
      ++marks;
      if (computing > 34 && height > 12)
        this.drawName(String(tasks.microbatch[i]), Math.max(at, this.left) + 4, top, height,
                      tasks.direction[i] === 'F' ? colors.mark : kDark);
      if (computing > 6) {  // tasks that touch are told apart
        context.fillStyle = colors.ground;
        context.fillRect(at, top, 1, height);
      }
    }
    if (stage.between) this.drawBetween(stage.between, origin, perNano, top, height, colors);
    return marks;
  }

  drawName(text, at, top, height, color) {
    this.context.fillStyle = color;
    this.context.font = '11px sans-serif';
    this.context.textBaseline = 'middle';
    this.context.fillText(text, at, top + height / 2 + 1);
  }

  // Stripes as high as their share of the time.
  drawBetween(between, origin, perNano, top, height, colors) {
    const context = this.context, length = between.end - between.begin;
    const at = origin + between.begin * perNano, width = length * perNano;
    let y = top;
    for (const [part, color] of [['forward', colors.F], ['backward', colors.B],
                                 ['communication', colors.communication],
                                 ['optimizer', colors.S], ['idle', colors.idle]]) {
      const share = height * between[part] / length;
      context.fillStyle = color;
      context.fillRect(at, y, width, share);
      y += share;
    }
    const text = format.count(between.numTasks) + ' tasks, as shares of time';
    if (width < 190 || height < 12) return;
    const from = Math.max(at, this.left) + 4;
    context.fillStyle = colors.ground;
    context.fillRect(from, top + 3, 170, height - 6);
    this.drawName(text, from + 4, top, height, colors.text);
  }

  drawAxis(x) {
    const unit = unitOfSeconds(this.domain[1]);
    const scaled = d3.scale.linear().domain(this.domain.map((t) => t / unit.scale)).range(x.range());
    const count = Math.max(2, Math.floor(this.width / 130));
    const ticks = scaled.ticks(count);
    const digits = Math.max(0, Math.ceil(-Math.log10(ticks[1] - ticks[0] || 1)));
    this.axis.selectAll('*').remove();
    this.axis.append('g').attr('class', 'axis x').call(
        d3.svg.axis().scale(scaled).orient('bottom').tickValues(ticks).innerTickSize(5)
            .outerTickSize(0).tickFormat((tick) => tick.toFixed(digits)));
    this.axis.append('text').attr({class: 'axis-name', x: this.width - 1, y: 36,
                                   'text-anchor': 'end'}).text('time, ' + unit.name);
  }

  // Keeps the moment `center` (seconds) where it is.
  zoom(factor, center) {
    const [from, to] = this.domain, step = this.timeline.stepSeconds;
    const at = center === undefined ? (from + to) / 2 : center;
    const length = Math.min(step, Math.max(step * 1e-6, (to - from) / factor));
    this.moveTo(at - (at - from) * length / (to - from), length);
  }
  pan(seconds) { this.moveTo(this.domain[0] + seconds, this.domain[1] - this.domain[0]); }
  moveTo(from, length) {
    const begin = Math.min(Math.max(0, from), this.timeline.stepSeconds - length);
    this.domain = [Math.max(0, begin), Math.max(0, begin) + length];
    this.draw();
  }

  pick(px, py) {
    const stage = this.timeline.stages[Math.floor(py / this.pitch)];
    if (!stage || px < this.left) return;
    const time = this.scale().invert(px), nano = time * 1e9;
    const i = d3.bisectRight(stage.tasks.end, nano);
    if (i < stage.tasks.begin.length && stage.tasks.begin[i] <= nano)
      this.onPick(describeTask(stage, taskOf(stage, i)));
    else if (stage.between && stage.between.begin <= nano && nano < stage.between.end)
      this.onPick(describeBetween(stage, stage.between));
    else
      this.onPick('Stage ' + stage.stage + ' is idle at ' + format.seconds(time));
  }

  listen() {
    const canvas = this.canvas;
    const place = (event) => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    canvas.addEventListener('wheel', (event) => {
      if (!event.ctrlKey && document.activeElement !== canvas) return;  // the page scrolls
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY * 0.003), this.scale().invert(place(event)[0]));
    }, {passive: false});
    canvas.addEventListener('pointerdown', (event) => {
      this.pointers.set(event.pointerId, place(event));
      this.moved = 0;
      try { canvas.setPointerCapture(event.pointerId); } catch (e) { /* it has left already */ }
    });
    canvas.addEventListener('pointermove', (event) => this.movePointer(event, place(event)));
    const leave = (event) => this.pointers.delete(event.pointerId);
    canvas.addEventListener('pointercancel', leave);
    canvas.addEventListener('pointerup', (event) => {
      if (this.pointers.size === 1 && this.moved < 6) this.pick(...place(event));
      leave(event);
    });
    canvas.addEventListener('keydown', (event) => this.key(event));
  }

  // One pointer drags; of two the distance zooms.
  movePointer(event, to) {
    const from = this.pointers.get(event.pointerId);
    if (!from) return;
    const others = [...this.pointers].filter(([id]) => id !== event.pointerId);
    this.pointers.set(event.pointerId, to);
    this.moved += Math.abs(to[0] - from[0]);
    const perPixel = (this.domain[1] - this.domain[0]) / (this.width - this.left);
    if (others.length === 0) {
      this.pan((from[0] - to[0]) * perPixel);
      return;
    }
    const other = others[0][1][0];
    const before = Math.max(10, Math.abs(from[0] - other)), now = Math.max(10, Math.abs(to[0] - other));
    this.zoom(now / before, this.scale().invert((to[0] + other) / 2));
  }

  key(event) {
    const length = this.domain[1] - this.domain[0];
    const actions = {
      ArrowLeft: () => this.pan(-length / 4), ArrowRight: () => this.pan(length / 4),
      '+': () => this.zoom(2), '=': () => this.zoom(2), '-': () => this.zoom(0.5),
      Home: () => this.moveTo(0, this.timeline.stepSeconds),
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  }
}

// Of the timeline `timeline` the buttons are zoom-in...; of others their id stands before.
function addTimelineControls(figure, view) {
  const prefix = view.id === 'timeline' ? '' : view.id + '-';
  const controls = element(figure, 'div', {class: 'controls'});
  const length = () => view.domain[1] - view.domain[0];
  for (const [id, text, action] of [
    ['zoom-in', 'Zoom in', () => view.zoom(2)],
    ['zoom-out', 'Zoom out', () => view.zoom(0.5)],
    ['earlier', 'Earlier', () => view.pan(-length() / 2)],
    ['later', 'Later', () => view.pan(length() / 2)],
    ['whole', 'Whole step', () => view.moveTo(0, view.timeline.stepSeconds)],
  ])
    element(controls, 'button', {type: 'button', id: prefix + id}, text).addEventListener('click', action);
}

function addStageTable(figure, timeline) {
  const seconds = (title, key) => ({title, value: (s) => s[key], text: (s) => format.seconds(s[key])});
  addHiddenTable(figure, 'what every stage does in a step', [
    {title: 'stage', value: (s) => s.stage}, {title: 'ranks alike', value: (s) => s.ranks},
    {title: 'tasks', value: (s) => s.numTasks}, seconds('forward', 'forwardSeconds'),
    seconds('backward', 'backwardSeconds'), seconds('communication', 'communicationSeconds'),
    seconds('optimizer', 'optimizerSeconds'), seconds('idle', 'idleSeconds'),
  ], timeline.stages);
}

// The tasks of one stage at a time.
function addTaskTable(figure, timeline) {
  const details = element(figure, 'details', {class: 'table', 'data-long': '1'});
  element(details, 'summary', {}, 'Table: tasks of a stage');
  const names = timeline.stages.map((s) => 'stage ' + s.stage);
  const place = document.createElement('div');
  const show = (i) => {
    const stage = timeline.stages[i];
    place.textContent = '';
    if (stage.between)
      element(place, 'p', {}, describeBetween(stage, stage.between));
    const rows = stage.tasks.begin.map((begin, k) => taskOf(stage, k));
    const seconds = (title, key) =>
        ({title, value: (t) => t[key], text: (t) => format.seconds(t[key])});
    addTable(place, 'tasks of stage ' + stage.stage, [
      {title: 'task', value: taskName, left: true}, seconds('begin', 'begin'), seconds('end', 'end'),
      seconds('computing', 'compute'), seconds('communication', 'communication'),
    ], rows);
  };
  addSelect(details, 'Stage', names, 0, show);
  details.appendChild(place);
  details.addEventListener('toggle', () => {
    if (details.open && !place.firstChild) show(0);
  });
}

function addTimeline(timeline, title, lead, id) {
  const drawn = d3.sum(timeline.stages, (s) => s.tasks.begin.length);
  const all = d3.sum(timeline.stages, (s) => s.numTasks);
  const section = addSection(title, lead + ' ' +
      (drawn < all ? format.count(drawn) + ' of ' + format.count(all) + ' tasks are drawn: the first ' +
       'and the last of every stage, and those between them as one sum. ' : '') +
      'Inside a task communication is drawn behind computing. Transfers beside computing, which ' +
      'stop nothing, are not drawn.');
  let readout = null;
  const view = new TimelineView(timeline, id, (text) => { readout.textContent = text; });
  const figure = addFigure(section, 'Stages (rows) over time; a number is the microbatch',
                           (place, width) => view.attach(place, width));
  addLegend(figure, [['var(--forward)', 'forward'], ['var(--backward)', 'backward'],
                     ['var(--communication)', 'communication'],
                     ['var(--optimizer)', 'optimizer, once per step'], ['var(--idle)', 'idle']]);
  addTimelineControls(figure, view);
  readout = addReadout(figure, 'Click or tap a task for its numbers. Drag to move; Ctrl and wheel, ' +
      'two fingers or the buttons zoom.');
  readout.id = id + '-readout';
  addStageTable(figure, timeline);
  addTaskTable(figure, timeline);
}

function addPlayedTimeline(timeline, title) {
  addTimeline(timeline, title, 'The step played task by task: ' + format.seconds(timeline.stepSeconds) +
      '. One rank of every stage is shown; the others of its stage do the same at the same time.', 'timeline');
}

function memorySeries(timeline, chosen) {
  const series = timeline.stages.map((stage, i) => {
    const points = stage.memory.time.map((time, k) => ({x: time * 1e-9, y: stage.memory.bytes[k]}));
    points.push({x: timeline.stepSeconds, y: points[points.length - 1].y});
    return {name: 'stage ' + stage.stage, points, step: true, noPoints: true, faint: i !== chosen,
            color: i === chosen ? 'var(--c1)' : 'var(--muted)'};
  });
  series.push(series.splice(chosen, 1)[0]);  // on top
  return series;
}

function addMemoryOverTime(timeline) {
  const window = d3.max(timeline.stages, (s) => s.memory.window);
  const section = addSection('Memory over time',
      'What a rank of every stage holds: its parameters, gradients and optimizer state, and every ' +
      'microbatch from the begin of its forward to the end of its backward. The peak that the plan ' +
      'needs room for is larger where slots are not all full at once.' +
      (window > 0 ? ' Each value is the most within ' + format.seconds(window * 1e-9) + '.' : ''));
  const peaks = timeline.stages.map((s) => s.peakBytes);
  let chosen = peaks.indexOf(d3.max(peaks));
  const limit = timeline.memoryAvailableBytes, most = Math.max(limit, d3.max(peaks));
  let top = most;
  const time = unitOfSeconds(timeline.stepSeconds);
  const draw = (place, width) => {
    const series = memorySeries(timeline, chosen), unit = unitOfBytes(top);
    for (const s of series)
      for (const point of s.points) Object.assign(point, {x: point.x / time.scale, y: point.y / unit.scale});
    drawLines(place, width, series, {
      label: 'Memory of every stage over time; stage ' + timeline.stages[chosen].stage + ' stands out',
      x: {name: 'time, ' + time.name, domain: [0, timeline.stepSeconds / time.scale]},
      y: {name: 'memory, ' + unit.name, fromZero: true, domain: [0, top * 1.08 / unit.scale]},
      references: limit > top ? [] : [
        {value: limit / unit.scale, text: 'a device has ' + format.bytes(limit)}],
    });
  };
  addSelect(section, 'Stage that stands out', timeline.stages.map((s) => 'stage ' + s.stage), chosen,
            (i) => { chosen = i; drawings.find((d) => d.id === 'memory').draw(); });
  addSelect(section, 'Up to', ['what a device has', 'the largest peak'], 0, (i) => {
    top = i === 0 ? most : d3.max(peaks);
    drawings.find((d) => d.id === 'memory').draw();
  });
  const made = addFigure(section, 'Memory held by a rank of every stage', draw);
  drawings[drawings.length - 1].id = 'memory';
  addHiddenTable(made, 'memory of every stage', [
    {title: 'stage', value: (s) => s.stage},
    {title: 'most at once', value: (s) => d3.max(s.memory.bytes),
     text: (s) => format.bytes(d3.max(s.memory.bytes))},
    {title: 'peak', value: (s) => s.peakBytes, text: (s) => format.bytes(s.peakBytes)},
    {title: 'of a device', value: (s) => 100 * s.peakBytes / limit,
     text: (s) => format.percent(100 * s.peakBytes / limit)},
    {title: 'left', value: (s) => limit - s.peakBytes, text: (s) => format.bytes(limit - s.peakBytes)},
  ], timeline.stages);
}
