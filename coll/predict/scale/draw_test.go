package scale

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/golden"
)

// A curve is a quantity's points and formula in a chart.
type curve struct {
	name     string
	measured [][2]float64
	formula  func(n int) float64
}

// A chart has logarithmic axes: n from 1 to 100,000, and whole powers of ten
// upwards that hold all its curves.
type chart struct {
	title, x string
	curves   []curve
}

const (
	width, height            = 760, 400
	left, right, top, bottom = 64.0, 560.0, 40.0, 350.0
	decades                  = 5 // of n
)

// colours are told apart by people with any colour vision, on white.
var colours = []string{"#0a4fb3", "#a8480a", "#0f6b3a", "#8a1c7c"}

// draw writes a chart as SVG: points are measured, lines are formulas.
func (c chart) draw() []byte {
	low, high := math.Inf(1), math.Inf(-1)
	for _, cv := range c.curves {
		for _, p := range cv.measured {
			low, high = min(low, p[1]), max(high, p[1])
		}
		high = max(high, cv.formula(100_000))
	}
	from, to := math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
	x := func(n float64) float64 { return left + (right-left)*math.Log10(n)/decades }
	y := func(v float64) float64 { return bottom - (bottom-top)*(math.Log10(v)-from)/(to-from) }
	var b bytes.Buffer
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#1b1f24\">\n", width, height, width, height)
	fmt.Fprintf(&b, "<title>%s</title>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n", c.title)
	fmt.Fprintf(&b, "<text x=\"%g\" y=\"22\" font-size=\"14\" font-weight=\"600\">%s</text>\n", left, c.title)
	for i := range decades + 1 {
		at := x(math.Pow10(i))
		fmt.Fprintf(&b, "<path d=\"M%.1f %gV%g\" stroke=\"#c5ccd3\"/><text x=\"%.1f\" y=\"%g\" text-anchor=\"middle\">%s</text>\n", at, top, bottom, at, bottom+18, power(float64(i)))
	}
	for i := from; i <= to; i++ {
		at := y(math.Pow(10, i))
		fmt.Fprintf(&b, "<path d=\"M%g %.1fH%g\" stroke=\"#c5ccd3\"/><text x=\"%g\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", left, at, right, left-6, at+4, power(i))
	}
	fmt.Fprintf(&b, "<text x=\"%g\" y=\"%g\" text-anchor=\"end\">%s</text>\n", right, bottom+38, c.x)
	for i, cv := range c.curves {
		colour := colours[i%len(colours)]
		var line strings.Builder
		first := int(cv.measured[0][0])
		for k := range 101 {
			n := float64(first) * math.Pow(100_000/float64(first), float64(k)/100)
			fmt.Fprintf(&line, "%.1f,%.1f ", x(n), y(cv.formula(int(math.Round(n)))))
		}
		fmt.Fprintf(&b, "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" stroke-dasharray=\"%d 3\"/>\n", strings.TrimSpace(line.String()), colour, 9-2*i)
		for _, p := range cv.measured {
			fmt.Fprintf(&b, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"/>\n", x(p[0]), y(p[1]), colour)
		}
		at := top + 10 + 36*float64(i)
		fmt.Fprintf(&b, "<circle cx=\"%g\" cy=\"%g\" r=\"3.5\" fill=\"%s\"/><text x=\"%g\" y=\"%g\" fill=\"%s\">%s</text>\n", right+16, at-4, colour, right+26, at, colour, cv.name)
		fmt.Fprintf(&b, "<path d=\"M%g %gh20\" stroke=\"%s\" stroke-width=\"1.5\" stroke-dasharray=\"%d 3\"/><text x=\"%g\" y=\"%g\" fill=\"%s\">formula</text>\n", right+4, at+12, colour, 9-2*i, right+26, at+16, colour)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// power writes a power of ten as people do where they can.
func power(i float64) string {
	if i < -3 || i > 5 {
		return fmt.Sprintf("10<tspan dy=\"-5\" font-size=\"9\">%g</tspan>", i)
	}
	return fmt.Sprintf("%g", math.Pow(10, i))
}

// TestCurves holds the charts of docs/scale.md against the data beside them;
// with -update it draws them.
func TestCurves(t *testing.T) {
	find := func(file string, columns ...string) (out []curve) {
		for _, column := range columns {
			for _, q := range quantities {
				if q.file == file && q.column == column {
					out = append(out, curve{column, read(t, file).points(t, column), q.formula})
				}
			}
		}
		return out
	}
	for name, c := range map[string]chart{
		"bootstrap":       {"Bootstrap: processor time of all ranks, and ends of links", "ranks", find("bootstrap", "processor seconds", "ends of links")},
		"gathering-time":  {"Gathering: processor time of all ranks, seconds", "ranks", find("gathering", "processor seconds")},
		"gathering-bytes": {"Gathering: bytes", "ranks", find("gathering", "bytes", "bytes of a rank")},
		"certificate":     {"Certificate: bytes", "nodes", find("certificate", "bytes", "bytes of the nodes' own")},
		"hunt":            {"The hunt: rounds and measurements (simulated)", "nodes", find("hunt", "rounds", "rounds with a fault", "measurements")},
	} {
		file := filepath.Join(docs, name+".svg")
		got := c.draw()
		if golden.Update() {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what its data gives; draw it with: go test ./coll/predict/scale -args -update", file)
		}
	}
}
