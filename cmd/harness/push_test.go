package main

import (
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	ociserver "github.com/google/go-containerregistry/pkg/registry"
	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/result"
)

// registryHost serves a registry.
func registryHost(t *testing.T) string {
	t.Helper()
	srv := httptest.NewServer(ociserver.New(ociserver.Logger(log.New(io.Discard, "", 0)), ociserver.WithReferrersSupport(true)))
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://")
}

func TestPush(t *testing.T) {
	host := registryHost(t)
	node := nodeFile(t)
	envelope, _ := signed(t, 0, result.Pass)
	first := ""
	for range 2 {
		code, out, errOut := tell("push", node, host+"/owner/nodes")
		if code != exit.Pass || !strings.HasPrefix(out, host+"/owner/nodes@sha256:") || first != "" && out != first {
			t.Fatalf("push: %d, %q after %q, %s", code, out, first, errOut)
		}
		first = out
	}
	for _, tt := range []struct {
		args string
		code int
		said string
	}{
		{"push " + node, 2, "wants FILE... and REPO"},
		{"push " + node + " " + node, 2, "the last argument is the repository"},
		{"push " + node + " " + host + "/owner/nodes:tag", 2, "names a tag"},
		{"push " + host + "/none.json " + host + "/owner/nodes", 2, "no such file"},
		{"push " + envelope + " " + host + "/owner/nodes", 2, "it is not about a machine"},
		{"push " + envelope + " " + host + "/owner/assay@" + verifyDigest, 3, "does not exist there"},
		{"push " + node + " " + host + "/owner/assay@" + verifyDigest, 2, "not about this digest"},
	} {
		code, out, errOut := tell(strings.Fields(tt.args)...)
		if code != tt.code || !strings.Contains(out+errOut, tt.said) {
			t.Errorf("%s: %d, %s%s; want %d, …%s…", tt.args, code, out, errOut, tt.code, tt.said)
		}
	}
}

// TestPushOptions: a command that pushes learns that it may not before it begins.
func TestPushOptions(t *testing.T) {
	host := registryHost(t)
	var o pushOptions
	if err := o.check(); err != nil {
		t.Errorf("check without a registry: %v", err)
	}
	st := certificatetest.Node(1)
	doc, err := st.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.push(t.Context(), doc, st); err == nil {
		t.Error("push without a registry succeeded")
	}
	app := &cli.App{Name: "x", Flags: o.flags()}
	if err := app.Run([]string{"x", "--push", host + "/owner/nodes"}); err != nil {
		t.Fatal(err)
	}
	if err := o.check(); err != nil {
		t.Fatal(err)
	}
	if ref, err := o.push(t.Context(), doc, st); err != nil || !strings.HasPrefix(ref, host+"/owner/nodes@sha256:") {
		t.Errorf("push = %s, %v", ref, err)
	}
	o.to = host + "/Owner"
	if err := o.check(); exit.Of(err) != exit.Usage {
		t.Errorf("check of a bad name: %v", err)
	}
	o.to = host + "/owner/assay@" + verifyDigest
	if err := o.check(); exit.Of(err) != exit.NotDone {
		t.Errorf("check of an image that is not there: %v", err)
	}
}
