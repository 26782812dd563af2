package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/golden"
)

func render(t testing.TB, s *certificate.Statement, about Page) string {
	t.Helper()
	var b bytes.Buffer
	if err := HTML(&b, s, about); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func attr(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

func said(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data + " ")
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// wellFormed wants a page that a strict reader of XML reads to its end: every
// element is closed, every attribute quoted, every character allowed.
func wellFormed(t testing.TB, page string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(page))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			line, column := d.InputPos()
			t.Fatalf("the page is not well-formed at %d:%d: %v: %q", line, column, err, strings.Split(page, "\n")[line-1])
		}
	}
}

// elements returns a page's elements by name, in order.
func elements(t testing.TB, page string) (all []*html.Node, byName map[string][]*html.Node) {
	t.Helper()
	doc, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	byName = map[string][]*html.Node{}
	for n := range doc.Descendants() {
		if n.Type == html.ElementNode {
			all = append(all, n)
			byName[n.Data] = append(byName[n.Data], n)
		}
	}
	return all, byName
}

var signed = Page{Signature: &Signature{Keys: []string{"SHA256:abc"}, Verified: true}}

// samplePages are written as files, too, which the browser's test reads.
var samplePages = map[string]func(t testing.TB) string{
	"report": func(t testing.TB) string { return render(t, sample(), signed) },
	"node8":  func(t testing.TB) string { return render(t, crowded(), Page{History: past(8)}) },
	"bridge": func(t testing.TB) string { return render(t, bridged(), Page{}) },
	"node2":  func(t testing.TB) string { return render(t, well(2), signed) },
	"trend":  func(t testing.TB) string { return renderTrend(t, "Node node07", past(8)) },
	"trend2": func(t testing.TB) string { return renderTrend(t, "Node node07", past(2)) },
	"hostile": func(t testing.TB) string {
		return render(t, hostile(), Page{Signature: &Signature{Keys: []string{"<script>"}}, History: []*certificate.Statement{hostile(), later(hostile(), time.Hour)}})
	},
	"hostile trend": func(t testing.TB) string {
		return renderTrend(t, "</title><script>\x00", []*certificate.Statement{hostile(), later(hostile(), time.Hour)})
	},
	"empty": func(t testing.TB) string {
		return render(t, certificate.New(certificate.Predicate{Suite: "s"}), Page{})
	},
	"empty trend": func(t testing.TB) string { return renderTrend(t, "none", nil) },
}

// small are golden files; the others are too long to be reviewed as such.
var small = []string{"report", "node2", "trend2"}

func TestHTML(t *testing.T) {
	for name, page := range samplePages {
		t.Run(name, func(t *testing.T) {
			got := page(t)
			checkPage(t, got)
			if slices.Contains(small, name) {
				golden.Check(t, name+".html", got)
			}
			if dir := os.Getenv("ASSAY_REPORT_DIR"); dir != "" && !strings.Contains(name, " ") {
				if err := os.WriteFile(filepath.Join(dir, name+".html"), []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// checkPage wants a page that needs nothing from elsewhere and that a screen
// reader finds its way about in.
func checkPage(t testing.TB, page string) {
	t.Helper()
	wellFormed(t, page)
	all, byName := elements(t, page)
	ids := map[string]bool{}
	level := 0
	for _, n := range all {
		if id := attr(n, "id"); id != "" {
			if ids[id] {
				t.Errorf("two elements have the id %s", id)
			}
			ids[id] = true
		}
		if len(n.Data) == 2 && n.Data[0] == 'h' && n.Data[1] >= '1' && n.Data[1] <= '6' {
			next := int(n.Data[1] - '0')
			if next > level+1 || said(n) == "" {
				t.Errorf("heading %s %q follows level %d", n.Data, said(n), level)
			}
			level = next
		}
		for _, a := range n.Attr {
			switch {
			case n.Namespace == "svg" && slices.Contains([]string{"d", "points", "x", "y", "width", "height", "viewBox"}, a.Key) && nonNumber.MatchString(a.Val):
				t.Errorf("%s of %s is %s", a.Key, n.Data, a.Val)
			case strings.HasPrefix(a.Key, "on"), a.Key == "src", a.Key == "style":
				t.Errorf("%s has %s", n.Data, a.Key)
			case a.Key == "href" && !strings.HasPrefix(a.Val, "#"):
				t.Errorf("a link leads to %s", a.Val)
			}
		}
	}
	for _, n := range all {
		for _, ref := range []string{attr(n, "aria-labelledby"), strings.TrimPrefix(attr(n, "href"), "#")} {
			if ref != "" && !ids[ref] {
				t.Errorf("%s refers to %s, which is not there", n.Data, ref)
			}
		}
	}
	for name, want := range map[string]int{"h1": 1, "main": 1, "header": 1, "footer": 1, "nav": 1, "title": 1, "script": 0, "link": 0, "img": 0, "iframe": 0} {
		if got := len(byName[name]); got != want {
			t.Errorf("%d elements %s; want %d", got, name, want)
		}
	}
	if attr(byName["html"][0], "lang") != "en" {
		t.Error("the page has no language")
	}
	for _, n := range byName["th"] {
		if s := attr(n, "scope"); s == "" || said(n) == "" {
			t.Errorf("header %q has the scope %q", said(n), s)
		}
	}
	for _, n := range byName["svg"] {
		if attr(n, "aria-hidden") != "true" && (attr(n, "role") != "img" || attr(n, "aria-label") == "") {
			t.Error("a picture has no text")
		}
	}
	for _, n := range all {
		if attr(n, "class") == "scroll" && (attr(n, "tabindex") != "0" || attr(n, "aria-label")+attr(n, "aria-labelledby") == "") {
			t.Error("what scrolls cannot be reached by keyboard, or has no name")
		}
		if c := attr(n, "class"); strings.HasPrefix(c, "verdict ") && n.Data == "span" && len(said(n)) < len("✓ PASS") {
			t.Errorf("verdict %q is told by colour alone: %q", c, said(n))
		}
	}
	if strings.ContainsFunc(page, func(r rune) bool { return r < ' ' && r != '\n' || r == 0x7f }) {
		t.Error("a control character got through")
	}
}

func TestHTMLFaultsFirst(t *testing.T) {
	page := render(t, sample(), Page{})
	_, byName := elements(t, page)
	var h2 []string
	for _, n := range byName["h2"] {
		h2 = append(h2, said(n))
	}
	if got := strings.Join(h2, ", "); got != "What is wrong, Checks by component, Skipped, Environment" {
		t.Errorf("sections: %s", got)
	}
	main := said(byName["main"][0])
	for _, want := range []string{"✗ failed : libraries Reason: libx.so.1 is missing Remedy: install libx1", "! not run : slow Reason: no result within 1m0s", "gpu: no GPU here", "187.5 GB/s 200 GB/s (data sheet) 94 %"} {
		if !strings.Contains(main, want) {
			t.Errorf("the page does not say %q:\n%s", want, main)
		}
	}
	if n := len(byName["svg"]); n != 1 || !strings.Contains(page, `width="93.8" height="8"`) {
		t.Errorf("%d bars; want one of 93.8 of 100 pixels", n)
	}
}

func TestSignatureString(t *testing.T) {
	for want, sig := range map[string]Signature{
		"not signed": {}, "of a, b verifies": {Keys: []string{"a", "b"}, Verified: true}, "nobody has verified": {Keys: []string{"a"}},
	} {
		if got := sig.String(); !strings.Contains(got, want) {
			t.Errorf("%+v: %q; want …%s…", sig, got, want)
		}
	}
}

var nonNumber = regexp.MustCompile(`NaN|Inf|e[+-]`)

var colorVar = regexp.MustCompile(`--([a-z]+): #([0-9a-f]{6})`)

// TestContrast holds the colours against WCAG: text has 4.5 on both grounds,
// lines and frames have 3, in both themes.
func TestContrast(t *testing.T) {
	b, err := pageFiles.ReadFile("style.html")
	if err != nil {
		t.Fatal(err)
	}
	light, rest, ok := strings.Cut(string(b), "prefers-color-scheme: dark")
	dark, rest, ok2 := strings.Cut(rest, "box-sizing")
	if !ok || !ok2 {
		t.Fatal("there is no dark theme")
	}
	for theme, css := range map[string]string{"light": light, "dark": dark} {
		colors := map[string]string{}
		for _, m := range colorVar.FindAllStringSubmatch(css, -1) {
			colors[m[1]] = m[2]
		}
		if len(colors) != 17 {
			t.Errorf("%s: %d colours; want 17", theme, len(colors))
		}
		for _, back := range []string{"back", "panel"} {
			for fore, least := range map[string]float64{
				"text": 4.5, "quiet": 4.5, "link": 4.5, "pass": 4.5, "warn": 4.5, "fail": 4.5, "error": 4.5, "skip": 4.5,
				"one": 3, "two": 3, "three": 3, "four": 3, "five": 3, "six": 3,
			} {
				if got := contrast(colors[fore], colors[back]); got < least {
					t.Errorf("%s: %s on %s has contrast %.2f; want %v", theme, fore, back, got, least)
				}
			}
		}
	}
	heat := heatColor.FindAllStringSubmatch(rest, -1)
	if len(heat) != len(heatBounds)+1 {
		t.Errorf("%d colours of heat maps; want %d", len(heat), len(heatBounds)+1)
	}
	for _, m := range heat {
		if got := contrast(m[2], m[3]); got < 4.5 {
			t.Errorf("heat-%s has contrast %.2f; want 4.5", m[1], got)
		}
	}
}

var heatColor = regexp.MustCompile(`[.]heat-([0-9]) { background: #([0-9a-f]{6}); color: #([0-9a-f]{6}); }`)

func contrast(a, b string) float64 {
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// luminance is WCAG's relative luminance of an sRGB colour.
func luminance(hex string) (sum float64) {
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
		if err != nil {
			panic(fmt.Sprint(hex, err))
		}
		c := float64(n) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}
