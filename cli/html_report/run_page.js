// `run` and `calibrate`.

function showRun(data) {
  const answer = data.answer, steps = answer.losses.map((loss, i) => answer.firstStep + i);
  const section = addSection('The run');
  element(section, 'p', {class: 'headline'}, answer.plan);
  const facts = [
    ['steps', steps[0] + ' to ' + steps[steps.length - 1] + (answer.interrupted ? ', interrupted' : '')],
    ['ranks', format.count(answer.ranks)],
    ['loss', answer.losses[0].toFixed(4) + ' to ' + answer.losses[answer.losses.length - 1].toFixed(4)],
    ['step, measured', format.seconds(answer.measuredStepSeconds)],
  ];
  if ('predictedStepSeconds' in answer)
    facts.push(['step, predicted', format.seconds(answer.predictedStepSeconds) + ' (' +
                (100 * (answer.predictedStepSeconds / answer.measuredStepSeconds - 1)).toFixed(1) + ' %)']);
  facts.push(['tokens/s', format.count(answer.tokensPerSecond)],
             ['process at its peak', format.bytes(answer.processPeakBytes)],
             ['arenas', format.bytes(answer.arenaBytes)]);
  addFacts(section, facts);
  if (answer.checkpoint) element(section, 'p', {}, 'Checkpoint: ' + answer.checkpoint);
  addRunCurve('Loss', answer.losses, steps, {name: 'loss'}, (loss) => loss.toFixed(4), 'var(--c1)');
  addRunTimes(answer, steps);
  addRunTimelines(data.timeline || {});
  const rows = steps.map((step, i) => ({step, loss: answer.losses[i], seconds: answer.stepSeconds[i]}));
  addHiddenTable(addSection('Every step'), 'loss and time of every step', [
    {title: 'step', value: (r) => r.step}, {title: 'loss', value: (r) => r.loss, text: (r) => r.loss.toFixed(6)},
    {title: 'time', value: (r) => r.seconds, text: (r) => format.seconds(r.seconds)}], rows);
}

function addRunCurve(title, values, steps, y, text, color, references, lead) {
  const section = addSection(title, lead);
  const few = steps.length <= 200;
  const points = values.map((value, i) => (
      {x: steps[i], y: value / (y.scale || 1), text: 'Step ' + steps[i] + ': ' + text(value)}));
  let readout = null;
  const figure = addFigure(section, title + ' of every step', (place, width) => drawLines(
      place, width, [{name: title, points, color, noPoints: !few, size: 28}], {
        label: title + ' over steps', x: {name: 'step', format: format.count, ticks: steps}, y, references,
        onPick: (point) => { readout.textContent = point.text; }}));
  readout = addReadout(figure, 'Click or tap the curve for a step’s numbers.');
}

function addRunTimes(answer, steps) {
  const most = Math.max(d3.max(answer.stepSeconds), answer.predictedStepSeconds || 0);
  const unit = unitOfSeconds(most);
  const reference = (seconds, name) => (
      {value: seconds / unit.scale, text: name + ' ' + format.seconds(seconds)});
  const references = [];
  if ('predictedStepSeconds' in answer)
    references.push(reference(answer.predictedStepSeconds, 'predicted'));
  addRunCurve('Time', answer.stepSeconds, steps,
              {name: 'time, ' + unit.name, scale: unit.scale, fromZero: true}, format.seconds,
              'var(--c3)', references, 'Measured' + (references.length ? ' against predicted' : '') +
              '; the median without the first step is ' + format.seconds(answer.measuredStepSeconds) + '.');
}

// One above the other, and every stage's times side by side.
function addRunTimelines({measured, predicted}) {
  if (!measured) return;
  addTimeline(measured, 'Timeline of the last step, measured', 'One rank of every stage, ' +
      format.seconds(measured.stepSeconds) + '; its communication is with the waiting for other ranks.',
      'measured');
  if (!predicted) return;
  addPlayedTimeline(predicted, 'Timeline of a step, predicted');
  const section = addSection('Predicted against measured', 'What one rank of every stage does in a step.');
  const rows = d3.merge(measured.stages.map((stage, i) => [
    ['forward', 'forwardSeconds'], ['backward', 'backwardSeconds'],
    ['communication', 'communicationSeconds'], ['optimizer', 'optimizerSeconds'], ['idle', 'idleSeconds'],
  ].map(([part, key]) => ({stage: stage.stage, part, measured: stage[key],
                           predicted: predicted.stages[i][key]}))));
  const most = d3.max(rows, (row) => Math.max(row.measured, row.predicted));
  const bars = d3.merge(rows.filter((row) => row.measured + row.predicted > 0.005 * most).map((row) => [
    {name: 'stage ' + row.stage + ', ' + row.part + ', measured', value: row.measured, color: 'var(--c1)',
     text: format.seconds(row.measured)},
    {name: 'predicted', value: row.predicted, color: 'var(--muted)', text: format.seconds(row.predicted)}]));
  const figure = addFigure(section, 'Parts of the step of every stage', (place, width) => drawBars(
      place, width, bars, {label: 'Parts of the step, measured and predicted', most}));
  addTable(figure, 'parts of the step, predicted against measured', [
    {title: 'stage', value: (r) => r.stage}, {title: 'part', value: (r) => r.part, left: true},
    {title: 'measured', value: (r) => r.measured, text: (r) => format.seconds(r.measured)},
    {title: 'predicted', value: (r) => r.predicted, text: (r) => format.seconds(r.predicted)},
    {title: 'difference', value: (r) => r.predicted - r.measured,
     text: (r) => r.measured > 0 ? format.percent(100 * (r.predicted / r.measured - 1)) : ''}], rows);
}

function showCalibrate(data) {
  const answer = data.answer;
  const section = addSection('The cluster');
  const facts = [['cluster', answer.cluster]];
  if (answer.ranks) {
    facts.push(['ranks at once', format.count(answer.ranks)], ['memory', format.bytes(answer.memoryBytes)],
               ['memory bandwidth', (answer.memoryBandwidth / 1e9).toFixed(1) + ' GB/s'],
               ['launch', format.seconds(answer.launchSeconds)]);
    for (const {name, value} of ordered(answer.matmulFlopsPerSecond, []))
      facts.push(['products, ' + name, (value / 1e9).toFixed(1) + ' GFLOP/s']);
  }
  addFacts(section, facts);
  if (answer.kernels) addKernels(answer);
  addCurves(answer.curves);
}

function addKernels(answer) {
  const section = addSection('Kernels: fitted against measured', 'Every call that was timed, and what the ' +
      'fit says of it; on the line both are equal.');
  const timed = answer.timedKernels, dtypes = [...new Set(timed.map((t) => t.dtype))];
  const unit = 1e6;
  const series = dtypes.map((dtype, i) => ({
    name: dtype, pointsOnly: true, size: 30, color: kSeries[i],
    points: timed.filter((t) => t.dtype === dtype).map((t) => ({
      x: t.measuredSeconds * unit, y: t.fittedSeconds * unit,
      text: t.kernel + ', ' + dtype + ': measured ' + format.seconds(t.measuredSeconds) + ', fitted ' +
          format.seconds(t.fittedSeconds)}))}));
  const all = timed.map((t) => t.measuredSeconds * unit);
  series.unshift({name: 'equal', noPoints: true, color: 'var(--muted)',
                  points: d3.extent(all).map((v) => ({x: v, y: v}))});
  let readout = null;
  const figure = addFigure(section, 'Fitted over measured times, both logarithmic', (place, width) => drawLines(
      place, width, series, {
        label: 'Fitted over measured times of kernels', height: Math.max(280, Math.min(460, width * 0.7)),
        x: {name: 'measured, us', log: true}, y: {name: 'fitted, us', log: true},
        onPick: (point) => { readout.textContent = point.text; }}));
  addLegend(figure, series.map((s) => [s.color, s.name]));
  readout = addReadout(figure, 'Click or tap a point for its numbers.');
  addTable(figure, 'kernels', [
    {title: 'kernel', value: (k) => k.kernel, left: true}, {title: 'type', value: (k) => k.dtype, left: true},
    {title: 'sizes', value: (k) => k.sizes},
    {title: 'mean error', value: (k) => k.meanError, text: (k) => format.percent(100 * k.meanError)},
    {title: 'time per unit', left: true, value: (k) => ordered(k.secondsPer || {}, []).map(
        ({name, value}) => name + ' ' + value.toPrecision(4) + ' s').join(', ')}], answer.kernels);
  addHiddenTable(figure, 'every timed call', [
    {title: 'kernel', value: (t) => t.kernel, left: true}, {title: 'type', value: (t) => t.dtype, left: true},
    {title: 'measured', value: (t) => t.measuredSeconds, text: (t) => format.seconds(t.measuredSeconds)},
    {title: 'fitted', value: (t) => t.fittedSeconds, text: (t) => format.seconds(t.fittedSeconds)},
    {title: 'error', value: (t) => t.fittedSeconds / t.measuredSeconds - 1,
     text: (t) => format.percent(100 * (t.fittedSeconds / t.measuredSeconds - 1))}], timed);
}

function addCurves(curves) {
  if (!curves || curves.length === 0) return;
  const section = addSection('Collectives', 'Bus bandwidth over the size of the payload.');
  const name = (c) => c.collective + ' among ' + c.group + ', ' + c.tier;
  const series = curves.map((c, i) => ({
    name: name(c), color: kSeries[i % kSeries.length], size: 36,
    points: c.bytesAndBusBandwidth.map(([bytes, rate]) => ({
      x: bytes, y: rate / 1e9, text: name(c) + ': ' + (rate / 1e9).toPrecision(4) + ' GB/s at ' +
          format.bytes(bytes)}))}));
  let readout = null;
  const figure = addFigure(section, 'Bus bandwidth, both logarithmic', (place, width) => drawLines(
      place, width, series, {
        label: 'Bus bandwidth over payload', y: {name: 'GB/s', log: true},
        x: {name: 'payload', log: true, format: (v) => format.bytes(v).replace('.00', '')},
        onPick: (point) => { readout.textContent = point.text; }}));
  addLegend(figure, series.map((s) => [s.color, s.name]));
  readout = addReadout(figure, 'Click or tap a point for its numbers.');
  const rows = d3.merge(curves.map((c) => c.bytesAndBusBandwidth.map(([bytes, rate]) => ({name: name(c), bytes, rate}))));
  addHiddenTable(figure, 'bus bandwidth', [
    {title: 'collective', value: (r) => r.name, left: true},
    {title: 'payload', value: (r) => r.bytes, text: (r) => format.bytes(r.bytes)},
    {title: 'bus bandwidth', value: (r) => r.rate, text: (r) => (r.rate / 1e9).toPrecision(4) + ' GB/s'}], rows);
}
