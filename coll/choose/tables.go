package choose

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/assay-hpc/assay/coll/op"
)

// Tables hold how long choices took on a machine. "harness coll tune" writes them and
// ASSAY_TUNING reads them; some are built into the program. They are changed only through At
// and the Table that it returns, which must not be used concurrently with anything else.
type Tables struct {
	Schema  int      `json:"schema"`
	Machine string   `json:"machine"` // where they were made, for humans
	Tables  []*Table `json:"tables"`
}

// schema of the files that this program reads and writes.
const schema = 2

// A Place is what a table is for: a collective, and ranks on one kind of GPU
// or on host memory.
type Place struct {
	GPU        string `json:"gpu,omitempty"`     // the driver's name, AnyGPU or Hosted
	Local      string `json:"local,omitempty"`   // the transport within groups: SHM, Socket, …
	Net        string `json:"net,omitempty"`     // the transport between groups
	Ranks      int    `json:"ranks"`             // for AnyGPU and Hosted: this number or more
	Groups     int    `json:"groups,omitempty"`  // hosts, if several
	Crowded    bool   `json:"crowded,omitempty"` // hosts have more ranks than cores
	Collective string `json:"collective"`        // op.Collective's name
}

// Names for GPUs without measurements: with windows on devices, and in host memory. Their
// tables are the model of GPUs.
const (
	AnyGPU = "any"
	Hosted = "any, hosted"
)

// A Table is what was measured for a Place. On host memory each choice has a row, which
// corrects the model (see series). On GPUs each row has the fastest choice for messages that
// are longer than those of the previous row. Bytes are as op.Op.Bytes counts them.
type Table struct {
	Place
	Rows []Row `json:"rows"`
}

// A Row is a choice with its times: pairs of bytes, ascending, and nanoseconds. In the last
// row for a GPU, 0 bytes stands for all lengths.
type Row struct {
	Choice string     `json:"choice"` // on GPUs as in ASSAY_GPU_ALGO, otherwise as Choice.String returns it
	Took   [][2]int64 `json:"took"`
}

//go:embed tables.json
var committed []byte

// known are the tables that are built into the program. A test checks that they are valid.
var known = sync.OnceValue(func() *Tables {
	t, err := ParseTables(committed)
	if err != nil {
		panic("choose: " + err.Error())
	}
	return t
})

// rows returns what was measured at a place: the user's rows, or else the built-in ones.
func (t *Tables) rows(p Place) []Row {
	for _, of := range []*Tables{t, known()} {
		if i := of.index(p); i >= 0 {
			return of.Tables[i].Rows
		}
	}
	return nil
}

func (t *Tables) index(p Place) int {
	if t == nil {
		return -1
	}
	return slices.IndexFunc(t.Tables, func(o *Table) bool { return o.Place == p })
}

// At returns the table for a place. It adds one if there is none.
func (t *Tables) At(p Place) *Table {
	i := t.index(p)
	if i < 0 {
		i = len(t.Tables)
		t.Tables = append(t.Tables, &Table{Place: p})
	}
	return t.Tables[i]
}

// Put adds a choice's time on host memory. It replaces an older time of the same size.
func (t *Table) Put(choice Choice, bytes, nanos int64) {
	i := slices.IndexFunc(t.Rows, func(r Row) bool { return r.Choice == choice.String() })
	if i < 0 {
		i = len(t.Rows)
		t.Rows = append(t.Rows, Row{Choice: choice.String()})
	}
	r := &t.Rows[i]
	at, found := slices.BinarySearchFunc(r.Took, bytes, func(p [2]int64, b int64) int { return cmp.Compare(p[0], b) })
	if found {
		r.Took[at][1] = nanos
	} else {
		r.Took = slices.Insert(r.Took, at, [2]int64{bytes, nanos})
	}
}

// ParseTables parses the output of Bytes. Anything else is an error.
func ParseTables(b []byte) (*Tables, error) {
	t := new(Tables)
	var version struct{ Schema int }
	err := json.Unmarshal(b, &version)
	if err == nil && version.Schema != schema {
		err = fmt.Errorf("schema %d; this program reads schema %d", version.Schema, schema)
	}
	if err == nil {
		dec := json.NewDecoder(bytes.NewReader(b))
		dec.DisallowUnknownFields()
		err = dec.Decode(t)
	}
	if err == nil {
		err = t.validate()
	}
	if err != nil {
		return nil, fmt.Errorf("tuning tables: %w", err)
	}
	return t, nil
}

// Bytes returns the tables as JSON, sorted, one per line.
func (t *Tables) Bytes() ([]byte, error) {
	slices.SortStableFunc(t.Tables, func(a, b *Table) int {
		return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.Local, b.Local), cmp.Compare(a.Net, b.Net), cmp.Compare(a.Ranks, b.Ranks),
			cmp.Compare(a.Groups, b.Groups), cmp.Compare(strconv.FormatBool(a.Crowded), strconv.FormatBool(b.Crowded)), cmp.Compare(a.Collective, b.Collective))
	})
	if err := t.validate(); err != nil {
		return nil, fmt.Errorf("tuning tables: %w", err)
	}
	machine, err := json.Marshal(t.Machine)
	out := fmt.Appendf(nil, "{\"schema\":%d,\"machine\":%s,\"tables\":[", schema, machine)
	for i, table := range t.Tables {
		line, bad := json.Marshal(table)
		out, err = fmt.Appendf(out, "%s\n%s", map[bool]string{true: ","}[i > 0], line), cmp.Or(err, bad)
	}
	return append(out, "\n]}\n"...), err
}

// validate rejects tables that would lead to wrong choices.
func (t *Tables) validate() error {
	for i, table := range t.Tables {
		if table == nil {
			return fmt.Errorf("table %d: null", i+1)
		}
		if err := table.validate(); err != nil {
			return fmt.Errorf("table %d, %v: %w", i+1, table.Place, err)
		}
		if t.index(table.Place) < i {
			return fmt.Errorf("table %d, %v: there are two tables", i+1, table.Place)
		}
	}
	return nil
}

// String returns the place for error messages.
func (p Place) String() string {
	if p.GPU != "" {
		return fmt.Sprintf("%s among %d GPUs %q", p.Collective, p.Ranks, p.GPU)
	}
	return fmt.Sprintf("%s among %d ranks over %q", p.Collective, p.Ranks, p.Local)
}

func (t *Table) validate() error {
	c := op.Collective(0)
	for c < op.NumCollectives && c.String() != t.Collective {
		c++
	}
	least := 1
	if t.GPU != "" {
		least = 2
	}
	switch {
	case c == op.NumCollectives:
		return fmt.Errorf("there is no collective %q", t.Collective)
	case (t.GPU == "") == (t.Local == ""):
		return fmt.Errorf("GPU %q and transport %q; one of them must be there", t.GPU, t.Local)
	case t.Ranks < least || t.Groups < 0 || t.Groups == 1 || t.Groups > t.Ranks:
		return fmt.Errorf("%d ranks, %d groups", t.Ranks, t.Groups)
	case len(t.Rows) == 0:
		return fmt.Errorf("there are no rows")
	}
	var last int64
	for i, r := range t.Rows {
		var err error
		if t.GPU == "" {
			last = -1
			var k Choice
			if k, err = parseChoice(r.Choice); err == nil && forms[c][k.Algorithm] == nil {
				err = fmt.Errorf("there is no algorithm %q for %v", k.Algorithm, c)
			}
		} else if r.Choice == "" || strings.ContainsAny(r.Choice, " \t\n") { // coll/cuda parses it
			err = fmt.Errorf("%q is no choice", r.Choice)
		}
		if len(r.Took) == 0 && err == nil {
			err = fmt.Errorf("there are no times")
		}
		for k, p := range r.Took {
			all := t.GPU != "" && p[0] == 0 && i == len(t.Rows)-1 && k == len(r.Took)-1
			switch unmeasured := t.GPU == AnyGPU || t.GPU == Hosted; {
			case err != nil:
			case p[0] <= last && !all:
				err = fmt.Errorf("%d bytes, after %d", p[0], last)
			case p[1] < 1 && !unmeasured || p[1] < 0 || p[1] > 1e15:
				err = fmt.Errorf("%d nanoseconds", p[1])
			}
			last = p[0]
		}
		if err != nil {
			return fmt.Errorf("row %d: %w", i+1, err)
		}
	}
	return nil
}

// Numbers parses "name:number:number…". All but the name may be left out: missing numbers keep
// their values.
func Numbers(s string, to ...*int) (name string, err error) {
	fields := strings.Split(s, ":")
	if len(fields)-1 > len(to) {
		return "", fmt.Errorf("%q: there are more than %d numbers", s, len(to))
	}
	for i, f := range fields[1:] {
		if *to[i], err = strconv.Atoi(f); err != nil || *to[i] < 0 {
			return "", fmt.Errorf("%q: %q is not a number", s, f)
		}
	}
	return fields[0], nil
}

// Rules are choices by collective and length of messages: the first rule with a sufficient
// UpTo applies.
type Rules[C any] [op.NumCollectives][]Rule[C]

// A Rule is a choice for messages of up to UpTo bytes.
type Rule[C any] struct {
	UpTo int
	C    C
}

// GPURules returns the rules for the given number of GPUs of a name. parse parses a choice.
func GPURules[C any](t *Tables, gpu string, ranks int, parse func(c op.Collective, choice string) (C, error)) (rules Rules[C], err error) {
	for c := range op.NumCollectives {
		p := Place{GPU: gpu, Ranks: ranks, Collective: c.String()}
		rows := t.rows(p)
		for unmeasured := gpu == AnyGPU || gpu == Hosted; unmeasured && rows == nil && p.Ranks > 2; {
			p.Ranks--
			rows = t.rows(p)
		}
		for _, r := range rows {
			k, err := parse(c, r.Choice)
			if err != nil {
				return rules, fmt.Errorf("measured rules for %v: %w", p, err)
			}
			upTo := r.Took[len(r.Took)-1][0]
			if upTo == 0 {
				upTo = math.MaxInt64
			}
			rules[c] = append(rules[c], Rule[C]{int(upTo), k})
		}
	}
	// Gather and Scatter are AllToAlls of fewer messages.
	for _, c := range [...]op.Collective{op.Gather, op.Scatter} {
		if rules[c] == nil {
			rules[c] = rules[op.AllToAll]
		}
	}
	return rules, nil
}

// At returns the index of the first rule with a sufficient UpTo, or -1 if there is none.
func At[C any](rules []Rule[C], bytes int) int {
	return slices.IndexFunc(rules, func(r Rule[C]) bool { return bytes <= r.UpTo })
}

// Pick chooses for a GPU without measurements: the first possible rule of the model with a sufficient
// UpTo, or else the widest possible one. can adapts a choice to the given bytes and reports whether
// it is possible and, if strict, whether settings allow it. If settings allow no choice, they are
// ignored.
func Pick[C any](model []Rule[C], bytes int, can func(k C, strict bool) (C, bool)) C {
	last := len(model) - 1
	for _, strict := range [...]bool{true, false} {
		for i := range model {
			if bytes <= model[i].UpTo || i == last {
				if got, ok := can(model[i].C, strict); ok {
					return got
				}
			}
		}
		for i := last; i >= 0 && strict; i-- {
			if got, ok := can(model[i].C, true); ok {
				return got
			}
		}
	}
	got, _ := can(model[last].C, false)
	return got
}
