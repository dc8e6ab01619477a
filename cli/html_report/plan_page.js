// `plan` and `plan --check`.

const kPartColors = {
  'matrix products': 'var(--forward)', 'attention': 'var(--c6)', 'elementwise': 'var(--c7)',
  'recomputation': 'var(--backward)', 'optimizer': 'var(--optimizer)', 'launching': 'var(--muted)',
  'bubble': 'var(--muted)',
};
const kParts = ['matrix products', 'attention', 'elementwise', 'recomputation', 'launching',
                'tensor parallel', 'context parallel', 'pipeline transfers', 'bubble', 'data parallel',
                'synchronisation', 'optimizer'];
const kMemoryParts = ['parameters', 'gradients', 'optimizer', 'activations', 'scratch', 'workspace',
                      'other', 'attention', 'reserve'];

// The object's entries in the order of `names`, others behind.
function ordered(object, names) {
  const rest = Object.keys(object).filter((name) => !names.includes(name));
  return names.filter((name) => name in object).concat(rest)
      .map((name) => ({name, value: object[name]}));
}

function addPlanHead(section, answer) {
  const e = answer.estimate;
  element(section, 'p', {class: 'headline'}, answer.summary);
  const facts = [
    ['step', format.seconds(e.stepSeconds)], ['tokens/s', format.count(e.tokensPerSecond)],
    ['MFU (6 N + 12 L h s a token, attention in full)', format.percent(100 * e.modelFlopsUtilisation)],
    ['memory, stage ' + e.memoryStage + ', the fullest',
     format.bytes(e.memoryTotalBytes) + ' of ' + format.bytes(e.memoryAvailableBytes)],
  ];
  if (answer.gpusUsed) facts.push(['devices', answer.gpusUsed + ' of ' + answer.gpusAvailable]);
  if (e.intervalSeconds)
    facts.push(['nine runs of ten', e.intervalSeconds.map(format.seconds).join(' to ')]);
  if (answer.simulatedSeconds)
    facts.push(['simulated step', format.seconds(answer.simulatedSeconds)]);
  addFacts(section, facts);
  if (answer.idleBecause) element(section, 'p', {}, 'Devices are idle: ' + answer.idleBecause);
}

function addBreakdown(estimate) {
  const section = addSection('Where the step goes',
      'The estimate, of the stage that holds up the others; the parts add up to the step, ' +
      format.seconds(estimate.stepSeconds) + '.');
  const rows = ordered(estimate.breakdownSeconds, kParts).map((part) => Object.assign(part, {
    percent: estimate.breakdownPercent[part.name],
    color: kPartColors[part.name] || 'var(--communication)',
    text: format.seconds(part.value) + ', ' + format.percent(estimate.breakdownPercent[part.name]),
  }));
  const figure = addFigure(section, 'Parts of the step', (place, width) => drawBars(
      place, width, rows.filter((row) => row.value > 0), {label: 'Parts of the step'}));
  addHiddenTable(figure, 'parts of the step', [
    {title: 'part', value: (row) => row.name},
    {title: 'time', value: (row) => row.value, text: (row) => format.seconds(row.value)},
    {title: 'share', value: (row) => row.percent, text: (row) => format.percent(row.percent)},
  ], rows);
}

function addMemoryParts(answer) {
  const e = answer.estimate;
  const section = addSection('Memory',
      'Of stage ' + e.memoryStage + ', the fullest: ' + format.bytes(e.memoryTotalBytes) + ' of ' +
      format.bytes(e.memoryAvailableBytes) + ', at its peak.');
  const rows = ordered(e.memoryBytes, kMemoryParts).map((part) => Object.assign(part, {
    percent: 100 * part.value / e.memoryAvailableBytes, text: format.bytes(part.value),
  }));
  const total = {name: 'all', value: e.memoryTotalBytes, text: format.bytes(e.memoryTotalBytes),
                 percent: 100 * e.memoryTotalBytes / e.memoryAvailableBytes, color: 'var(--c3)'};
  const most = Math.max(e.memoryAvailableBytes, e.memoryTotalBytes);
  const figure = addFigure(section, 'Memory of the fullest rank against what a device has',
      (place, width) => drawBars(place, width, rows.filter((row) => row.value > 0).concat([total]), {
        label: 'Memory by purpose', most,
        limit: {value: e.memoryAvailableBytes,
                text: (e.headroomBytes > 0 ? 'may take ' : 'a device has ') +
                    format.bytes(e.memoryAvailableBytes)},
      }));
  addHiddenTable(figure, 'memory by purpose', [
    {title: 'purpose', value: (row) => row.name},
    {title: 'memory', value: (row) => row.value, text: (row) => format.bytes(row.value)},
    {title: 'of a device', value: (row) => row.percent, text: (row) => format.percent(row.percent)},
  ], rows.concat([total]));
}

function addRunnersUp(answer) {
  if (!answer.runnersUp || answer.runnersUp.length === 0) return;
  const step = answer.estimate.stepSeconds;
  const rows = [{summary: answer.summary, step, simulated: answer.simulatedSeconds, slower: 0,
                 why: 'the recommended plan'}].concat(
      answer.runnersUp.map((r) => ({
        summary: r.summary, step: r.estimate.stepSeconds, simulated: r.simulatedSeconds,
        slower: r.slowerSeconds,
        why: r.lostBy === 'tie' ? 'as fast, but less simple'
                                : r.lostBy + ' +' + format.seconds(r.lostBySeconds)})));
  const section = addSection('Runners-up',
      'The best plans of other degrees of parallelism, and in which part of the step each loses most.');
  const bars = rows.map((row, i) => ({
    name: i === 0 ? 'recommended' : 'runner-up ' + i, value: row.step,
    text: format.seconds(row.step) + (i ? ', +' + format.percent(100 * row.slower / step) : ''),
    color: i === 0 ? 'var(--c1)' : 'var(--muted)'}));
  const figure = addFigure(section, 'Step time of the best plans',
      (place, width) => drawBars(place, width, bars, {label: 'Step time of the best plans'}));
  addTable(figure, 'runners-up', [
    {title: 'step', value: (row) => row.step, text: (row) => format.seconds(row.step)},
    {title: 'simulated', value: (row) => row.simulated, text: (row) => format.seconds(row.simulated)},
    {title: 'slower', value: (row) => row.slower, text: (row) => format.seconds(row.slower)},
    {title: 'plan', value: (row) => row.summary, left: true, long: true},
    {title: 'loses by', value: (row) => row.why, left: true},
  ], rows);
}

function addCertificate(answer) {
  const c = answer.certificate;
  const space = 'no plan of the space' +
      (c.ofEvenChunks ? ' (chunks of a stage differ by one layer at most)' : '') + ' is faster than ';
  const beyond = !c.planIsBeyond ? '' : 'The plan is none of the space' +
      (c.allCuts ? '. ' : ', and others like it are not bounded. ');
  const all = c.allCuts ? ' Whatever the chunks, no plan is faster than ' + format.seconds(c.allCuts.boundSeconds) +
      ', gap ' + format.gap(100 * c.allCuts.gap) + '.' : '';
  const section = addSection('Certificate', beyond + (c.gap <= 0
      ? (c.planIsBeyond ? 'Gap 0 %: ' : 'Optimal, gap 0 %: ') + space + format.seconds(c.boundSeconds) + '.'
      : 'Gap ' + format.gap(100 * c.gap) + ': ' + space + 'the bound ' + format.seconds(c.boundSeconds) +
        '.') + all);
  addFacts(section, [
    ['bound', format.seconds(c.boundSeconds)], ['gap', format.gap(100 * c.gap)],
    ['groups', format.count(c.groups)], ['candidates bounded', format.count(c.bounded)],
    ['costed in full', format.count(c.costed)], ['search', format.seconds(answer.searchSeconds)],
  ]);
  const count = [{title: 'pruned by', value: (row) => row.name},
                 {title: 'candidates', value: (row) => row.value, text: (row) => format.count(row.value)}];
  addTable(section, 'what the search left out, by rule', count, ordered(c.pruned, []));
  if (!answer.rejections || answer.rejections.length === 0) return;
  addHiddenTable(section, 'degrees that no plan could use', [
    {title: 'rule', value: (row) => row.rule}, {title: 'what', value: (row) => row.subject, left: true},
    {title: 'needed', value: (row) => row.needed, left: true},
    {title: 'available', value: (row) => row.available, left: true},
  ], answer.rejections);
}

function addLines(title, lead, lines) {
  if (!lines || lines.length === 0) return;
  const list = element(addSection(title, lead), 'ul', {class: 'lines'});
  for (const line of lines) element(list, 'li', {}, line);
}

function addCriticalPath(path) {
  if (!path) return;
  const section = addSection('Critical path', 'What the simulated step waits for, from its begin to ' +
      'its end; the phases add up to ' + format.seconds(path.simulatedSeconds) + '.');
  const rows = path.phases.map((p) => ({
    name: p.phase, value: p.seconds, color: 'var(--c1)',
    text: format.seconds(p.seconds) + ', ' + format.percent(p.percent)}));
  const figure = addFigure(section, 'Phases of the critical path',
      (place, width) => drawBars(place, width, rows, {label: 'Phases of the critical path'}));
  const seconds = (title, key) => ({title, value: (p) => p[key], text: (p) => format.seconds(p[key])});
  addHiddenTable(figure, 'phases of the critical path', [
    {title: 'phase', value: (p) => p.phase}, seconds('time', 'seconds'),
    {title: 'share', value: (p) => p.percent, text: (p) => format.percent(p.percent)},
    {title: 'stages', value: (p) => p.stages.join(', '), left: true},
    {title: 'forward passes', value: (p) => p.forwardPasses}, seconds('forward', 'forwardSeconds'),
    {title: 'backward passes', value: (p) => p.backwardPasses}, seconds('backward', 'backwardSeconds'),
    {title: 'weights passes', value: (p) => p.weightsPasses}, seconds('weights', 'weightsSeconds'),
    seconds('tensor parallel', 'tensorParallelSeconds'), seconds('transfers', 'transferSeconds'),
  ], path.phases);
}

function addOutlook(outlook) {
  if (!outlook) return;
  const section = addSection('What would change it',
      'Each line is the answer of a search of its own, on other hardware or with another batch.');
  const rows = outlook.sensitivities;
  const figure = addFigure(section, 'Gain in tokens per second', (place, width) => drawBars(
      place, width, rows.map((s) => ({name: s.change, value: s.gain,
                                      text: format.percent(100 * s.gain)})),
      {label: 'Gain in tokens per second of each change'}));
  addHiddenTable(figure, 'what other hardware or a larger batch would bring', [
    {title: 'change', value: (s) => s.change, left: true},
    {title: 'step', value: (s) => s.stepSeconds, text: (s) => format.seconds(s.stepSeconds)},
    {title: 'tokens/s', value: (s) => s.tokensPerSecond, text: (s) => format.count(s.tokensPerSecond)},
    {title: 'gain', value: (s) => s.gain, text: (s) => format.percent(100 * s.gain)},
    {title: 'plan', value: (s) => s.samePlan ? 'the same' : 'another', left: true},
  ], rows);
}

function addPlanText(text, title = 'The plan as a file') {
  const section = addSection(title, 'What -o writes, and compile and export read.');
  const details = element(section, 'details');
  element(details, 'summary', {}, 'Show');
  element(details, 'pre', {tabindex: '0'}, text);
}

// The question's lines: a name in 14 columns, and a value.
function addQuestion(section, question) {
  const list = element(section, 'dl', {class: 'asked'});
  for (const line of question.split('\n').filter((text) => text.trim())) {
    const group = element(list, 'div');
    element(group, 'dt', {}, line.slice(0, 14).trim());
    element(group, 'dd', {}, line.slice(14).trim());
  }
}

function addStep(answer, timeline) {
  addBreakdown(answer.estimate);
  if (timeline) addPlayedTimeline(timeline, 'Timeline of a step');
  addMemoryParts(answer);
  if (timeline) addMemoryOverTime(timeline);
}

function showPlan(data) {
  const answer = data.answer;
  const section = addSection('The plan');
  addQuestion(section, data.question);
  addPlanHead(section, answer);
  addStep(answer, data.timeline);
  addRunnersUp(answer);
  addCertificate(answer);
  addLines('Why', 'What every choice is worth: it alone is changed.', answer.why);
  addCriticalPath(answer.criticalPath);
  addOutlook(answer.outlook);
  addPlanText(answer.plan);
}

function addVerdict(section, answer) {
  const text = [];
  if (!answer.fits)
    text.push('It does not fit: ' + format.bytes(answer.missingBytes) + ' too much memory.');
  if (!answer.optimum)
    text.push('There is no plan to compare it with: ' + answer.noOptimum);
  else if (answer.behindSeconds > 0)
    text.push('The best plan on as many devices is ' + format.seconds(answer.behindSeconds) + ' (' +
              format.percent(answer.behindPercent) + ') faster: ' + answer.optimum.summary + '.');
  else
    text.push('No plan of the search is faster on as many devices.');
  if (answer.bestChange) text.push('Best single change: ' + answer.bestChange.line + '.');
  for (const line of text) element(section, 'p', {class: 'verdict'}, line);
}

function addComparison(answer) {
  if (!answer.optimum) return;
  const mine = answer.estimate.breakdownSeconds, best = answer.optimum.estimate.breakdownSeconds;
  const rows = ordered(mine, kParts).map((part) => (
      {name: part.name, mine: part.value, best: best[part.name], difference: part.value - best[part.name]}));
  const section = addSection('Beside the best plan', answer.optimum.summary);
  const seconds = (title, key) => ({title, value: (r) => r[key], text: (r) => format.seconds(r[key])});
  addTable(section, 'parts of the step, of this plan and the best one', [
    {title: 'part', value: (r) => r.name}, seconds('this plan', 'mine'), seconds('best plan', 'best'),
    seconds('difference', 'difference'),
  ], rows.concat([{name: 'step', mine: answer.estimate.stepSeconds,
                   best: answer.optimum.estimate.stepSeconds, difference: answer.behindSeconds}]));
}

function showCheck(data) {
  const answer = data.answer;
  const section = addSection('The plan that was checked');
  addQuestion(section, data.question);
  addPlanHead(section, answer);
  addVerdict(section, answer);
  addComparison(answer);
  addStep(answer, data.timeline);
  addLines('Every single change', 'It alone is changed.', answer.changes.map((change) => change.line));
  if (answer.optimum) addCertificate(answer.optimum);
  addPlanText(answer.plan);
}
