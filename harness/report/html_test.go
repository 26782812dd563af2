package report

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/assay-hpc/assay/harness/certificate"
	"github.com/assay-hpc/assay/internal/golden"
)

func render(t *testing.T, s *certificate.Statement, sig *Signature) string {
	t.Helper()
	var b bytes.Buffer
	if err := HTML(&b, s, sig); err != nil {
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

// elements returns a page's elements by name, in order.
func elements(t *testing.T, page string) (all []*html.Node, byName map[string][]*html.Node) {
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

var pages = map[string]func() (*certificate.Statement, *Signature){
	"sample": func() (*certificate.Statement, *Signature) {
		return sample(), &Signature{Keys: []string{"SHA256:abc"}, Verified: true}
	},
	"hostile": func() (*certificate.Statement, *Signature) { return hostile(), &Signature{Keys: []string{"<script>"}} },
	"empty": func() (*certificate.Statement, *Signature) {
		return certificate.New(certificate.Predicate{Suite: "s"}), nil
	},
}

func TestHTML(t *testing.T) {
	golden.Check(t, "report.html", render(t, sample(), &Signature{Keys: []string{"SHA256:abc"}, Verified: true}))
	for name, in := range pages {
		t.Run(name, func(t *testing.T) { checkPage(t, renderOf(t, in)) })
	}
}

func renderOf(t *testing.T, in func() (*certificate.Statement, *Signature)) string {
	s, sig := in()
	return render(t, s, sig)
}

// checkPage wants a page that needs nothing from elsewhere and that a screen
// reader finds its way about in.
func checkPage(t *testing.T, page string) {
	t.Helper()
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
		if attr(n, "role") != "img" || attr(n, "aria-label") == "" {
			t.Error("a picture has no text")
		}
	}
	for _, n := range all {
		if c := attr(n, "class"); strings.HasPrefix(c, "verdict ") && n.Data == "span" && len(said(n)) < len("✓ PASS") {
			t.Errorf("verdict %q is told by colour alone: %q", c, said(n))
		}
	}
	if strings.ContainsFunc(page, func(r rune) bool { return r < ' ' && r != '\n' || r == 0x7f }) {
		t.Error("a control character got through")
	}
}

func TestHTMLFaultsFirst(t *testing.T) {
	page := render(t, sample(), nil)
	_, byName := elements(t, page)
	var h2 []string
	for _, n := range byName["h2"] {
		h2 = append(h2, said(n))
	}
	if got := strings.Join(h2, ", "); got != "What is wrong, Checks by component, Skipped, Environment" {
		t.Errorf("sections: %s", got)
	}
	main := said(byName["main"][0])
	for _, want := range []string{"✗ failed : libraries Reason: libx.so.1 is missing Remedy: install libx1", "! not carried out : slow Reason: no result within 1m0s", "gpu: no GPU here", "187.5 GB/s 200 GB/s 94 % data sheet"} {
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

var colorVar = regexp.MustCompile(`--([a-z]+): #([0-9a-f]{6})`)

// TestContrast holds the colours of text against WCAG's 4.5, on both grounds
// and in both themes.
func TestContrast(t *testing.T) {
	light, dark, ok := strings.Cut(pageText, "prefers-color-scheme: dark")
	if !ok {
		t.Fatal("there is no dark theme")
	}
	for theme, css := range map[string]string{"light": light, "dark": dark} {
		colors := map[string]float64{}
		for _, m := range colorVar.FindAllStringSubmatch(css, -1) {
			colors[m[1]] = luminance(m[2])
		}
		for _, fore := range []string{"text", "quiet", "link", "pass", "fail", "error", "skip"} {
			for _, back := range []string{"back", "panel"} {
				a, b := colors[fore], colors[back]
				if got := (max(a, b) + 0.05) / (min(a, b) + 0.05); got < 4.5 || len(colors) != 10 {
					t.Errorf("%s: %s on %s has contrast %.2f; want 4.5 (of %d colours)", theme, fore, back, got, len(colors))
				}
			}
		}
	}
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
