// The pages in DIR in a browser, in both themes, at a phone's width and wide:
//
//   test.mjs DIR OUT CHROMIUM
//
// DIR has the pages below. Screenshots go to
// OUT. The exit status is 1 if something is wrong with a page.
import { readFileSync } from "node:fs"
import { createRequire } from "node:module"
import { chromium } from "playwright-core"

const [dir, out, executablePath] = process.argv.slice(2)
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8")

// gpus is how many the node of a page has: its heat map and drawing must show
// them all.
const pages = { report: { plots: 0 }, node8: { gpus: 8, plots: 5 }, node2: { gpus: 2, plots: 1 }, bridge: { gpus: 2, plots: 1 }, trend: { plots: 11 } }

// look runs in the page and returns what it finds wrong.
function look({ gpus, plots }) {
  const wrong = []
  const want = (what, got, wanted) => got === wanted || wrong.push(`${what}: ${got}; want ${wanted}`)
  const all = (selector, from = document) => [...from.querySelectorAll(selector)]

  const wide = document.documentElement.scrollWidth - innerWidth
  if (wide > 0) wrong.push(`the page is ${wide} pixels too wide`)
  for (const a of all("a")) {
    const target = document.getElementById(a.getAttribute("href").slice(1))
    if (!target || target.getClientRects().length === 0) wrong.push(`the link ${a.textContent} leads nowhere`)
  }
  // Texts of a picture lie within it and not on one another.
  for (const svg of all("svg")) {
    const frame = svg.getBoundingClientRect()
    const texts = all("text", svg).map(t => ({ text: t.textContent, box: t.getBoundingClientRect() }))
    texts.forEach(({ text, box }, i) => {
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1) wrong.push(`"${text}" is cut off`)
      for (const other of texts.slice(i + 1)) {
        const x = Math.min(box.right, other.box.right) - Math.max(box.left, other.box.left)
        const y = Math.min(box.bottom, other.box.bottom) - Math.max(box.top, other.box.top)
        if (x > 1 && y > 3) wrong.push(`"${text}" is on "${other.text}"`)
      }
    })
  }
  want("plots", all("figure svg.plot").length, plots)
  for (const figure of all("figure:has(svg.plot)")) {
    if (all("details tbody td", figure).length < 2) wrong.push(`${figure.querySelector("figcaption").textContent} has no table of its figures`)
  }
  if (gpus) {
    want("cells of the heat map", all("table.heatmap td.heat").length, gpus * (gpus - 1))
    want("cells without a figure", all("table.heatmap td.heat").filter(c => !/[0-9]/.test(c.textContent)).length, 0)
    const parts = all("table.parts tbody th").map(th => th.textContent)
    const boxes = all("svg.topology .part")
    want("parts drawn", boxes.length, parts.length)
    want("GPUs drawn", all("svg.topology .part-gpu").length, gpus)
    const drawn = boxes.map(b => b.textContent)
    for (const label of parts) if (!drawn.some(text => text.includes(label))) wrong.push(`${label} is not drawn`)
    want("links drawn", all("svg.topology .way.link").length, all("table.links tbody tr").length)
    want("parts plugged in", all("svg.topology .way.pcie").length, all("table.parts tbody tr").filter(r => r.cells[2].textContent).length)
    for (const box of boxes) {
      const [frame, text] = ["rect", "text"].map(e => box.querySelector(e).getBoundingClientRect())
      if (text.width > frame.width) wrong.push(`"${box.textContent}" is wider than its box`)
    }
  } else want("drawings", all("svg.topology").length, 0)
  return wrong
}

// byKeyboard goes through the page with Tab alone: every link, every summary and
// whatever scrolls must be met, summaries must open, and what scrolls scroll.
async function byKeyboard(page) {
  const wrong = []
  const wanted = await page.evaluate(() => {
    const can = e => e.matches("a, summary") || (e.scrollWidth > e.clientWidth + 1 && ["auto", "scroll"].includes(getComputedStyle(e).overflowX))
    const found = [...document.querySelectorAll("body *")].filter(e => can(e) && e.checkVisibility())
    found.forEach((e, i) => (e.dataset.key = i))
    document.activeElement.blur()
    return found.map(e => e.outerHTML.slice(0, 80))
  })
  const met = new Set()
  for (let i = 0; i < 2 * wanted.length + 20; i++) {
    await page.keyboard.press("Tab")
    const at = await page.evaluate(() => {
      const e = document.activeElement
      return { key: e.dataset.key, kind: e.tagName, scrolls: e.scrollWidth > e.clientWidth + 1, outline: getComputedStyle(e).outlineStyle }
    })
    if (at.key === undefined || met.has(at.key)) continue
    met.add(at.key)
    if (at.outline === "none") wrong.push(`it is not seen that ${wanted[at.key]} has the focus`)
    if (at.kind === "SUMMARY") {
      const open = () => page.evaluate(() => document.activeElement.parentElement.open)
      const before = await open()
      await page.keyboard.press("Enter")
      if ((await open()) === before) wrong.push(`Enter does nothing on ${wanted[at.key]}`)
      await page.keyboard.press("Enter")
    } else if (at.scrolls) {
      await page.keyboard.press("ArrowRight")
      const moved = await page.waitForFunction(() => document.activeElement.scrollLeft > 0, null, { timeout: 2000 }).then(() => true, () => false)
      if (!moved) wrong.push(`an arrow key does not scroll ${wanted[at.key]}`)
    }
  }
  wanted.forEach((e, i) => met.has(String(i)) || wrong.push(`Tab does not reach ${e}`))
  return wrong
}

async function violations(page) {
  const r = await page.evaluate("axe.run()")
  if (r.passes.length < 10) return [`axe has looked at next to nothing: ${r.passes.length} rules passed`]
  return r.violations.flatMap(v => v.nodes.map(n => `${v.id}: ${v.help}: ${n.target}`))
}

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] })
let failed = false
for (const [name, expected] of Object.entries(pages)) {
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [390, 1400]) {
      const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme, bypassCSP: true, reducedMotion: "reduce" })
      const wrong = []
      page.on("request", r => r.url().startsWith("file:") && r.isNavigationRequest() || wrong.push(`the page asks for ${r.url()}`))
      page.on("console", m => wrong.push(`the browser says: ${m.text()}`))
      await page.goto(`file://${dir}/${name}.html`)
      await page.screenshot({ path: `${out}/${name}-${colorScheme}-${width}.png`, fullPage: true })
      await page.evaluate(axe)
      wrong.push(...await page.evaluate(look, expected), ...await violations(page), ...await byKeyboard(page))
      await page.evaluate(() => document.querySelectorAll("details").forEach(d => (d.open = true)))
      await page.screenshot({ path: `${out}/${name}-${colorScheme}-${width}-open.png`, fullPage: true })
      wrong.push(...await page.evaluate(look, expected), ...await violations(page))
      await page.close()
      console.log(`${name}, ${colorScheme}, ${width} pixels: ${[...new Set(wrong)].join("; ") || "nothing found"}`)
      failed ||= wrong.length > 0
    }
  }
}
await browser.close()
process.exit(failed ? 1 : 0)
