package main

import (
	"strings"
	"testing"
)

func TestProgramName(t *testing.T) {
	cached := "0a/0a" + strings.Repeat("19", 31) + "-d/rohrpost"
	for arg0, want := range map[string]string{
		"/tmp/go-build2559628417/b001/exe/rohrpost": "go run ./services/cmd/rohrpost",
		"/root/.cache/go-build/" + cached:           "go run ./services/cmd/rohrpost",
		"/srv/cache/" + cached:                      "go run ./services/cmd/rohrpost", // GOCACHE=/srv/cache
		"rohrpost":                                  "rohrpost",
		"/usr/bin/rohrpost":                         "/usr/bin/rohrpost",
	} {
		if got := programName(arg0, ""); got != want {
			t.Errorf("programName(%q) = %q, want %q", arg0, got, want)
		}
	}
	const told = "docker compose run --rm cli"
	if got := programName("/usr/bin/rohrpost", told); got != told {
		t.Errorf("got %q, want what the container was told", got)
	}
}
