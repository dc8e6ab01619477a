// Which page, and what all pages have.

const kPages = {plan: showPlan, check: showCheck, whatif: showWhatif, difference: showDifference,
                worth: showWorth, run: showRun, calibrate: showCalibrate};

function addAllNumbers(data) {
  const section = addSection('All numbers', 'What the command prints with --json: seconds, bytes.');
  const details = element(section, 'details', {'data-long': '1'});
  element(details, 'summary', {}, 'Show');
  details.addEventListener('toggle', () => {
    if (details.open && !details.querySelector('pre'))
      element(details, 'pre', {tabindex: '0', id: 'json'}, JSON.stringify(data.answer, null, 2));
  });
}

function drawAgain(force) {
  for (const drawing of drawings)
    if (force || Math.floor(drawing.place.clientWidth) !== drawing.width) drawing.draw();
}

// On paper tables are open but for those of thousands of rows.
function openTables() {
  const closed = document.querySelectorAll('details.table:not([open]):not([data-long])');
  closed.forEach((details) => { details.open = true; });
  window.addEventListener('afterprint', () => closed.forEach((d) => { d.open = false; }), {once: true});
}

(function() {
  const data = JSON.parse(document.getElementById('data').textContent);
  kPages[data.kind](data);
  addAllNumbers(data);
  let waiting = 0;
  window.addEventListener('resize', () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => drawAgain(false));
  });
  window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => drawAgain(true));
  window.addEventListener('beforeprint', () => { openTables(); drawAgain(true); });
  window.addEventListener('afterprint', () => drawAgain(true));
  document.documentElement.dataset.ready = 'true';
})();
