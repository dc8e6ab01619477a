// Sections, figures and the tables behind them.

function element(parent, name, attributes, text) {
  const node = document.createElement(name);
  for (const key of Object.keys(attributes || {})) node.setAttribute(key, attributes[key]);
  if (text !== undefined) node.textContent = text;
  if (parent) parent.appendChild(node);
  return node;
}

let numSections = 0;

// A section of the page with its heading; `lead` is a sentence below it.
function addSection(title, lead) {
  const id = 'section-' + ++numSections;
  const section =
      element(document.getElementById('main'), 'section', {'aria-labelledby': id});
  element(section, 'h2', {id}, title);
  if (lead) element(section, 'p', {class: 'lead'}, lead);
  return section;
}

// Names and values side by side.
function addFacts(parent, facts) {
  const list = element(parent, 'dl', {class: 'facts'});
  for (const [name, value] of facts) {
    const group = element(list, 'div');
    element(group, 'dt', {}, name);
    element(group, 'dd', {}, value);
  }
}

// columns: [{title, value(row), text(row), left, long}]; without `text` the value itself is shown;
// `long` text is broken into lines. The exact value of a number is its cell's data-value and title.
function fillTable(table, columns, rows) {
  const head = element(element(table, 'thead'), 'tr');
  for (const column of columns)
    element(head, 'th', {scope: 'col', class: column.left ? 'left' : ''}, column.title);
  const body = element(table, 'tbody');
  for (const row of rows) {
    const line = element(body, 'tr');
    columns.forEach((column, i) => {
      const value = column.value(row);
      const cell = element(line, i === 0 ? 'th' : 'td', column.left ?
          {class: column.long ? 'left long' : 'left'} : {});
      if (i === 0) cell.setAttribute('scope', 'row');
      if (value === null || value === undefined) return;
      cell.textContent = column.text ? column.text(row) : format.plain(value);
      if (typeof value !== 'number') return;
      cell.dataset.value = String(value);
      cell.title = String(value);
    });
  }
}

function addTable(parent, caption, columns, rows) {
  const scroll = element(parent, 'div', {class: 'scroll', tabindex: '0', role: 'region',
                                         'aria-label': caption});
  const table = element(scroll, 'table');
  element(table, 'caption', {}, caption);
  fillTable(table, columns, rows);
  return table;
}

// The same, opened by a click; long ones are filled then.
function addHiddenTable(parent, caption, columns, rows) {
  const details = element(parent, 'details', {class: 'table'});
  element(details, 'summary', {}, 'Table: ' + caption);
  if (rows.length < 2000) {
    addTable(details, caption, columns, rows);
    return details;
  }
  details.dataset.long = String(rows.length);
  details.addEventListener('toggle', () => {
    if (details.open && !details.querySelector('table')) addTable(details, caption, columns, rows);
  });
  return details;
}

// Whatever depends on the width of its place is drawn again when that changes.
const drawings = [];

// A figure with a caption; draw(place, width) fills its chart.
function addFigure(parent, caption, draw) {
  const figure = element(parent, 'figure', {role: 'group', 'aria-label': caption});
  element(figure, 'figcaption', {}, caption);
  const place = element(figure, 'div', {class: 'chart'});
  const drawing = {place, width: 0, draw() {
    const width = Math.floor(place.clientWidth);
    if (width === 0) return;
    drawing.width = width;
    place.textContent = '';
    draw(place, width);
  }};
  drawings.push(drawing);
  drawing.draw();
  return figure;
}

function addLegend(figure, entries) {
  const legend = element(figure, 'ul', {class: 'legend'});
  for (const [color, name] of entries) {
    const item = element(legend, 'li');
    element(item, 'span', {class: 'swatch', style: 'background:' + color, 'aria-hidden': 'true'});
    item.appendChild(document.createTextNode(name));
  }
}

// What was clicked, in words; also said aloud.
function addReadout(figure, hint) {
  return element(figure, 'output', {class: 'readout', 'aria-live': 'polite'}, hint);
}

function addSelect(parent, label, names, chosen, onChange) {
  const outer = element(parent, 'label', {class: 'select'}, label + ' ');
  const select = element(outer, 'select');
  names.forEach((name, i) => {
    const option = element(select, 'option', {value: String(i)}, name);
    option.selected = i === chosen;
  });
  select.addEventListener('change', () => onChange(Number(select.value)));
  return select;
}
