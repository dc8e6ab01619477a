'use strict';
// Numbers as text: the command's own units (ir/base/format.h).

const format = {
  // 16.291 s, 102.275 ms, 60.6 us
  seconds(s) {
    const size = Math.abs(s);
    if (size >= 1) return s.toFixed(3) + ' s';
    if (size >= 1e-3) return (s * 1e3).toFixed(3) + ' ms';
    if (size >= 1e-6) return (s * 1e6).toFixed(1) + ' us';
    return (s * 1e9).toFixed(0) + ' ns';
  },
  duration(s) {
    const units = [[365 * 86400, 'y'], [86400, 'd'], [3600, 'h'], [60, 'min']];
    for (const [length, unit] of units)
      if (Math.abs(s) >= length) return (s / length).toFixed(1) + ' ' + unit;
    return format.seconds(s);
  },
  bytes(b) {
    const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
    let i = 0;
    for (; Math.abs(b) >= 1024 && i < units.length - 1; ++i) b /= 1024;
    return (i === 0 ? b.toFixed(0) : b.toFixed(2)) + ' ' + units[i];
  },
  percent(p) { return p.toFixed(1) + ' %'; },
  // As many digits as show what is not zero: 0 %, 0.84 %, 0.003 %; less than 1e-9 % is rounding.
  gap(p) { return (p <= 0 ? '0' : p < 1e-9 ? 'below 1e-9' : p.toFixed(Math.min(9, Math.max(2, Math.ceil(-Math.log10(p)))))) + ' %'; },
  count(n) { return Number(n).toLocaleString('en-US', {maximumFractionDigits: 0}); },
  // 3 significant digits with a prefix: 1.23 M
  short(n) {
    const prefixes = [[1e12, ' T'], [1e9, ' G'], [1e6, ' M'], [1e3, ' k']];
    for (const [size, prefix] of prefixes)
      if (Math.abs(n) >= size) return Number((n / size).toPrecision(4)) + prefix;
    return String(Number(n.toPrecision(4)));
  },
  plain(n) { return typeof n === 'number' ? String(Number(n.toPrecision(6))) : String(n); },
};

// The unit in which ticks of an axis up to `most` are short: {scale, name}.
function unitOfSeconds(most) {
  if (most >= 2 * 86400) return {scale: 86400, name: 'd'};
  if (most >= 2 * 3600) return {scale: 3600, name: 'h'};
  if (most >= 1) return {scale: 1, name: 's'};
  if (most >= 1e-3) return {scale: 1e-3, name: 'ms'};
  return {scale: 1e-6, name: 'us'};
}
function unitOfBytes(most) {
  for (const [scale, name] of [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [1024, 'KiB']])
    if (most >= scale) return {scale, name};
  return {scale: 1, name: 'B'};
}
