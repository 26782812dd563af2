package certificate_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
	"github.com/assay-hpc/assay/internal/result"
)

func TestNodeRoundTrip(t *testing.T) {
	want := certificatetest.Node(8)
	b, err := want.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := certificate.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if err := got.Verify(certificate.NodeDigest(want.Predicate.Node.Identity)); err != nil {
		t.Error(err)
	}
	if err := got.Verify(certificate.NodeDigest([]string{"another"})); !errors.Is(err, attest.ErrSubject) {
		t.Errorf("another machine's digest: %v; want ErrSubject", err)
	}
}

func TestNodeDigest(t *testing.T) {
	a := certificate.NodeDigest([]string{"x", "y"})
	if b := certificate.NodeDigest([]string{"y", "x", "y"}); a != b {
		t.Errorf("another order: %s, %s", a, b)
	}
	if b := certificate.NodeDigest([]string{"x y"}); a == b {
		t.Error("two machines have one digest")
	}
}

// TestNodeRefused changes one thing of a certificate that is whole.
func TestNodeRefused(t *testing.T) {
	good := nodeText(t)
	for name, edit := range map[string][2]string{
		"another machine's identity": {`"identity":["GPU-00000000`, `"identity":["GPU-00000009`},
		"no identity":                {`"identity":["GPU-00000000-1111-2222-3333-444444444444","GPU-00000001-1111-2222-3333-444444444444","GPU-00000002-1111-2222-3333-444444444444","GPU-00000003-1111-2222-3333-444444444444","port 0c42:a103:0065:f2f4"]`, `"identity":[]`},
		"another name":               {`"node":{"name":"node07"`, `"node":{"name":"node08"`},
		"object without a name":      {`{"name":"GPU 1","id"`, `{"name":"","id"`},
		"object twice":               {`{"name":"GPU 1","id"`, `{"name":"GPU 0","id"`},
		"object's verdict":           {`"id":"GPU-00000001-1111-2222-3333-444444444444","verdict":"pass"`, `"id":"GPU-00000001-1111-2222-3333-444444444444","verdict":"well"`},
		"warning without a reason":   {`"verdict":"warn","reason":"Xid 94 on GPU 1, 40 minutes ago"`, `"verdict":"warn"`},
		"limit of no kind":           {`"kind":"atLeast"`, `"kind":"about"`},
		"limit from nowhere":         {`"source":"assay"`, `"source":""`},
		"spread of no kind":          {`"kind":"confidence"`, `"kind":"guess"`},
		"spread without samples":     {`"samples":16`, `"samples":0`},
		"curve without a unit":       {`"x":"B"`, `"x":""`},
		"curve that turns back":      {`{"x":4096,`, `{"x":512,`},
		"link to nothing":            {`"b":"nvswitch"`, `"b":"nowhere"`},
		"under itself":               {`"under":"switch0"`, `"under":"gpu0"`},
		"part twice":                 {`{"id":"cpu1"`, `{"id":"cpu0"`},
	} {
		bad := strings.Replace(good, edit[0], edit[1], 1)
		if bad == good {
			t.Errorf("%s: the edit changes nothing", name)
		}
		if _, err := certificate.Parse([]byte(bad)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestSetNodeRefuses(t *testing.T) {
	for _, n := range []*certificate.Node{{Name: "n"}, {Identity: []string{"x"}}} {
		if err := certificatetest.Node(1).SetNode(n); err == nil {
			t.Errorf("%+v: accepted", n)
		}
	}
}

func TestLimitPasses(t *testing.T) {
	least, most := result.Limit{Value: 5, Kind: result.AtLeast}, result.Limit{Value: 5, Kind: result.AtMost}
	if !least.Passes(5) || least.Passes(4.9) || !most.Passes(5) || most.Passes(5.1) {
		t.Error("a limit passes what it should not, or the other way round")
	}
}
