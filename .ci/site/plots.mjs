// Draws the fenced blocks of the language "plot" from certificates and comparisons below docs/. A
// block is JSON:
//
//   {"curves": CHECK, "name": WORDS, "from": BYTES, "of": [DIR, ...]}     a curve of one check on several machines
//   {"curves": [CHECK, ...], "name": WORDS, "from": BYTES, "of": [DIR]}   several checks' curves on one machine
//   {"bars": {CHECK: LABEL, ...}, "of": [DIR]}                            measured, as a fraction of what is expected
//   {"times": COLLECTIVE, "command": TEXT, "of": [{"gpu": NAME, "ranks": N, "when": DATE}, ...]}
//                                                                         from the tuner's tables
//   {"ratios": [FILE, ...], "graph": BOOL, "command": TEXT}               comparisons: the other engine's time / ours
//   {"both": FILE, "command": TEXT}                                       one comparison: times of both engines
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

// lines draws series over bytes; the vertical axis is linear from zero, or logarithmic.
function lines(title, unit, series, { from = 1, logarithmic = false } = {}) {
  const all = [...new Set(series.flatMap(s => s.points.map(p => p.x)))].sort((a, b) => a - b)
  const xs = all.filter(v => v >= from)
  const ys = series.flatMap(s => s.points.filter(p => p.x >= from).map(p => p.y))
  const [left, right, top, bottom, width, height] = [52, 28, 14, 48, 720, 340]
  const x = v => left + (Math.log2(v / xs[0]) / Math.log2(xs.at(-1) / xs[0])) * (width - left - right)
  const decade = v => 10 ** Math.floor(Math.log10(v))
  const [least, most] = logarithmic ? [decade(Math.min(...ys)), Math.max(...ys) * 1.2] : [0, Math.max(...ys) * 1.05]
  const share = v => (logarithmic ? Math.log(v / least) / Math.log(most / least) : v / most)
  const y = v => height - bottom - share(v) * (height - top - bottom)
  const ticksY = logarithmic ? Array.from({ length: 8 }, (_, i) => least * 10 ** i).filter(v => v <= most) : steps(most)
  const at = n => n.toFixed(1)
  let svg = `<div class="drawing" tabindex="0" role="group" aria-label="plot"><svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${escape(title)}">`
  for (const v of ticksY) svg += `<path class="grid" d="M${left} ${at(y(v))}H${width - right}"/><text class="tick" x="${left - 6}" y="${at(y(v) + 4)}" text-anchor="end">${round(v)}</text>`
  const step = Math.ceil(Math.log2(xs.at(-1) / xs[0]) / 8)
  for (let v = xs[0], i = 0; v <= xs.at(-1); v *= 2, i++) if (i % step === 0) svg += `<text class="tick" x="${at(x(v))}" y="${height - bottom + 18}" text-anchor="middle">${binary(v)}</text>`
  svg += `<text x="${(left + width - right) / 2}" y="${height - 6}" text-anchor="middle">bytes</text>`
  series.forEach((s, i) => {
    const points = s.points.filter(p => p.x >= from).map(p => [at(x(p.x)), at(y(p.y))])
    svg += `<g class="s${i}"><path class="line" d="M${points.map(p => p.join(" ")).join("L")}"/>${points.map(p => `<circle class="dot" cx="${p[0]}" cy="${p[1]}" r="2.5"/>`).join("")}</g>`
  })
  svg += "</svg></div>"
  const legend = `<ul class="legend">${series.map((s, i) => `<li class="s${i}"><svg viewBox="0 0 34 12" aria-hidden="true"><path class="line" d="M0 6H34"/></svg>${escape(s.name)}</li>`).join("")}</ul>`
  const rows = all.map(v => [binary(v), ...series.map(s => s.points.find(p => p.x === v)).map(p => (p ? round(p.y) : ""))])
  return legend + svg + table(`${title} (${unit})`, ["bytes", ...series.map(s => s.name)], rows)
}

function curves({ title, curves: checks, name, from, of: dirs }) {
  const of = dirs.map(dir => certificate(dir, [checks].flat()[0].includes("host/")))
  const twice = c => of.some(d => d !== c && d.machine === c.machine) ? ` (${c.dir.split("/").at(-1)})` : ""
  const series = of.flatMap(c => [checks].flat().map(id => {
    const curve = c.result(id).curves?.find(k => k.name.endsWith(name)) ?? fail(`${c.dir}, ${id}: no curve ${name}`)
    if (curve.x !== "B") fail(`${id}: the horizontal axis is ${curve.x}, not bytes`)
    return { name: Array.isArray(checks) ? id.split("/").at(-1) : c.machine + twice(c), unit: curve.y, points: curve.points.filter(p => p.x > 0) }
  }))
  const { unit } = series[0]
  return figure(`${title} (${unit})`, lines(title, unit, series, { from }), of)
}

// A rule of the tuner is for messages up to a size, and has the time that its choice took
// for that size, in ns. Size 0 stands for all longer ones, so its time is not drawn.
function times({ title, times: collective, command, of }, { repository, root }) {
  const file = "coll/choose/tables.json"
  const { tables } = JSON.parse(readFileSync(`${root}/${file}`, "utf8"))
  const series = of.map(({ gpu, ranks }) => {
    const { rows } = tables.find(t => t.gpu === gpu && t.ranks === ranks && t.collective === collective) ?? fail(`${file} has no ${collective} of ${ranks} × ${gpu}`)
    const points = rows.flatMap(r => r.took).filter(([size]) => size > 0).map(([size, ns]) => ({ x: size, y: ns / 1000 }))
    return { name: `${ranks} × ${gpu}`, points: points.sort((a, b) => a.x - b.x) }
  })
  const source = ({ gpu, ranks, when }) => `${ranks} × ${escape(gpu)}, committed on ${when}: <a href="${repository}/blob/main/${file}" target="_blank" rel="noreferrer">${file}</a>`
  return figure(`${title} (µs)`, lines(title, "µs", series, { logarithmic: true }), of.map(o => ({ command, source: source(o) })))
}

// cells returns the rows of a comparison (harness coll --versus best --format json) by size.
function cells(file, { graph, inPlace }) {
  const d = JSON.parse(readFileSync(`docs/${file}`, "utf8"))
  const rows = d.versus.rows.filter(r => r.graph === graph && (inPlace === undefined || r.in_place === inPlace) && r.bytes > 0)
  const { engine, version: v } = d.rivals[0]
  const version = [v / 10000, (v / 100) % 100, v % 100].map(Math.floor).join(".")
  return {
    name: d.collective, rows, of: escape(`${d.ranks} × ${d.devices[0].name}, ${d.started.slice(0, 10)}, ${engine} ${version}`),
    link: `<a href="${file}" target="_self">${escape(d.collective)}</a>`,
  }
}

// A size is that of the vector, rounded down to whole parts of the ranks; equal but for that, sizes of several collectives are one.
const power = bytes => 2 ** Math.round(Math.log2(bytes))

// The ratio of a size is the lower one of both placements.
function ratios({ title, ratios: files, graph, command }) {
  const of = files.map(f => cells(f, { graph }))
  const series = of.map(({ name, rows }) => {
    const lowest = new Map()
    for (const r of rows) {
      const ratio = r.engines[1].time_us / r.engines[0].time_us
      lowest.set(power(r.bytes), Math.min(lowest.get(power(r.bytes)) ?? Infinity, ratio))
    }
    return { name, points: [...lowest].map(([x, y]) => ({ x, y })).sort((a, b) => a.x - b.x) }
  })
  const xs = [...new Set(series.flatMap(s => s.points.map(p => p.x)))].sort((a, b) => a - b)
  series.push({ name: "even", points: xs.map(x => ({ x, y: 1 })) })
  return figure(title, lines(title, "ratio", series), [{ command, source: `${of[0].of}: ${of.map(o => o.link).join(", ")}` }])
}

function both({ title, both: file, command }) {
  const of = [false, true].map(graph => cells(file, { graph, inPlace: false }))
  const series = [0, 1].flatMap(engine => of.map(({ rows }, i) => ({
    name: `${["assay", "NCCL"][engine]}, ${["eager", "in a graph"][i]}`,
    points: rows.map(r => ({ x: r.bytes, y: r.engines[engine].time_us })).sort((a, b) => a.x - b.x),
  })))
  return figure(`${title} (µs)`, lines(title, "µs", series, { logarithmic: true }), [{ command, source: `${of[0].of}: ${of[0].link}` }])
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

export function plots(md, where) {
  const fence = md.renderer.rules.fence
  md.renderer.rules.fence = (tokens, at, ...rest) => {
    if (tokens[at].info.trim() !== "plot") return fence(tokens, at, ...rest)
    const plot = JSON.parse(tokens[at].content)
    return plot.bars ? bars(plot) : plot.times ? times(plot, where) : plot.ratios ? ratios(plot) : plot.both ? both(plot) : curves(plot)
  }
}
