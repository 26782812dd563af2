// What docs/ need besides VitePress's own Markdown: anchors as GitHub makes them, tables
// that a keyboard can scroll, and pictures that follow the page's theme.

// slug is GitHub's: without it a link to a heading would work in one of the two only.
export const slug = text => text.trim().toLowerCase().replace(/[^\p{L}\p{N}\p{M}\p{Pc}\- ]/gu, "").replace(/ /g, "-")

export function accessible(md) {
  const rules = md.renderer.rules
  rules.table_open = () => '<div class="table" tabindex="0" role="group" aria-label="table"><table>\n'
  rules.table_close = () => "</table></div>\n"
  // A head without text is no head.
  const heads = (tokens, at) => tokens[at].type === "th_open" ? tokens[at + 1].content : tokens[at - 1].content
  rules.th_open = (tokens, at, _, __, self) => (heads(tokens, at) ? `<th${self.renderAttrs(tokens[at])}>` : "<td>")
  rules.th_close = (tokens, at) => (heads(tokens, at) ? "</th>\n" : "</td>\n")

  // Braces are text: VitePress would take {{ }} in code for an expression.
  rules.code_inline = (tokens, at, _, __, self) => `<code v-pre${self.renderAttrs(tokens[at])}>${md.utils.escapeHtml(tokens[at].content)}</code>`

  // Code that is only indented looks like code in a fence.
  rules.code_block = (tokens, at, ...rest) => {
    tokens[at].info = "text"
    return rules.fence(tokens, at, ...rest)
  }

  // <picture> chooses by the system's theme; the site's button chooses the page's.
  const html = rules.html_block
  rules.html_block = (tokens, at, ...rest) => {
    const text = tokens[at].content
    const dark = text.match(/<source [^>]*dark[^>]* srcset="([^"]+)"/)
    const img = text.match(/<img ([^>]*)src="([^"]+)"([^>]*)>/)
    if (!text.startsWith("<picture>") || !dark || !img) return html(tokens, at, ...rest)
    const one = (source, name) => `<img class="${name}" ${img[1]}src="./${source}"${img[3]}>`
    return `<p>${one(img[2], "on-light")}${one(dark[1], "on-dark")}</p>\n`
  }
}
