// VitePress says of its search that a button holds the input, and of each result that an
// option holds a link: neither may hold what can be used by itself. This makes it a
// dialog with a combobox, whose options are the links.
function mend(box) {
  const list = box.querySelector("ul.results")
  const input = box.querySelector("input")
  box.setAttribute("role", "dialog")
  box.setAttribute("aria-modal", "true")
  for (const name of ["aria-owns", "aria-expanded", "aria-haspopup"]) box.removeAttribute(name)
  input.setAttribute("role", "combobox")
  input.setAttribute("aria-autocomplete", "list")
  input.setAttribute("aria-expanded", String(list.getAttribute("role") === "listbox"))
  for (const item of list.querySelectorAll("li[role=option], li[id]")) {
    const link = item.querySelector("a")
    item.setAttribute("role", "presentation")
    item.removeAttribute("aria-selected")
    if (!link) continue
    if (item.id) {
      link.id = item.id
      item.removeAttribute("id")
    }
    link.setAttribute("role", "option")
    link.removeAttribute("aria-label") // it lacks a sign that can be seen
  }
  for (const key of box.querySelectorAll("kbd[aria-label]")) key.setAttribute("role", "img")
  for (const link of list.querySelectorAll("a[role=option]")) link.setAttribute("aria-selected", String(link.classList.contains("selected")))
}

export function mendSearch() {
  if (typeof document === "undefined") return
  const within = new MutationObserver(() => document.querySelectorAll(".VPLocalSearchBox").forEach(mend))
  new MutationObserver(records => {
    for (const { addedNodes } of records) for (const box of addedNodes) {
      if (!box.classList?.contains("VPLocalSearchBox")) continue
      mend(box)
      within.observe(box, { childList: true, subtree: true, attributes: true, attributeFilter: ["class"] })
    }
  }).observe(document.body, { childList: true })
}
