package inspect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/oci"
)

// A member is a name of a JSON object, as it is written, and its value.
type member struct{ name, value string }

func object(ms []member) string {
	var parts []string
	for _, m := range ms {
		parts = append(parts, `"`+m.name+`":`+m.value)
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// spellings are names that some readers take for another one.
func spellings(rng *rand.Rand, name string) string {
	switch rng.IntN(6) {
	case 0:
		return strings.ToUpper(name[:1]) + name[1:]
	case 1:
		return strings.ToUpper(name)
	case 2:
		return strings.Replace(name, "s", "\u017f", 1)
	case 3:
		return strings.Replace(strings.Replace(name, "k", "\u212a", 1), "s", `\u017f`, 1)
	case 4:
		i := rng.IntN(len(name))
		return name[:i] + strings.ToUpper(name[i:i+1]) + name[i+1:]
	}
	i := rng.IntN(len(name)) // the same name, with an escape
	return fmt.Sprintf(`%s\u%04x%s`, name[:i], name[i], name[i+1:])
}

// mutatedIndex returns an index over good and evil images of two platforms, changed at random.
func mutatedIndex(rng *rand.Rand, images map[string][2]string) []byte {
	entry := func(arch string, which int) []member {
		d := images[arch]
		digest, size, _ := strings.Cut(d[which], " ")
		return []member{
			{"mediaType", `"application/vnd.oci.image.manifest.v1+json"`}, {"digest", `"` + digest + `"`}, {"size", size},
			{"platform", `{"architecture":"` + arch + `","os":"linux"}`},
		}
	}
	insert := func(ms []member, m member) []member {
		i := rng.IntN(len(ms) + 1)
		return append(ms[:i:i], append([]member{m}, ms[i:]...)...)
	}
	entries := map[string][]member{"amd64": entry("amd64", 0), "arm64": entry("arm64", 0)}
	top := []member{{"schemaVersion", "2"}, {"mediaType", `"application/vnd.oci.image.index.v1+json"`}}
	list := "manifests"
	for range 1 + rng.IntN(2) {
		arch := []string{"amd64", "arm64"}[rng.IntN(2)]
		e, evil := entries[arch], entry(arch, 1)
		i := rng.IntN(len(e))
		switch rng.IntN(13) {
		case 0, 1: // another image under a name that some readers take for this one
			j := 1 + rng.IntN(len(evil)-1)
			e = insert(e, member{spellings(rng, evil[j].name), evil[j].value})
		case 2: // a name is another one to some readers
			e[i].name = spellings(rng, e[i].name)
		case 3: // a name stands twice
			e = insert(e, evil[rng.IntN(len(evil))])
		case 4: // the same within the platform
			p := []string{
				`{"architecture":"` + arch + `","Architecture":"unknown","os":"linux"}`, `{"architecture":"` + arch + `","os":"linux","O\u017f":"windows"}`,
				`{"Architecture":"` + arch + `","os":"linux"}`, `{"architecture":"` + arch + `","os":"linux","os":"linux"}`, `{"architecture":"s390x","os":"linux"}`,
				`{"architecture":"` + arch + `","os":"linux","variant":"v8"}`, `null`, `{"os":"linux"}`,
			}
			e[len(e)-1].value = p[rng.IntN(len(p))]
		case 5: // a role that only some see
			e = append(e, member{spellings(rng, "annotations"), `{"vnd.docker.reference.type":"attestation-manifest"}`}, member{spellings(rng, "platform"), `{"architecture":"unknown","os":"unknown"}`})
		case 6: // a name is cut, or missing
			if n := e[i].name; rng.IntN(2) == 0 {
				e[i].name = n[:len(n)-1]
			} else {
				e = append(e[:i:i], e[i+1:]...)
			}
		case 7: // at the top
			m := []member{
				{"Manifests", "[" + object(evil) + "]"}, {"manife\u017fts", "[" + object(evil) + "]"}, {"manifests", "[" + object(evil) + "]"}, {"config", "{}"},
				{"layers", "[]"}, {"MediaType", `"application/vnd.oci.image.manifest.v1+json"`}, {"fsLayers", "[]"}, {"annotations", `{"a":"b"}`}, {"future", `{"a":[{"b":null}]}`},
			}
			top = insert(top, m[rng.IntN(len(m))])
		case 8:
			list = spellings(rng, "manifests")
		case 9: // another type than the descriptor's
			top[1].value = []string{`"application/vnd.oci.image.manifest.v1+json"`, `"application/vnd.docker.distribution.manifest.list.v2+json"`, `""`, `null`}[rng.IntN(4)]
		case 10: // an unknown field, which all ignore
			e = insert(e, member{"future", `{"digest":"x","list":[1,2,{"a":true}]}`})
		case 11: // nested below an unknown field
			e = insert(e, member{"future", `{"digest":"x","Digest":"y"}`})
		case 12: // in another order
			rng.Shuffle(len(e), func(a, b int) { e[a], e[b] = e[b], e[a] })
		}
		entries[arch] = e
	}
	manifests := []string{object(entries["amd64"]), object(entries["arm64"])}
	if rng.IntN(2) == 0 {
		manifests[0], manifests[1] = manifests[1], manifests[0]
	}
	if rng.IntN(8) == 0 {
		manifests = append(manifests, object(entry("amd64", 1)))
	}
	top = insert(top, member{list, "[" + strings.Join(manifests, ",") + "]"})
	return []byte(object(top))
}

// TestIndexReaders: of each index that is accepted, jq, and with it enroot, takes the images that
// were verified.
func TestIndexReaders(t *testing.T) {
	jq, err := exec.LookPath("jq")
	if err != nil {
		t.Skip("there is no jq: apt-get install jq")
	}
	l, err := oci.Create(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &store{Layout: l, t: t}
	images := map[string][2]string{}
	for i, p := range []string{"amd64", "arm64"} {
		var both [2]string
		for j := range both {
			platform := amd64
			platform.Architecture = p
			d, err := l.Describe(mustHash(t, writeImage(t, l, platform, int64(10*i+j))))
			if err != nil {
				t.Fatal(err)
			}
			both[j] = fmt.Sprintf("%s %d", d.Digest, d.Size)
		}
		images[p] = both
	}
	rng := rand.New(rand.NewPCG(7, 8))
	const count = 3000
	var accepted bytes.Buffer
	var ours []string
	for range count {
		raw := mutatedIndex(rng, images)
		if !json.Valid(raw) {
			t.Fatalf("no JSON: %s", raw)
		}
		d := s.blob(types.OCIImageIndex, raw)
		rep, err := Inspect(t.Context(), l.Source(d.Digest.String()), attest.Policy{})
		if err != nil {
			if !Failed(err) {
				t.Fatalf("%s: %v", raw, err)
			}
			continue
		}
		found := map[string]string{}
		for _, img := range rep.Images {
			arch := strings.Split(img.Platform, "/")[1]
			if found[arch] == "" {
				found[arch] = img.Digest
			}
		}
		ours = append(ours, found["amd64"]+" "+found["arm64"]+"\n")
		accepted.Write(append(raw, '\n'))
	}
	if n := len(ours); n < count/20 || n > count/2 {
		t.Errorf("%d of %d are accepted", n, count)
	}
	// As enroot's docker.sh selects, for both architectures.
	const selects = `def of($arch): [.manifests[] | select(.platform.os == "linux" and .platform.architecture == $arch) | .digest][0] // ""; of("amd64") + " " + of("arm64")`
	cmd := exec.Command(jq, "-r", selects)
	cmd.Stdin = bytes.NewReader(accepted.Bytes())
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	theirs := strings.SplitAfter(string(out), "\n")
	docs := strings.Split(accepted.String(), "\n")
	if len(theirs) != len(ours)+1 {
		t.Fatalf("jq reads %d indexes of %d", len(theirs)-1, len(ours))
	}
	for i := range ours {
		if ours[i] != theirs[i] {
			t.Errorf("%s: we verify %s, jq takes %s", docs[i], ours[i], theirs[i])
		}
	}
}
