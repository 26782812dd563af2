// Links between pages stay; links to other files below docs/ lead to copies beside the
// pages, those to a report's text to its page; all others lead to the repository on
// GitHub. A link to a file that is not there stops the build.
import { existsSync, statSync } from "node:fs"
import { posix } from "node:path"

export function links(md, { base, repository, root }) {
  const target = (href, file) => {
    const [path, hash] = href.split("#", 2)
    const there = posix.join("docs", posix.dirname(file), path)
    const source = posix.join(root, there)
    if (!existsSync(source)) throw new Error(`docs/${file}: there is no ${there}, to which the link ${href} leads`)
    const suffix = hash === undefined ? "" : `#${hash}`
    if (!there.startsWith("docs/")) return { url: `${repository}/${statSync(source).isDirectory() ? "tree" : "blob"}/main/${there}${suffix}`, outside: true }
    if (statSync(source).isDirectory()) return { url: `${repository}/tree/main/${there}`, outside: true }
    if (there.endsWith(".md")) return { page: path.replace(/README\.md$/, "index.md") + suffix }
    return { url: base + there.slice("docs/".length).replace(/report\.txt$/, "report.html") + suffix }
  }
  md.core.ruler.push("assay-links", state => {
    for (const token of state.tokens) {
      for (const child of token.children ?? []) {
        const href = child.type === "link_open" && child.attrGet("href")
        if (!href || /^[a-z]+:|^#|^\//i.test(href)) continue
        const to = target(decodeURI(href), state.env.relativePath)
        if (to.page) child.attrSet("href", to.page)
        else child.meta = to
      }
    }
  })
  // These are no pages, so VitePress's router must not see them.
  const open = md.renderer.rules.link_open
  md.renderer.rules.link_open = (tokens, at, ...rest) => {
    const to = tokens[at].meta
    if (!to) return open(tokens, at, ...rest)
    return to.outside ? `<a href="${to.url}" target="_blank" rel="noreferrer">` : `<a href="${to.url}" target="_self">`
  }
}
