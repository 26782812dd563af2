package tuning

import (
	"testing"

	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/schedule"
)

func TestDefaults(t *testing.T) {
	m, err := Defaults()
	if err != nil {
		t.Fatal(err)
	}
	if m.Machine == "" || len(m.Points) < 500 {
		t.Errorf("%d measurements of machine %q; want those of several numbers of ranks", len(m.Points), m.Machine)
	}
	tuner, err := NewTuner(Env{Ranks: 2, Cores: 2, Local: SHM, Net: Socket}, NoOverrides, m)
	if err != nil {
		t.Fatal(err)
	}
	if c := tuner.Rules().Pick(op.AllReduce, 64<<10); c.Algorithm != schedule.OneShot || c.Protocol != Simple {
		t.Errorf("AllReduce of 64 KiB with two ranks: %+v; one-shot was measured to be fastest", c)
	}
}
