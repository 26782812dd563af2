package perf

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// A Table is what ParseTable has read.
type Table struct {
	Rows        []TableRow
	OutOfBounds int     // -1: the table does not say
	AvgBusBW    float64 // NaN: the table does not say
	Ranks       int     // from the device list; 0: the table does not say
}

// A TableRow is a row of nccl-tests' table.
type TableRow struct {
	Bytes, Count int64
	Type, Redop  string // Redop is empty where the program prints none
	Root         int
	OutOfPlace   TableCell
	InPlace      TableCell
}

// A TableCell is half of a row. Wrong is -1 where it says N/A. Decimals is how
// many digits after the point the bus bandwidth has, which says how exact it
// is.
type TableCell struct {
	Time, AlgBW, BusBW float64 // us, GB/s, GB/s
	Wrong              int64
	Decimals           int
}

// A TableError is a line that is no part of a table, though it begins as one.
type TableError struct {
	Line int
	Text string
	Err  error
}

func (e *TableError) Error() string { return fmt.Sprintf("line %d: %v: %.100q", e.Line, e.Err, e.Text) }
func (e *TableError) Unwrap() error { return e.Err }

// ParseTable reads what nccl-tests, or this package, prints. It passes over
// everything else (job launchers mix their own lines in, and prefix "[1,0]<stdout>:"
// to ours), and takes tables of all versions: with and without redop, root,
// per-iteration columns and time stamps. A log with several tables gives the
// rows of all, and the last footer.
func ParseTable(r io.Reader) (*Table, error) {
	t := &Table{OutOfBounds: -1, AvgBusBW: math.NaN()}
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	p := rowParser{columns: defaultColumns}
	for n := 1; s.Scan(); n++ {
		line := strings.TrimSpace(unprefixed(s.Text()))
		if err := t.line(line, &p); err != nil {
			return nil, &TableError{n, line, err}
		}
	}
	return t, s.Err()
}

// unprefixed cuts off what mpirun --tag-output or srun -l put before a line.
func unprefixed(line string) string {
	if i := strings.Index(line, "<stdout>:"); i >= 0 {
		return line[i+len("<stdout>:"):]
	}
	if i := strings.Index(line, ": "); i > 0 && strings.TrimLeft(line[:i], " 0123456789") == "" {
		return line[i+2:]
	}
	return line
}

func (t *Table) line(line string, p *rowParser) error {
	label, value, ok := strings.Cut(line, ":")
	switch {
	case line == "":
		return nil
	case line[0] != '#':
		return t.row(line, p)
	case isHead(strings.Fields(line[1:])):
		p.columns = strings.Fields(line[1:])
	case ok && strings.HasPrefix(label, "# Out of bounds values"):
		return firstInt(value, &t.OutOfBounds)
	case ok && strings.HasPrefix(label, "# Avg bus bandwidth"):
		return firstFloat(value, &t.AvgBusBW)
	case strings.HasPrefix(line, "#  Rank ") || strings.HasPrefix(line, "# Rank "):
		rank := 0
		if err := firstInt(strings.TrimSpace(line[1:])[len("Rank "):], &rank); err == nil {
			t.Ranks = max(t.Ranks, rank+1)
		}
	}
	return nil
}

// isHead reports whether these are the names above a table's columns.
func isHead(f []string) bool {
	return len(f) > 3 && f[0] == "size" && f[1] == "count" && f[2] == "type" && slices.Contains(f, "algbw")
}

func firstInt(s string, v *int) (err error) {
	f := strings.Fields(s)
	if len(f) == 0 {
		return fmt.Errorf("a number is missing")
	}
	*v, err = strconv.Atoi(f[0])
	return err
}

func firstFloat(s string, v *float64) (err error) {
	f := strings.Fields(s)
	if len(f) == 0 {
		return fmt.Errorf("a number is missing")
	}
	*v, err = strconv.ParseFloat(f[0], 64)
	return err
}

// row adds a row, if the line is one: it begins with two numbers and a word,
// and has as many fields as the table has columns.
func (t *Table) row(line string, p *rowParser) error {
	f := strings.Fields(line)
	if len(f) < 9 || !isDigits(f[0]) || !isDigits(f[1]) || !unicode.IsLetter(rune(f[2][0])) {
		return nil
	}
	row, err := p.parse(f)
	if err == nil {
		t.Rows = append(t.Rows, row)
	}
	return err
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// defaultColumns are those of a log whose heads are cut off.
var defaultColumns = []string{"size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong"}

// A rowParser knows a table's columns.
type rowParser struct {
	columns []string
	err     error
}

func (p *rowParser) parse(f []string) (TableRow, error) {
	cols := p.columns
	if len(f) == len(cols)-1 && cols[3] == "redop" { // hypercube's redop is blank
		cols = append(append([]string(nil), cols[:3]...), cols[4:]...)
	}
	if len(f) < len(cols) && !strings.HasPrefix(strings.Join(cols[len(f):], " "), "timestamp") {
		return TableRow{}, fmt.Errorf("%d fields where the table has %d columns", len(f), len(cols))
	}
	p.err = nil
	row := TableRow{Root: -1, OutOfPlace: TableCell{Wrong: -1}, InPlace: TableCell{Wrong: -1}}
	cell := &row.InPlace // until the first time
	seen := 0
	for i, name := range cols[:min(len(cols), len(f))] {
		if name == "time" || name == "cputime" {
			seen++
			cell = &row.InPlace
			if seen == 1 {
				cell = &row.OutOfPlace
			}
		}
		p.field(&row, cell, name, f[i])
	}
	if p.err == nil && seen != 2 {
		p.err = fmt.Errorf("the table's heads name %d times instead of two", seen)
	}
	return row, p.err
}

func (p *rowParser) field(row *TableRow, cell *TableCell, name, v string) {
	switch name {
	case "size":
		row.Bytes = p.int(v)
	case "count":
		row.Count = p.int(v)
	case "type":
		row.Type = v
	case "redop":
		row.Redop = v
	case "root":
		row.Root = int(p.int(v))
	case "time", "cputime":
		cell.Time = p.float(v)
	case "algbw":
		cell.AlgBW = p.float(v)
	case "busbw":
		cell.BusBW = p.float(v)
		if _, f, ok := strings.Cut(v, "."); ok {
			cell.Decimals = len(f) - len(strings.TrimLeft(f, "0123456789"))
		}
	case "#wrong", "error": // "error" up to 2.12
		cell.Wrong = -1
		if v != "N/A" {
			cell.Wrong = int64(p.float(v))
		}
	}
}

func (p *rowParser) int(s string) int64 {
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil && p.err == nil {
		p.err = err
	}
	return v
}

func (p *rowParser) float(s string) float64 {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil && p.err == nil {
		p.err = err
	}
	return v
}
