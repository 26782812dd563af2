package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestScheme(t *testing.T) {
	for program, want := range map[string]string{
		"/opt/bin/sigstore-kms-awskms": "awskms", "sigstore-kms-gcpkms": "gcpkms", "sigstore-kms-azurekms": "azurekms",
		"sigstore-kms": "", "sigstore-kms-hashivault": "", "awskms-x": "",
	} {
		if got, err := scheme(program); got != want || (err == nil) != (want != "") {
			t.Errorf("scheme(%q) = %q, %v; want %q", program, got, err, want)
		}
	}
}

// TestServe goes as far as one gets without a cloud: each provider is asked, and
// refuses a reference that is none in its own words, in the protocol.
func TestServe(t *testing.T) {
	const call = `{"methodName":"publicKey","publicKey":{"publicKeyOptions":{}},"initOptions":{"protocolVersion":"v1","keyResourceID":"no such reference","hashFunc":5}}`
	for _, s := range []string{"awskms", "gcpkms", "azurekms"} {
		var out strings.Builder
		err := serve([]string{"sigstore-kms-" + s, "v1", call}, strings.NewReader(""), &out)
		var answer struct{ ErrorMessage string }
		if jerr := json.Unmarshal([]byte(out.String()), &answer); err != nil || jerr != nil || !strings.Contains(answer.ErrorMessage, s) {
			t.Errorf("%s: %v, and answered %s; want its own refusal", s, err, out.String())
		}
	}
	for _, args := range [][]string{{}, {"v1", "{}"}, {"v1", "no JSON"}} {
		if err := serve(append([]string{"sigstore-kms-awskms"}, args...), strings.NewReader(""), new(strings.Builder)); err == nil {
			t.Errorf("a call with the arguments %q was served", args)
		}
	}
}
