// The site in a browser, in both themes, at a phone's width and wide:
//
//   test.mjs SITE BASE OUT CHROMIUM
//
// Every page: axe finds nothing, the page does not scroll sideways, nothing is requested
// from another server, and every link and anchor leads somewhere. The search finds a page
// by a word, by keyboard. Screenshots go to OUT. The exit status is 1 if something is wrong.
import { createReadStream, existsSync, mkdirSync, readFileSync, readdirSync, statSync } from "node:fs"
import { createServer } from "node:http"
import { createRequire } from "node:module"
import { extname, join, normalize } from "node:path"
import { chromium } from "playwright-core"

const [site, base, out, executablePath] = process.argv.slice(2)
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8")
mkdirSync(out, { recursive: true })

// A server as GitHub Pages is one.
const types = { ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".png": "image/png", ".json": "application/json" }
const find = path => [path, `${path}.html`, join(path, "index.html")].find(p => existsSync(p) && statSync(p).isFile())
const server = createServer((request, response) => {
  const path = decodeURIComponent(new URL(request.url, "file:///").pathname)
  const file = path.startsWith(base) && find(join(site, normalize(path.slice(base.length))))
  response.writeHead(file ? 200 : 404, { "content-type": types[extname(file || ".html")] ?? "text/plain; charset=utf-8" })
  createReadStream(file || join(site, "404.html")).pipe(response)
})
await new Promise(done => server.listen(0, "127.0.0.1", done))
const origin = `http://127.0.0.1:${server.address().port}`

let failed = false
const report = (what, wrong) => {
  if (wrong.length) console.log(`${what}: ${[...new Set(wrong)].join("; ")}`)
  failed ||= wrong.length > 0
}

// leads says what is wrong with an address: no file, or no such place in it.
const known = new Map()
async function leads(url) {
  if (!known.has(url)) {
    known.set(url, (async () => {
      const { pathname, hash } = new URL(url)
      const answer = await fetch(origin + pathname)
      const text = await answer.text()
      if (answer.status !== 200) return `${pathname} leads nowhere`
      if (hash && !text.includes(`id="${decodeURIComponent(hash.slice(1))}"`)) return `${pathname}${hash} leads to no heading`
    })())
  }
  return known.get(url)
}

const pages = readdirSync(site, { recursive: true }).filter(f => f.endsWith(".html") && !f.endsWith("report.html") && f !== "404.html").sort()
const pictured = /^(index|benchmarks|overview|harness|tasks\/.*|examples\/index)\.html$/
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] })

async function open(path, options, wrong) {
  const page = await browser.newPage({ bypassCSP: true, reducedMotion: "reduce", ...options })
  page.on("request", r => r.url().startsWith(origin) || r.url().startsWith("data:") || wrong.push(`the page asks for ${r.url()}`))
  page.on("response", r => r.status() < 400 || wrong.push(`${r.url()} answers ${r.status()}`))
  page.on("console", m => m.type() === "error" && wrong.push(`the browser says: ${m.text()}`))
  page.on("pageerror", e => wrong.push(`the page fails: ${e.message}`))
  await page.goto(origin + base + path, { waitUntil: "networkidle" })
  return page
}

async function violations(page) {
  const r = await page.evaluate("axe.run()")
  if (r.passes.length < 10) return [`axe has looked at next to nothing: ${r.passes.length} rules passed`]
  return r.violations.flatMap(v => v.nodes.map(n => `${v.id}: ${v.help}: ${n.target}`))
}

const queue = pages[Symbol.iterator]()
async function look() {
  for (const path of queue) {
    const wrong = []
    const page = await open(path, { viewport: { width: 1280, height: 900 }, colorScheme: "light" }, wrong)
    if ((await page.locator("h1").count()) !== 1) wrong.push("the page has more or fewer first headings than one")
    for (const url of new Set(await page.evaluate(() => [...document.querySelectorAll("a[href]")].map(a => a.href)))) {
      const no = url.startsWith(origin) && (await leads(url))
      if (no) wrong.push(no)
    }
    await page.evaluate(axe)
    for (const width of [1280, 390]) for (const colorScheme of ["light", "dark"]) {
      const name = `${path.replaceAll("/", "-").replace(".html", "")}-${colorScheme}-${width}`
      const here = []
      await page.setViewportSize({ width, height: 900 })
      await page.emulateMedia({ colorScheme })
      const dark = colorScheme === "dark"
      await page.waitForFunction(dark => document.documentElement.classList.contains("dark") === dark, dark, { timeout: 10000 }).catch(() => here.push(`the theme is not ${colorScheme}`))
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
      if (wide > 0) here.push(`the page is ${wide} pixels too wide`)
      if (pictured.test(path)) await page.screenshot({ path: `${out}/${name}.png`, fullPage: path !== "harness.html" })
      here.push(...await violations(page))
      report(name, here)
    }
    await page.close()
    report(path, wrong)
  }
}
await Promise.all([look(), look()])

// The menus of a phone.
for (const [name, button, shown] of [["pages", ".VPLocalNav button.menu", ".VPSidebar.open"], ["menu", "button.VPNavBarHamburger", ".VPNavScreen"]]) {
  for (const colorScheme of ["light", "dark"]) {
    const wrong = []
    const page = await open("overview.html", { viewport: { width: 390, height: 900 }, colorScheme }, wrong)
    await page.evaluate(axe)
    await page.locator(button).click()
    await page.locator(shown).waitFor({ timeout: 10000 }).catch(() => wrong.push("the button shows nothing"))
    await page.waitForTimeout(500) // it fades in
    await page.screenshot({ path: `${out}/${name}-${colorScheme}-390.png` })
    wrong.push(...await violations(page))
    report(`${name}, ${colorScheme}`, wrong)
    await page.close()
  }
}

// The search, by keyboard; and that a link to a file that is no page leaves the site's router.
for (const colorScheme of ["light", "dark"]) {
  const wrong = []
  const page = await open("", { viewport: { width: 1280, height: 900 }, colorScheme }, wrong)
  await page.evaluate(axe)
  await page.keyboard.press("/")
  await page.locator("#localsearch-input").fill("retransmissions")
  const result = page.locator("a.result[href*='fabric']").first()
  await result.waitFor({ timeout: 20000 }).catch(() => wrong.push("the search for retransmissions does not find the page about the fabric"))
  await page.screenshot({ path: `${out}/search-${colorScheme}-1280.png` })
  wrong.push(...await violations(page))
  await page.locator("#localsearch-input").fill("xylophone")
  await page.locator(".no-results").waitFor({ timeout: 20000 }).catch(() => wrong.push("the search for a word that is nowhere finds something"))
  await page.locator("#localsearch-input").fill("retransmissions fabric")
  await result.waitFor({ timeout: 20000 }).catch(() => {})
  await page.keyboard.press("Enter")
  await page.waitForURL(/fabric|scale/, { timeout: 10000 }).catch(() => wrong.push("Enter does not lead to the first result"))
  report(`search, ${colorScheme}`, wrong)
  await page.close()
}
const wrong = []
const page = await open("examples/index.html", { viewport: { width: 1280, height: 900 } }, wrong)
const file = page.locator(".vp-doc a[href$='report.html']").first()
await file.click()
await page.waitForURL(/report\.html$/, { timeout: 10000 }).catch(() => wrong.push("a link to a report does not open it"))
report("files", wrong)

await browser.close()
server.close()
console.log(`site: ${pages.length} pages in 2 themes and 2 widths, ${known.size} links: ${failed ? "something is wrong" : "nothing found"}`)
process.exit(failed ? 1 : 0)
