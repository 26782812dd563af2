package perf

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/internal/outfile"
)

// plotSink draws bus bandwidth over size at the end of the run.
type plotSink struct{ silent }

func (*plotSink) header(r *reporter) error {
	if err := outfile.Check(r.cfg.Plot); err != nil { // before the sweep, not after it
		return fmt.Errorf("--plot: %w", err)
	}
	return nil
}

func (*plotSink) footer(r *reporter, res *Result, _ error) error {
	var b bytes.Buffer
	title := fmt.Sprintf("%s, %d ranks, %s: bus bandwidth in GB/s over size in bytes", r.c.Test(), r.n, r.world.Engine)
	all := lines(res.Rows)
	if res.Versus != nil {
		all = versusLines(res.Versus.Rows, r.cfg.Versus == Best)
	}
	if err := png.Encode(&b, drawLines(title, all)); err != nil {
		return err
	}
	if err := outfile.Write(r.cfg.Plot, b.Bytes()); err != nil {
		return errors.Join(errors.New("--plot"), err)
	}
	return nil
}

// A series is one line of the plot.
type series struct {
	name string
	x, y []float64 // log2 of bytes, GB/s
}

// lines returns a series for each combination and placement. Sizes of zero have no logarithm and
// are left out.
func lines(rows []Row) []series {
	var out chart
	for _, row := range rows {
		for i, p := range []Placement{row.OutOfPlace, row.InPlace} {
			name := fmt.Sprintf("%s %s %s", row.Type, row.Redop, [2]string{"out of place", "in place"}[i])
			out.add(name, row.Bytes, p.BusBW)
		}
	}
	return out
}

// versusLines returns a series for each engine in each variant. The kind of memory is not part of
// the variant if only the best is shown.
func versusLines(rows []VersusRow, best bool) []series {
	var out chart
	for _, row := range rows {
		for _, e := range row.Engines {
			name := fmt.Sprintf("%s %s %s %s %s", e.Engine, row.Type, row.Redop, launchName(row.Graph), placeName(row.InPlace))
			if !best {
				name += " " + row.Memory
			}
			out.add(name, row.Bytes, e.BusBW)
		}
	}
	return out
}

// A chart is all series of a plot.
type chart []series

// add adds a point to the series with the given name.
func (c *chart) add(name string, bytes int64, busBW float64) {
	if bytes == 0 || finite(busBW) != busBW {
		return
	}
	i := slices.IndexFunc(*c, func(s series) bool { return s.name == name })
	if i < 0 {
		i = len(*c)
		*c = append(*c, series{name: name})
	}
	s := &(*c)[i]
	s.x = append(s.x, math.Log2(float64(bytes)))
	s.y = append(s.y, busBW)
}

const (
	plotWidth, plotHeight = 960, 600
	plotLeft, plotRight   = 90, 930
	plotTop, plotBottom   = 60, 540
)

// palette is that of Okabe and Ito, whose colors color-blind people can tell apart, and three more.
var palette = []color.RGBA{
	{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255}, {230, 159, 0, 255}, {86, 180, 233, 255}, {0, 0, 0, 255},
	{136, 34, 85, 255}, {110, 150, 0, 255}, {150, 150, 150, 255},
}

var gray, black = color.RGBA{210, 210, 210, 255}, color.RGBA{0, 0, 0, 255}

// axes map values to pixels.
type axes struct{ x0, x1, y1 float64 }

func (a axes) at(x, y float64) (px, py int) {
	px = plotLeft + int(math.Round((x-a.x0)/(a.x1-a.x0)*(plotRight-plotLeft)))
	py = plotBottom - int(math.Round(y/a.y1*(plotBottom-plotTop)))
	return px, py
}

// drawLines draws the plot: size in powers of two on the x axis, bandwidth from 0 on the y axis.
func drawLines(title string, all []series) *image.RGBA {
	img := image.NewRGBA(image.Rect(0, 0, plotWidth, plotHeight))
	draw.Draw(img, img.Bounds(), image.White, image.Point{}, draw.Src)
	a := span(all)
	a.grid(img)
	text(img, plotLeft, 20, title, black)
	for i, s := range all {
		c := palette[i%len(palette)]
		for j := range s.x {
			x, y := a.at(s.x[j], s.y[j])
			draw.Draw(img, image.Rect(x-3, y-3, x+4, y+4), image.NewUniform(c), image.Point{}, draw.Src)
			if j > 0 {
				px, py := a.at(s.x[j-1], s.y[j-1])
				segmentLine(img, px, py, x, y, c)
			}
		}
		if i < 12 {
			text(img, plotLeft+12, plotTop+8+18*i, s.name, c)
		}
	}
	return img
}

// span returns axes that cover all series.
func span(all []series) axes {
	a := axes{x0: math.Inf(1), x1: math.Inf(-1)}
	top := 0.0
	for _, s := range all {
		for i := range s.x {
			a.x0, a.x1, top = min(a.x0, math.Floor(s.x[i])), max(a.x1, math.Ceil(s.x[i])), max(top, s.y[i])
		}
	}
	if len(all) == 0 {
		a.x0, a.x1 = 0, 1
	}
	if a.x1 == a.x0 {
		a.x1++
	}
	a.y1 = round(top) // the top grid line
	return a
}

// round returns the smallest number not below v that is 1, 2, 4, 5 or 8 times a power of ten, so
// that its quarters are short numbers.
func round(v float64) float64 {
	if v <= 0 {
		return 1
	}
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 4, 5, 8} {
		if m*p >= v {
			return m * p
		}
	}
	return 10 * p
}

func (a axes) grid(img *image.RGBA) {
	for i := range 5 {
		v := a.y1 * float64(i) / 4
		_, y := a.at(a.x0, v)
		segmentLine(img, plotLeft, y, plotRight, y, gray)
		label := strconv.FormatFloat(v, 'g', 4, 64)
		text(img, plotLeft-10-12*len(label), y-7, label, black)
	}
	every := math.Ceil((a.x1 - a.x0) / 12)
	for e := a.x0; e <= a.x1; e += every {
		x, _ := a.at(e, 0)
		segmentLine(img, x, plotTop, x, plotBottom, gray)
		label := powerOfTwo(int(e))
		text(img, x-6*len(label), plotBottom+14, label, black)
	}
}

// powerOfTwo names 2^e bytes: 8, 64K, 1G.
func powerOfTwo(e int) string {
	i := min(max(e, 0)/10, 4)
	return strconv.Itoa(1<<(max(e, 0)-10*i)) + []string{"", "K", "M", "G", "T"}[i]
}

// segmentLine draws a line, two pixels wide.
func segmentLine(img *image.RGBA, x0, y0, x1, y1 int, c color.RGBA) {
	n := max(abs(x1-x0), abs(y1-y0), 1)
	for i := range n + 1 {
		x, y := x0+(x1-x0)*i/n, y0+(y1-y0)*i/n
		img.SetRGBA(x, y, c)
		if c != gray {
			img.SetRGBA(x+1, y, c)
			img.SetRGBA(x, y+1, c)
		}
	}
}

func abs(v int) int { return max(v, -v) }

// text draws a text in capitals, each 12 pixels wide and 14 high.
func text(img *image.RGBA, x, y int, s string, c color.RGBA) {
	for _, r := range strings.ToUpper(s) {
		for row, bits := range []byte(glyphs[r]) {
			v, _ := strconv.ParseUint(string(bits), 32, 8)
			for col := range 5 {
				if v>>(4-col)&1 != 0 {
					draw.Draw(img, image.Rect(x+2*col, y+2*row, x+2*col+2, y+2*row+2), image.NewUniform(c), image.Point{}, draw.Src)
				}
			}
		}
		x += 12
	}
}

// glyphs are letters of 5 by 7 dots: one base-32 digit for each row, from the top.
var glyphs = map[rune]string{
	'0': "ehjlphe", '1': "4c4444e", '2': "eh1248v", '3': "v2421he", '4': "26aiv22", '5': "vgu11he", '6': "68guhhe", '7': "v124888", '8': "ehhehhe", '9': "ehhf12c",
	'A': "ehhvhhh", 'B': "uhhuhhu", 'C': "ehggghe", 'D': "uhhhhhu", 'E': "vggsggv", 'F': "vggsggg", 'G': "ehgnhhe", 'H': "hhhvhhh", 'I': "e44444e", 'J': "72222ic", 'K': "hikokih",
	'L': "ggggggv", 'M': "hrllhhh", 'N': "hhpljhh", 'O': "ehhhhhe", 'P': "uhhuggg", 'Q': "ehhhlid", 'R': "uhhukih", 'S': "fgge11u", 'T': "v444444", 'U': "hhhhhhe", 'V': "hhhhha4",
	'W': "hhhllla", 'X': "hha4ahh", 'Y': "hha4444", 'Z': "v1248gv",
	'.': "00000cc", ',': "00000c4", ':': "0cc0cc0", '/': "01248g0", '-': "000v000", '+': "044v440", '_': "000000v", '(': "2488842", ')': "8422248",
}
