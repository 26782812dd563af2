// Draws the fenced blocks of the language "plot" from certificates below docs/. A block
// is JSON:
//
//   {"curves": CHECK, "name": WORDS, "from": BYTES, "of": [DIR, ...]}     a curve of one check on several machines
//   {"curves": [CHECK, ...], "name": WORDS, "from": BYTES, "of": [DIR]}   several checks' curves on one machine
//   {"bars": {CHECK: LABEL, ...}, "of": [DIR]}                            measured, as a fraction of what is expected
//
// The table below a plot has every figure; a curve is drawn from BYTES on.
import { readFileSync } from "node:fs"

const escape = text => String(text).replace(/[&<>"]/g, c => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c])

function certificate(dir, host) {
  const p = JSON.parse(readFileSync(`docs/${dir}/certificate.json`, "utf8")).predicate
  const gpus = p.node.gpus ?? []
  const machine = gpus.length && !host ? `${gpus.length} × ${gpus[0].name}` : `${p.environment.cpu}, ${p.environment.cpus} processors`
  return {
    dir,
    machine,
    result: id => p.results.find(r => r.id === id) ?? fail(`${dir} has no check ${id}`),
    source: `${machine}${p.node.driver && !host ? `, driver ${p.node.driver}` : ""}, ${p.finished.slice(0, 10)}, harness ${(p.harness.commit ?? p.harness.version).slice(0, 12)}: <a href="${dir}/report.html" target="_self">${dir}</a>`,
    command: `harness certify --suite ${p.suite}`,
  }
}

function fail(why) {
  throw new Error(`plot: ${why}`)
}

const binary = bytes => {
  const power = Math.min(3, Math.floor(Math.log2(bytes) / 10))
  return `${bytes / 2 ** (10 * power)} ${["B", "KiB", "MiB", "GiB"][power]}`
}
const round = value => String(+value.toPrecision(4))

// steps are ticks at round values from zero to the most.
function steps(most) {
  const raw = most / 5
  const unit = 10 ** Math.floor(Math.log10(raw))
  const step = unit * [1, 2, 5, 10].find(m => m * unit >= raw)
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step)
}

const table = (caption, head, rows) =>
  `<details><summary>${caption}: the figures</summary><div class="table" tabindex="0" role="group" aria-label="figures"><table><thead><tr>${head.map(h => `<th scope="col">${escape(h)}</th>`).join("")}</tr></thead><tbody>` +
  rows.map(r => `<tr><th scope="row">${escape(r[0])}</th>${r.slice(1).map(c => `<td>${escape(c)}</td>`).join("")}</tr>`).join("") +
  "</tbody></table></div></details>"

const figure = (title, body, of) =>
  `<figure class="plot" v-pre><figcaption>${escape(title)}</figcaption>${body}` +
  `<p class="source">Repeat: <code>${[...new Set(of.map(c => c.command))].join(", ")}</code></p>` +
  of.map(c => `<p class="source">${c.source}</p>`).join("") +
  "</figure>\n"

function curves({ title, curves: checks, name, from = 1, of: dirs }) {
  const of = dirs.map(dir => certificate(dir, [checks].flat()[0].includes("host/")))
  const twice = c => of.some(d => d !== c && d.machine === c.machine) ? ` (${c.dir.split("/").at(-1)})` : ""
  const series = of.flatMap(c => [checks].flat().map(id => {
    const curve = c.result(id).curves?.find(k => k.name.endsWith(name)) ?? fail(`${c.dir}, ${id}: no curve ${name}`)
    if (curve.x !== "B") fail(`${id}: the horizontal axis is ${curve.x}, not bytes`)
    return { name: Array.isArray(checks) ? id.split("/").at(-1) : c.machine + twice(c), unit: curve.y, points: curve.points.filter(p => p.x > 0) }
  }))
  const unit = series[0].unit
  const all = [...new Set(series.flatMap(s => s.points.map(p => p.x)))].sort((a, b) => a - b)
  const xs = all.filter(v => v >= from)
  const most = Math.max(...series.flatMap(s => s.points.map(p => p.y))) * 1.05
  const [left, right, top, bottom, width, height] = [52, 28, 14, 48, 720, 340]
  const x = v => left + (Math.log2(v / xs[0]) / Math.log2(xs.at(-1) / xs[0])) * (width - left - right)
  const y = v => height - bottom - (v / most) * (height - top - bottom)
  const at = n => n.toFixed(1)
  let svg = `<div class="drawing" tabindex="0" role="group" aria-label="plot"><svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${escape(title)}">`
  for (const v of steps(most)) svg += `<path class="grid" d="M${left} ${at(y(v))}H${width - right}"/><text class="tick" x="${left - 6}" y="${at(y(v) + 4)}" text-anchor="end">${round(v)}</text>`
  const ticks = xs.filter(v => Number.isInteger(Math.log2(v)))
  for (const v of ticks.filter((_, i) => i % Math.ceil(ticks.length / 8) === 0)) svg += `<text class="tick" x="${at(x(v))}" y="${height - bottom + 18}" text-anchor="middle">${binary(v)}</text>`
  svg += `<text x="${(left + width - right) / 2}" y="${height - 6}" text-anchor="middle">bytes</text>`
  series.forEach((s, i) => {
    svg += `<g class="s${i}"><path class="line" d="M${s.points.filter(p => p.x >= from).map(p => `${at(x(p.x))} ${at(y(p.y))}`).join("L")}"/>${s.points.filter(p => p.x >= from).map(p => `<circle class="dot" cx="${at(x(p.x))}" cy="${at(y(p.y))}" r="2.5"/>`).join("")}</g>`
  })
  svg += "</svg></div>"
  const legend = `<ul class="legend">${series.map((s, i) => `<li class="s${i}"><svg viewBox="0 0 34 12" aria-hidden="true"><path class="line" d="M0 6H34"/></svg>${escape(s.name)}</li>`).join("")}</ul>`
  const rows = all.map(v => [binary(v), ...series.map(s => s.points.find(p => p.x === v)).map(p => (p ? round(p.y) : ""))])
  return figure(`${title} (${unit})`, legend + svg + table(title, ["bytes", ...series.map(s => s.name)], rows), of)
}

function bars({ title, bars: checks, of: dirs }) {
  const of = dirs.map(dir => certificate(dir))
  const rows = Object.entries(checks).map(([id, name]) => {
    const { measured } = of[0].result(id)
    return measured?.expected ? { name, ...measured } : fail(`${id}: nothing is expected`)
  })
  const [left, right, row, top, width] = [230, 110, 26, 8, 720]
  const most = 1.2
  const x = v => left + (v / most) * (width - left - right)
  const height = top + rows.length * row + 40
  let svg = `<div class="drawing" tabindex="0" role="group" aria-label="plot"><svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${escape(title)}">`
  for (const v of [0, 0.2, 0.4, 0.6, 0.8, 1, 1.2]) svg += `<path class="grid" d="M${x(v).toFixed(1)} ${top}V${height - 36}"/><text class="tick" x="${x(v).toFixed(1)}" y="${height - 18}" text-anchor="middle">${Math.round(v * 100)} %</text>`
  rows.forEach((r, i) => {
    const y = top + i * row
    svg += `<text x="${left - 8}" y="${y + 17}" text-anchor="end">${escape(r.name)}</text><g class="s0"><rect class="bar" x="${left}" y="${y + 5}" width="${(x(r.ratio) - left).toFixed(1)}" height="${row - 10}"/></g>`
    if (r.limit) svg += `<path class="limit" d="M${x(r.limit.value / r.expected).toFixed(1)} ${y + 2}v${row - 4}"/>`
    svg += `<text x="${width - right + 8}" y="${y + 17}">${round(r.value)} ${escape(r.unit)}</text>`
  })
  svg += "</svg></div>"
  const figures = rows.map(r => [r.name, `${round(r.value)} ${r.unit}`, `${round(r.expected)} ${r.unit} (${r.source})`, `${Math.round(r.ratio * 100)} %`, r.limit ? `${round(r.limit.value)} ${r.unit} (${r.limit.source})` : ""])
  return figure(title, svg + table(title, ["what", "measured", "expected", "of it", "limit"], figures), of)
}

export function plots(md) {
  const fence = md.renderer.rules.fence
  md.renderer.rules.fence = (tokens, at, ...rest) => {
    if (tokens[at].info.trim() !== "plot") return fence(tokens, at, ...rest)
    const plot = JSON.parse(tokens[at].content)
    return plot.bars ? bars(plot) : curves(plot)
  }
}
