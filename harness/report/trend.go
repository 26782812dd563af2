package report

import (
	"io"

	"github.com/assay-hpc/assay/harness/certificate"
	"github.com/assay-hpc/assay/internal/plain"
)

// Trend writes a page of its own on how values came about over the
// certificates: for each machine and suite a plot for each check, with a line
// for each GPU, and for links one for each GPU that they begin at. Like HTML's,
// it needs nothing from elsewhere.
func Trend(w io.Writer, title string, all []*certificate.Statement) error {
	view := trendView{Title: plain.Line(title)}
	var copies []*certificate.Statement
	for _, s := range all {
		copies = append(copies, clean(s))
	}
	view.Stories = stories(copies)
	for _, s := range view.Stories {
		s.tell(false)
	}
	return pages.ExecuteTemplate(w, "trend.html", view)
}

type trendView struct {
	Title   string
	Stories []*story
}
