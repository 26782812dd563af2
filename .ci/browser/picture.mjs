// The picture of a certificate's page for README.md, light and dark: its head and the
// table of its figures.
//
//   picture.mjs PAGE DIR CHROMIUM
//
// writes DIR/node-light.png and DIR/node-dark.png.
import { chromium } from "playwright-core"

const [page, dir, executablePath] = process.argv.slice(2)
const margin = 16
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] })
for (const colorScheme of ["light", "dark"]) {
  const tab = await browser.newPage({ viewport: { width: 1080, height: 1200 }, colorScheme, reducedMotion: "reduce", bypassCSP: true })
  await tab.goto(`file://${page}`)
  // The first table's end is the picture's; a frame sets it off from the text around it.
  const figures = await tab.getByRole("table").first().boundingBox()
  const height = Math.ceil(figures.y + figures.height + margin)
  await tab.setViewportSize({ width: 1080, height })
  await tab.addStyleTag({ content: "html { overflow: hidden } html::after { content: ''; position: fixed; inset: 0; border: 1px solid var(--line); }" })
  const path = `${dir}/node-${colorScheme}.png`
  await tab.screenshot({ path })
}
await browser.close()
