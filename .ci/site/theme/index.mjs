import Theme from "vitepress/theme-without-fonts"
import { mendSearch } from "./search.mjs"
import "./style.css"

export default { extends: Theme, enhanceApp: () => mendSearch() }
