// Links and anchors of a built site, and of the Markdown files in the repository's root:
//
//   check.mjs SITE BASE ROOT
//
// The exit status is 1 if a link leads nowhere, or a page has no text.
import { existsSync, readFileSync, readdirSync, statSync } from "node:fs"
import { join, posix } from "node:path"
import { slug } from "./markup.mjs"

const [site, base, root] = process.argv.slice(2)
const wrong = []
const texts = new Map()
const html = file => texts.get(file) ?? texts.set(file, readFileSync(file, "utf8")).get(file)
const ids = new Map()
const has = (file, id) => (ids.get(file) ?? ids.set(file, new Set([...html(file).matchAll(/\sid="([^"]+)"/g)].map(m => m[1]))).get(file)).has(id)

// A server adds .html, or index.html to a directory.
const find = path => [path, `${path}.html`, join(path, "index.html")].find(p => existsSync(p) && statSync(p).isFile())
let links = 0
const pages = readdirSync(site, { recursive: true }).filter(f => f.endsWith(".html") && !f.endsWith("report.html"))
for (const page of pages) {
  // VitePress goes on after a page that it could not render.
  if (page !== "404.html" && !/<h1[\s>]/.test(html(join(site, page)))) wrong.push(`${page}: the page has no text; the build's output says why`)
  for (const [, href] of html(join(site, page)).matchAll(/<a [^>]*?href="([^"]*)"/g)) {
    if (/^[a-z]+:/i.test(href)) continue
    links++
    const [path, hash] = href.replaceAll("&amp;", "&").split("#", 2)
    const where = path.startsWith("/") ? path.startsWith(base) && path.slice(base.length) : posix.join(posix.dirname(page), path || posix.basename(page))
    const file = where !== false && find(join(site, decodeURI(where)))
    if (!file) wrong.push(`${page}: ${href} leads nowhere`)
    else if (hash && file.endsWith(".html") && !has(file, decodeURIComponent(hash))) wrong.push(`${page}: ${href}: the page has no such heading`)
  }
}

// What GitHub shows in the root links into docs/.
const headings = file => new Set([...readFileSync(file, "utf8").replace(/^```[^]*?^```/gm, "").matchAll(/^#+ (.+)$/gm)].map(m => slug(m[1].replace(/[`*]/g, ""))))
for (const page of readdirSync(root).filter(f => f.endsWith(".md"))) {
  const text = readFileSync(join(root, page), "utf8").replace(/^```[^]*?^```/gm, "")
  for (const [, href] of [...text.matchAll(/\]\(([^)\s]+)\)/g), ...text.matchAll(/(?:src|srcset)="([^"]+)"/g)]) {
    if (/^[a-z]+:/i.test(href)) continue
    links++
    const [path, hash] = href.split("#", 2)
    const file = join(root, path || page)
    if (!existsSync(file)) wrong.push(`${page}: ${href} leads nowhere`)
    else if (hash && !headings(file).has(hash)) wrong.push(`${page}: ${href}: the page has no such heading`)
  }
}
console.log(`site: ${pages.length} pages, ${links} links within: ${wrong.length ? "" : "all lead somewhere"}`)
for (const w of wrong) console.error(`site: ${w}`)
process.exit(wrong.length ? 1 : 0)
