package watch

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/internal/infile"
	"github.com/assay-hpc/assay/internal/pickle"
	"github.com/assay-hpc/assay/internal/words"
)

// A TorchDump is what PyTorch's flight recorder wrote on one rank: TORCH_NCCL_DUMP_ON_TIMEOUT, a
// debug pipe, or torch._C._distributed_c10d._dump_nccl_trace and its JSON form.
type TorchDump struct {
	File    string
	Rank    int // of the job, from the file's name
	Version string
	Groups  map[string]torchGroup // by the name of the process group
	Entries []TorchEntry
}

type torchGroup struct {
	Desc  string `json:"desc"`
	Ranks string `json:"ranks"` // "[0, 1, 2]", of the job
}

// A TorchEntry is one operation of a process group.
type TorchEntry struct {
	Group    []string     `json:"process_group"` // name, description
	Seq      int64        `json:"collective_seq_id"`
	P2P      int64        `json:"p2p_seq_id"`
	IsP2P    bool         `json:"is_p2p"`
	Name     string       `json:"profiling_name"` // "nccl:all_reduce", "nccl:send 0->1"
	In       [][]int64    `json:"input_sizes"`
	Out      [][]int64    `json:"output_sizes"`
	InTypes  []string     `json:"input_dtypes"`
	OutTypes []string     `json:"output_dtypes"`
	State    string       `json:"state"` // scheduled, started, completed
	Frames   []torchFrame `json:"frames"`
}

type torchFrame struct {
	Function string `json:"name"`
	File     string `json:"filename"`
	Line     int    `json:"line"`
}

// A TorchFinding says where a process group stands.
type TorchFinding struct {
	Group string `json:"group"`
	Ranks []int  `json:"ranks,omitempty"` // of the job, that are the reason; none if it is in another process group
	Text  string `json:"text"`

	kind  findingKind
	waits []int // ranks that wait in it
}

// A findingKind is what was found in a process group.
type findingKind int8

const (
	completes findingKind = iota
	agrees                // all have called the same, and it has not completed
	misses                // some ranks have not called it
	differs               // ranks have called different operations
)

const maxDump = 1 << 30

var rankAtEnd = regexp.MustCompile(`(\d+)(\.[a-z]+)?$`)

// ReadTorch reads the dumps that files and directories contain, by rank. What is no dump, or no entry
// of one, is an error with the file's name; all else is returned.
func ReadTorch(paths []string) (dumps []TorchDump, err error) {
	var errs []error
	for _, path := range paths {
		files := []string{path}
		if st, err := os.Stat(path); err == nil && st.IsDir() {
			files = nil
			list, err := os.ReadDir(path)
			errs = append(errs, err)
			for _, e := range list {
				if e.Type().IsRegular() && rankAtEnd.MatchString(e.Name()) {
					files = append(files, filepath.Join(path, e.Name()))
				}
			}
			if len(files) == 0 {
				errs = append(errs, fmt.Errorf("%s: no file whose name ends with a rank, as in nccl_trace_rank_0", path))
			}
		}
		for _, file := range files {
			d, err := readTorch(file)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", file, err))
			}
			if err != nil && len(d.Entries) == 0 {
				continue
			}
			if i := slices.IndexFunc(dumps, func(o TorchDump) bool { return o.Rank == d.Rank }); i >= 0 {
				errs = append(errs, fmt.Errorf("%s: of rank %d, as %s", file, d.Rank, dumps[i].File))
				continue
			}
			dumps = append(dumps, d)
		}
	}
	slices.SortFunc(dumps, func(a, b TorchDump) int { return cmp.Compare(a.Rank, b.Rank) })
	return dumps, errors.Join(errs...)
}

func readTorch(file string) (d TorchDump, err error) {
	d.File = file
	m := rankAtEnd.FindStringSubmatch(filepath.Base(file))
	if m == nil {
		return d, errors.New("the name does not end with the rank, as in nccl_trace_rank_0")
	}
	if d.Rank, err = strconv.Atoi(m[1]); err != nil {
		return d, err
	}
	b, err := infile.Read(file, maxDump)
	if err != nil {
		return d, err
	}
	if text := bytes.TrimSpace(b); len(text) == 0 || text[0] != '{' {
		v, err := pickle.Decode(b)
		if err != nil {
			return d, fmt.Errorf("no dump of PyTorch's flight recorder, which is a pickle or JSON: %w", err)
		}
		if b, err = json.Marshal(v); err != nil {
			return d, err
		}
	}
	var dump struct {
		Version string                `json:"version"`
		Groups  map[string]torchGroup `json:"pg_config"`
		Entries []json.RawMessage     `json:"entries"`
	}
	if err := json.Unmarshal(b, &dump); err != nil {
		return d, err
	}
	if dump.Version == "" || dump.Entries == nil {
		return d, errors.New("no dump of PyTorch's flight recorder: it has no version, or no entries")
	}
	d.Version, d.Groups = dump.Version, dump.Groups
	var errs []error
	for i, raw := range dump.Entries {
		var e TorchEntry
		if err := json.Unmarshal(raw, &e); err != nil || len(e.Group) == 0 || e.Name == "" {
			errs = append(errs, fmt.Errorf("entry %d: %w", i, cmp.Or(err, errors.New("without process group or name"))))
			continue
		}
		d.Entries = append(d.Entries, e)
	}
	return d, errors.Join(errs...)
}

// call is the operation without the backend: "all_reduce".
func (e *TorchEntry) call() string {
	if _, name, ok := strings.Cut(e.Name, ":"); ok {
		return name
	}
	return e.Name
}

func (e *TorchEntry) group() string {
	if len(e.Group) > 1 && e.Group[1] != "" && e.Group[1] != "undefined" {
		return fmt.Sprintf("%s (%s)", e.Group[0], e.Group[1])
	}
	return e.Group[0]
}

func (e *TorchEntry) done() bool { return e.State == "completed" }

func (e *TorchEntry) p2p() bool {
	name := e.call()
	return e.IsP2P || strings.HasPrefix(name, "send ") || strings.HasPrefix(name, "recv ")
}

// uneven are the collectives whose sizes may differ between ranks.
var uneven = []string{"all_to_all", "gather", "scatter", "all_gather", "reduce_scatter", "split", "coalesced", "barrier"}

// shape describes the call so that calls of ranks which match have the same text.
func (e *TorchEntry) shape() string {
	s := e.call()
	switch {
	case strings.Contains(s, "coalesced"):
		return s
	case slices.Contains(uneven, strings.TrimSuffix(s, "_single")), strings.HasPrefix(s, "all_to_all"):
		types := slices.Concat(e.InTypes, e.OutTypes) // of a scatter, most ranks have no input
		slices.Sort(types)
		return s + " of " + strings.Join(slices.Compact(types), ",")
	}
	return fmt.Sprintf("%s of %s %s", s, strings.Join(e.InTypes, ","), sizes(e.In))
}

func sizes(list [][]int64) string {
	var out []string
	for _, dims := range list {
		var d []string
		for _, n := range dims {
			d = append(d, strconv.FormatInt(n, 10))
		}
		out = append(out, "["+strings.Join(d, "×")+"]")
	}
	return strings.Join(out, " ")
}

// where is the program's line that called: the first frame outside PyTorch.
func (e *TorchEntry) where() string {
	for _, f := range e.Frames {
		if !strings.Contains(f.File, "/torch/") && f.File != "??" && f.File != "" {
			return fmt.Sprintf(", called by %s at %s:%d", f.Function, f.File, f.Line)
		}
	}
	return ""
}

// key tells process groups apart: those of a split may have one name and different ranks.
func (d *TorchDump) key(e *TorchEntry) string {
	return strings.Join([]string{e.Group[0], e.group(), d.Groups[e.Group[0]].Ranks}, "\x00")
}

// Torch finds in each process group the first operation that does not match on all ranks or has not
// completed, and says which ranks are the reason: the first error of a group is the one that counts,
// and a rank that waits in one group is no reason for another to wait. Reasons come first.
func Torch(dumps []TorchDump) (all []TorchFinding) {
	keys := map[string]bool{}
	for i := range dumps {
		for j := range dumps[i].Entries {
			keys[dumps[i].key(&dumps[i].Entries[j])] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		all = append(all, groupFinding(dumps, key)...)
	}
	follow(all)
	slices.SortStableFunc(all, func(a, b TorchFinding) int { return cmp.Compare(min(len(b.Ranks), 1), min(len(a.Ranks), 1)) })
	return all
}

// follow takes the ranks out of findings that follow from others, unless these follow from it.
func follow(all []TorchFinding) {
	rest := make([][]int, len(all))
	cause := false
	for i := range all {
		f := &all[i]
		for _, r := range f.Ranks {
			elsewhere := func(o TorchFinding) bool { return o.Group != f.Group && slices.Contains(o.waits, r) }
			if f.kind == differs || !slices.ContainsFunc(all, elsewhere) {
				rest[i] = append(rest[i], r)
			}
		}
		cause = cause || len(rest[i]) > 0 && f.kind != agrees
	}
	for i := range all {
		f := &all[i]
		switch {
		case !cause || len(f.Ranks) == 0:
		case f.kind == agrees:
			f.Ranks = nil
			f.Text += "; another process group has the reason"
		case len(rest[i]) < len(f.Ranks):
			f.Ranks = rest[i]
			f.Text += "; where it waits in another process group, that one has the reason"
		}
	}
}

// A history is what one rank did in a process group.
type history struct {
	rank        int
	calls       map[int64]*TorchEntry // collectives by number
	first, last int64                 // numbers that are recorded
	waiting     []*TorchEntry         // Sends and Recvs that have not completed
}

func groupFinding(dumps []TorchDump, key string) []TorchFinding {
	parts := strings.Split(key, "\x00")
	name := parts[1]
	var in []int // the group's ranks of the job; nil: unknown
	_ = json.Unmarshal([]byte(parts[2]), &in)
	var ranks []*history
	for i := range dumps {
		h, used := &history{rank: dumps[i].Rank, calls: map[int64]*TorchEntry{}}, false
		for j := range dumps[i].Entries {
			e := &dumps[i].Entries[j]
			switch {
			case dumps[i].key(e) != key:
				continue
			case e.p2p():
				if !e.done() {
					h.waiting = append(h.waiting, e)
				}
			default:
				if len(h.calls) == 0 {
					h.first = e.Seq
				}
				h.calls[e.Seq], h.last = e, e.Seq
			}
			used = true
		}
		if used || slices.Contains(in, h.rank) {
			ranks = append(ranks, h)
		}
	}
	var silent []int
	for _, r := range in {
		if !slices.ContainsFunc(ranks, func(h *history) bool { return h.rank == r }) {
			silent = append(silent, r)
		}
	}
	var out []TorchFinding
	add := func(kind findingKind, of, waits []int, format string, a ...any) {
		f := TorchFinding{Group: name, Ranks: of, Text: fmt.Sprintf(format, a...), kind: kind, waits: waits}
		if len(silent) > 0 {
			f.Text += fmt.Sprintf("; there is no dump of %s", rankNames(silent))
		}
		out = append(out, f)
	}
	last := int64(0)
	first := int64(0)
	for _, h := range ranks {
		last, first = max(last, h.last), max(first, h.first)
	}
	for seq := first; seq <= last && len(out) == 0; seq++ {
		compareCalls(ranks, seq, add)
	}
	if len(out) == 0 {
		for _, h := range ranks {
			if len(h.waiting) > 0 {
				e := h.waiting[0]
				add(agrees, []int{h.rank}, []int{h.rank}, "rank %d waits in %s (of the group's ranks), number %d of its Sends and Recvs%s", h.rank, e.call(), e.P2P, e.where())
			}
		}
	}
	if len(out) == 0 && last > 0 {
		add(completes, nil, nil, "all operations match and have completed, up to #%d", last)
	}
	return out
}

// compareCalls looks for the reason why the collective with a number does not end.
func compareCalls(ranks []*history, seq int64, add func(kind findingKind, of, waits []int, format string, a ...any)) {
	shapes := map[string][]int{}
	calls := map[string]*TorchEntry{}
	var without, waiting []int
	differ := map[string][]int{} // ranks by sizes, of collectives whose sizes may differ
	for _, h := range ranks {
		e := h.calls[seq]
		if e == nil {
			without = append(without, h.rank)
			continue
		}
		shapes[e.shape()] = append(shapes[e.shape()], h.rank)
		calls[e.shape()] = e
		differ[sizes(e.In)] = append(differ[sizes(e.In)], h.rank)
		if !e.done() {
			waiting = append(waiting, h.rank)
		}
	}
	if len(shapes) == 0 {
		return
	}
	order := slices.SortedFunc(maps.Keys(shapes), func(a, b string) int {
		return cmp.Or(len(shapes[b])-len(shapes[a]), cmp.Compare(a, b))
	})
	most := calls[order[0]]
	switch {
	case len(shapes) > 1:
		odd := shapes[order[1]]
		for _, s := range order[2:] {
			odd = append(odd, shapes[s]...)
		}
		slices.Sort(odd)
		e := calls[order[1]]
		add(differs, odd, slices.DeleteFunc(slices.Clone(waiting), func(r int) bool { return slices.Contains(odd, r) }), "operation #%d differs: %s called %s%s, where %s called %s%s",
			seq, rankNames(shapes[order[1]]), order[1], e.where(), rankNames(shapes[order[0]]), order[0], most.where())
	case len(without) > 0:
		var texts []string
		for _, h := range ranks {
			if !slices.Contains(without, h.rank) {
				continue
			}
			text := fmt.Sprintf("rank %d", h.rank)
			if e := h.calls[h.last]; e != nil {
				text += fmt.Sprintf(" (its last is %s, #%d, %s%s)", e.call(), h.last, e.State, e.where())
			}
			texts = append(texts, text)
		}
		who := waiting
		if len(who) == 0 {
			who = shapes[order[0]]
		}
		add(misses, without, who, "operation #%d, %s, in which %s %s%s, was not called by %s",
			seq, most.shape(), rankNames(who), map[bool]string{true: "waits", false: "wait"}[len(who) == 1], most.where(), strings.Join(texts, ", "))
	case len(waiting) > 0:
		with := "the same arguments"
		if len(differ) > 1 {
			var parts []string
			for _, s := range slices.Sorted(maps.Keys(differ)) {
				parts = append(parts, s+" on "+rankNames(differ[s]))
			}
			with = "sizes " + strings.Join(parts, ", ")
		}
		add(agrees, waiting, waiting, "operation #%d, %s, was called by all with %s, and has not completed on %s%s", seq, most.shape(), with, rankNames(waiting), most.where())
	}
}

// rankNames is "rank 3" or "ranks 0-2 and 5".
func rankNames(ranks []int) string {
	slices.Sort(ranks)
	out := words.Ranges(ranks)
	if len(out) > 12 {
		out = append(out[:12], "more")
	}
	text := out[0]
	if len(out) > 1 {
		text = strings.Join(out[:len(out)-1], ", ") + " and " + out[len(out)-1]
	}
	if len(ranks) == 1 {
		return "rank " + text
	}
	return "ranks " + text
}

// WriteTorch writes what was found, a line for each.
func WriteTorch(w io.Writer, dumps []TorchDump, found []TorchFinding) {
	entries := 0
	for _, d := range dumps {
		entries += len(d.Entries)
	}
	fmt.Fprintf(w, "%s of PyTorch's flight recorder, %s\n", words.Count(len(dumps), "dump"), words.Count(entries, "operation"))
	for _, f := range found {
		fmt.Fprintf(w, "process group %s: %s\n", words.Line(f.Group), words.Line(f.Text))
	}
}
