package choose

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/schedule"
)

const goodTables = `{"schema":2,"machine":"m","tables":[
{"local":"SHM","ranks":4,"collective":"AllReduce","rows":[{"choice":"ring/LL:1","took":[[8,2000],[64,2500]]}]},
{"gpu":"A","ranks":2,"collective":"AllReduce","rows":[{"choice":"reduce_ll:1:64:0","took":[[8,2000]]},{"choice":"copy","took":[[0,90000]]}]},
{"gpu":"A","ranks":2,"collective":"SendRecv","rows":[{"choice":"exchange_ll","took":[[64,2000]]}]}
]}
`

// TestTablesFile: what is written is what was read, sorted.
func TestTablesFile(t *testing.T) {
	m := &Tables{Machine: "m"}
	host := m.At(Place{Local: "SHM", Ranks: 4, Collective: "AllReduce"})
	host.Put(Choice{Algorithm: "ring", Protocol: LL, Channels: 1}, 64, 1)
	host.Put(Choice{Algorithm: "ring", Protocol: LL, Channels: 1}, 8, 2000)
	host.Put(Choice{Algorithm: "ring", Protocol: LL, Channels: 1}, 64, 2500)
	m.At(Place{GPU: "A", Ranks: 2, Collective: "SendRecv"}).Rows = []Row{{"exchange_ll", [][2]int64{{64, 2000}}}}
	all := Place{GPU: "A", Ranks: 2, Collective: "AllReduce"}
	m.At(all).Rows = []Row{{"copy", [][2]int64{{8, 9}}}} // replaced by the next
	m.At(all).Rows = []Row{{"reduce_ll:1:64:0", [][2]int64{{8, 2000}}}, {"copy", [][2]int64{{0, 90000}}}}
	b, err := m.Bytes()
	if d := cmp.Diff(goodTables, string(b)); err != nil || d != "" {
		t.Fatalf("%v (-want +got):\n%s", err, d)
	}
	again, err := ParseTables(b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(m.Tables, again.Tables); d != "" || again.Machine != "m" {
		t.Errorf("read again (-want +got):\n%s", d)
	}
	host.Put(Choice{Algorithm: "ring", Protocol: LL, Channels: 1}, 64, -1)
	if _, err := m.Bytes(); err == nil {
		t.Error("a negative time was written")
	}
}

func TestTablesErrors(t *testing.T) {
	for _, tt := range []struct{ old, new, want string }{
		{`"schema":2`, `"schema":1`, "schema 1; this program reads schema 2"}, {`"machine"`, `"maschine"`, `unknown field "maschine"`}, {"\n]}\n", "\n]}{}", "after top-level value"}, {`{"schema"`, `["schema"`, "tuning tables: "},
		{`"SendRecv"`, `"Sendrecv"`, `table 3, Sendrecv among 2 GPUs "A": there is no collective "Sendrecv"`}, {`"SendRecv"`, `"AllReduce"`, `AllReduce among 2 GPUs "A": there are two tables`},
		{`"gpu":"A"`, `"gpu":""`, `GPU "" and transport ""`}, {`"gpu":"A"`, `"gpu":"A","local":"SHM"`, `GPU "A" and transport "SHM"`}, {`"ranks":2`, `"ranks":1`, "1 ranks"},
		{`[8,2000]]},{`, `[0,2000]]},{`, `table 2, AllReduce among 2 GPUs "A": row 1: 0 bytes, after 0`}, {`[8,2000]]},{`, `[-8,2000]]},{`, "row 1: -8 bytes"}, {`[0,90000]`, `[8,90000]`, "row 2: 8 bytes, after 8"},
		{`"copy"`, `""`, `"" is no choice`}, {`"copy"`, `"a b"`, "no choice"}, {`90000`, `0`, "0 nanoseconds"}, {`[0,90000]`, `[0]`, "0 nanoseconds"},
		{`[[64,2000]]`, `[]`, "row 1: there are no times"}, {`[{"choice":"exchange_ll","took":[[64,2000]]}]`, `[]`, "there are no rows"}, {`"choice":"copy"`, `"choise":"copy"`, `unknown field "choise"`},
		{"ring/LL:1", "rung/LL:1", `there is no algorithm "rung" for AllReduce`}, {"ring/LL:1", "bruck/LL:1", `there is no algorithm "bruck" for AllReduce`}, {"ring/LL:1", "ring/LL128:1", `there is no protocol "LL128"; there are Simple, LL`},
		{"ring/LL:1", "ring:1", `no protocol ""`}, {"ring/LL:1", "ring/LL", "no channels"}, {"ring/LL:1", "ring/LL:x", `"x" is not a number`}, {"ring/LL:1", "ring/LL:1:2", "more than 1 numbers"},
		{`"ranks":4`, `"ranks":0`, "0 ranks"}, {`"ranks":4`, `"ranks":4,"groups":5`, "5 groups"}, {`[8,2000],`, `[64,2000],`, "64 bytes, after 64"}, {`[8,2000],`, `[8,0],`, "0 nanoseconds"},
		{`{"gpu":"A","ranks":2,"collective":"SendRecv"`, `null,{"gpu":"A","ranks":2,"collective":"SendRecv"`, "table 3: null"},
	} {
		text := strings.Replace(goodTables, tt.old, tt.new, 1)
		_, err := ParseTables([]byte(text))
		if text == goodTables || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s for %s: %v; want %q", tt.new, tt.old, err, tt.want)
		}
	}
}

// FuzzParseTables: what is accepted is written and read again unchanged, and a
// tuner can be made of it.
func FuzzParseTables(f *testing.F) {
	f.Add([]byte(goodTables))
	f.Add([]byte(`{"schema":2,"machine":"x","tables":null}`))
	e := fourLocal(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := ParseTables(text)
		if err != nil {
			return
		}
		b, err := m.Bytes()
		if err != nil {
			t.Fatalf("what was accepted is not written: %v", err)
		}
		again, err := ParseTables(b)
		if err != nil {
			t.Fatal(err)
		}
		if once, _ := again.Bytes(); string(once) != string(b) {
			t.Fatalf("written again:\n%s\nafter\n%s", once, b)
		}
		e.Tuning.Tables = m
		tunerOf(t, e).Pick(op.AllReduce, 1000)
	})
}

// TestKnown: the tables that came with the program are as they would be written,
// of several numbers of ranks and of GPUs, and what they say is chosen.
func TestKnown(t *testing.T) {
	b, err := known().Bytes()
	if err != nil || string(b) != string(committed) {
		t.Errorf("tables.json is not as it would be written: %v", err)
	}
	gpus, measured := 0, 0
	for _, table := range known().Tables {
		if gpus++; table.GPU == "" {
			gpus--
			measured += len(table.Rows)
		}
	}
	if known().Machine == "" || gpus < 20 || measured < 500 {
		t.Errorf("%d tables of GPUs, %d choices on host memory of machine %q", gpus, measured, known().Machine)
	}
	if k := tunerOf(t, testEnv(t, []int{2}, 2, Transport{})).Pick(op.AllReduce, 64<<10); k.Algorithm != schedule.OneShot || k.Protocol != Simple {
		t.Errorf("AllReduce of 64 KiB with two ranks: %+v; one-shot was measured to be fastest", k)
	}
}

// TestGPURules: the user's tables go before those that came with the program, for the
// GPU and the number of ranks only, and each collective by itself.
func TestGPURules(t *testing.T) {
	own := new(Tables)
	const gpu = "NVIDIA H200"
	rows := []Row{{"mine", [][2]int64{{8, 1}}}, {"mine too", [][2]int64{{0, 9}}}}
	own.At(Place{GPU: gpu, Ranks: 2, Collective: "AllReduce"}).Rows = rows
	own.At(Place{GPU: "I", Ranks: 3, Collective: "AllToAll"}).Rows = rows
	own.At(Place{GPU: "I", Ranks: 3, Collective: "Scatter"}).Rows = rows[1:]
	own.At(Place{GPU: AnyGPU, Ranks: 3, Collective: "Reduce"}).Rows = rows
	text := func(_ op.Collective, s string) (string, error) { return s, nil }
	rules := func(t *Tables, gpu string, ranks int) Rules[string] {
		r, err := GPURules(t, gpu, ranks, text)
		if err != nil {
			panic(err)
		}
		return r
	}
	mine, theirs := rules(own, gpu, 2), rules(nil, gpu, 2)
	if r := mine[op.AllReduce]; len(r) != 2 || r[0] != (Rule[string]{8, "mine"}) || At(r, 1<<50) != 1 || r[1].C != "mine too" || At(r[:1], 9) != -1 {
		t.Errorf("the user's: %+v", r)
	}
	if d := cmp.Diff(theirs[op.Reduce], mine[op.Reduce]); d != "" || len(theirs[op.AllReduce]) < 7 {
		t.Errorf("ours: %+v, %s", theirs, d)
	}
	if r := rules(own, "I", 3); len(r[op.Gather]) != 2 || len(r[op.Scatter]) != 1 || r[op.AllReduce] != nil {
		t.Errorf("Gather and Scatter are AllToAlls: %+v", r)
	}
	if r := rules(own, "I", 4); r[op.AllToAll] != nil {
		t.Errorf("4 ranks have the rules of 3: %+v", r)
	}
	if r := rules(own, AnyGPU, 8); len(r[op.Reduce]) != 2 || len(r[op.Broadcast]) < 4 {
		t.Errorf("any GPU: %+v", r)
	}
	_, err := GPURules(own, gpu, 2, func(op.Collective, string) (string, error) { return "", fmt.Errorf("no kernel") })
	if err == nil || err.Error() != `measured rules for AllReduce among 2 GPUs "NVIDIA H200": no kernel` {
		t.Error(err)
	}
}
