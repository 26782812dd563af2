// VitePress's configuration for docs/. .ci/site/build copies this file and docs/ to one
// directory and says in the environment where the repository is.
import { readFileSync, readdirSync } from "node:fs"
import { defineConfig } from "vitepress"
import { links } from "./links.mjs"
import { plots } from "./plots.mjs"
import { accessible, slug } from "./markup.mjs"

const repository = process.env.SITE_REPOSITORY ?? "https://github.com/assay-hpc/assay"
const base = process.env.SITE_BASE
const page = (text, name) => ({ text, link: `/${name}` })

// Pages that a test writes from the rules; their headings name them.
const problems = readdirSync("docs/problems").sort().map(f => page(readFileSync(`docs/problems/${f}`, "utf8").match(/^# (.*)/)[1], `problems/${f.slice(0, -".md".length)}`))

export const sidebar = [
  { text: "Start", items: [page("Front page", ""), page("What each command does", "overview"), page("Performance", "performance"), page("Benchmarks", "benchmarks")] },
  {
    text: "Tasks",
    items: [
      page("Certify a node", "tasks/certify-a-node"),
      page("Gate a Slurm node", "tasks/gate-a-slurm-node"),
      page("Find the slow node", "tasks/find-the-slow-node"),
      page("Publish images from CI", "tasks/publish-images-from-ci"),
      page("Build on an image", "tasks/build-on-an-image"),
      page("Use assay's NCCL", "tasks/use-our-nccl"),
    ],
  },
  { text: "Logs", items: [page("Explain a log", "explain"), page("Problems by their lines", "problems")] },
  { text: "Problems", items: problems },
  { text: "Commands", items: [page("assay", "commands"), page("harness", "harness")] },
  {
    text: "Certificates",
    items: [page("The certificate", "certificate"), page("Suites", "suites"), page("Acceptance", "acceptance"), page("Examples", "examples/")],
  },
  {
    text: "Nodes",
    items: [
      page("Node: Slurm, Kubernetes", "node"),
      page("Health", "health"),
      page("Diagnostics", "diag"),
      page("Copies", "bandwidth"),
      page("Platforms", "platform"),
      page("Topology", "topology"),
      page("Network environment", "env"),
    ],
  },
  {
    text: "Clusters",
    items: [page("Jobs", "jobs"), page("Fabric and hunt", "fabric"), page("RDMA tests", "ib"), page("Scale", "scale")],
  },
  {
    text: "Images",
    items: [page("Matrix", "matrix"), page("Components", "components"), page("Lock", "lock"), page("Images as bases", "base-images"), page("Without root", "rootless"), page("Upstreams", "upstreams")],
  },
  {
    text: "Collectives",
    items: [
      page("The engine", "coll"),
      page("Collectives on GPUs", "design/gpu-collectives"),
      page("libnccl.so.2", "libnccl"),
      page("Variables", "knobs"),
      page("Benchmark program", "coll-perf"),
      page("Predicting", "predict"),
      page("Training", "estimate"),
    ],
  },
  {
    text: "Lab",
    items: [
      page("All measurements", "lab/"),
      page("Building", "lab/building"),
      page("Certifying", "lab/certifying"),
      page("Collectives on GPUs", "lab/gpu-collectives"),
      page("Collectives on GPUs: tables", "lab/gpu-tables"),
      page("nccl-tests", "lab/nccl-tests"),
      page("Overlap", "lab/overlap"),
      page("The tail", "lab/tail"),
      page("Host memory", "lab/host-collectives"),
      page("Copies", "lab/copies"),
      page("RDMA tests", "lab/rdma"),
    ],
  },
  {
    text: "Project",
    items: [page("Architecture", "architecture"), page("Adding to assay", "contributing"), page("Releases", "releases")],
  },
]

// A page that the sidebar lacks cannot be found, so it stops the build.
const listed = new Set(sidebar.flatMap(group => group.items.map(i => i.link.replace(/(^|\/)$/, "$1index").replace(/^\//, ""))))
const pages = readdirSync("docs", { recursive: true }).filter(f => f.endsWith(".md")).map(f => f.slice(0, -".md".length))
const lost = [...pages.filter(p => !listed.has(p)), ...[...listed].filter(p => !pages.includes(p))]
if (lost.length) throw new Error(`the sidebar in .ci/site/config.mjs and docs/ differ: ${lost.join(", ")}`)

export default defineConfig({
  title: "assay",
  description: "Images for GPU clusters, and certificates of images and nodes",
  lang: "en-GB",
  base,
  // A server is asked for an icon otherwise.
  head: [["link", { rel: "icon", type: "image/svg+xml", href: `data:image/svg+xml,${encodeURIComponent('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3" fill="#0f5c26"/><path d="M4 8.5l3 3 5-7" fill="none" stroke="#fff" stroke-width="2"/></svg>')}` }]],
  srcDir: "docs",
  ignoreDeadLinks: false,
  outDir: process.env.SITE_OUT,
  cacheDir: "cache",
  markdown: {
    theme: { light: "github-light-high-contrast", dark: "github-dark-high-contrast" },
    anchor: { slugify: slug },
    attrs: { disable: true },
    config(md) {
      md.linkify.set({ fuzzyLink: false, fuzzyEmail: false })
      md.disable("emoji", true)
      md.use(accessible)
      md.use(plots, { repository, root: process.env.SITE_ROOT })
      md.use(links, { base, repository, root: process.env.SITE_ROOT })
    },
  },
  themeConfig: {
    nav: [
      { text: "Tasks", link: "/tasks/certify-a-node", activeMatch: "/tasks/" },
      { text: "Commands", link: "/overview", activeMatch: "/(overview|commands|harness)" },
      { text: "Benchmarks", link: "/benchmarks" },
    ],
    sidebar,
    outline: { level: [2, 3] },
    search: { provider: "local" },
    socialLinks: [{ icon: "github", link: repository, ariaLabel: "assay on GitHub" }],
  },
})
